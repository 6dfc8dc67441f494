package upstream

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaygate/delaygate/codec"
)

// settingsAskers is how many brokers are asked for their settings at a time.
const settingsAskers = 8

// Settings are the parts of a broker's configuration that matter to a proxy.
type Settings struct {
	MessageDelayLevel string // as written in the broker's configuration
	TimerPrecisionMs  int64
	MaxMessageSize    int // bytes of a message body
	AutoCreateTopic   bool
	BrokerPermission  int32 // 4 read, 2 write
	Version           int32 // ordinal of the broker's version, from the header of its reply
}

// DefaultSettings are a broker's own defaults (4.x and 5.x), with version 0: not known.
func DefaultSettings() Settings {
	return Settings{
		MessageDelayLevel: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
		TimerPrecisionMs:  1000,
		MaxMessageSize:    4 << 20,
		AutoCreateTopic:   true,
		BrokerPermission:  6,
	}
}

type settingsEntry struct {
	settings Settings
	known    bool
	askedAt  time.Time
	err      error // of the last attempt
}

type settingsCache struct {
	mu     sync.Mutex
	byAddr map[string]settingsEntry
	wake   chan struct{}
}

func (sc *settingsCache) init() {
	sc.byAddr, sc.wake = map[string]settingsEntry{}, make(chan struct{}, 1)
}

// poke makes followSettings look for brokers it has not asked.
func (sc *settingsCache) poke() {
	select {
	case sc.wake <- struct{}{}:
	default:
	}
}

func (sc *settingsCache) get(addr string) settingsEntry {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.byAddr[addr]
}

// CachedSettings returns the last known settings of a broker. It never blocks.
func (v *View) CachedSettings(broker Broker) (Settings, bool) {
	e := v.settings.get(broker.Addr)
	return e.settings, e.known
}

// Settings returns the last known settings of a broker, which Run refreshes, and asks it
// (GET_BROKER_CONFIG, 26) when there are none. While it cannot be asked either, it returns DefaultSettings
// and an error.
func (v *View) Settings(ctx context.Context, broker Broker) (Settings, error) {
	e := v.settings.get(broker.Addr)
	if e.known {
		return e.settings, nil
	}
	err := e.err
	if err == nil || time.Since(e.askedAt) > retryPause {
		err = v.refreshSettings(ctx, broker)
	}
	if e = v.settings.get(broker.Addr); e.known {
		return e.settings, nil
	}
	return DefaultSettings(), fmt.Errorf("settings of broker %s at %s: %w", broker.Name, broker.Addr, err)
}

func (v *View) refreshSettings(ctx context.Context, broker Broker) error {
	ended := v.flights.DoChan("settings "+broker.Addr, func() (any, error) { return nil, v.askSettings(broker) })
	select {
	case r := <-ended:
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (v *View) askSettings(broker Broker) error {
	s, err := v.brokerConfig(broker)
	sc := &v.settings
	sc.mu.Lock()
	e := sc.byAddr[broker.Addr]
	old := e
	e.askedAt, e.err = time.Now(), err
	if err == nil {
		e.settings, e.known = s, true
	}
	sc.byAddr[broker.Addr] = e
	sc.mu.Unlock()
	if err == nil && (!old.known || old.settings.MessageDelayLevel != s.MessageDelayLevel) {
		v.compareLevels(broker, old, s.MessageDelayLevel)
	}
	return err
}

// compareLevels warns when a broker's level table changed or differs from that of another broker.
func (v *View) compareLevels(broker Broker, old settingsEntry, table string) {
	if old.known {
		v.o.Log.Warn("the delay levels of a broker changed: messages sent from now on follow the new table",
			"broker", broker.Name, "addr", broker.Addr, "old", old.settings.MessageDelayLevel, "new", table)
	}
	for _, b := range v.Brokers() {
		s, ok := v.CachedSettings(b)
		if ok && b.Addr != broker.Addr && !sameTable(s.MessageDelayLevel, table) {
			v.o.Log.Warn("brokers disagree on the delay levels: a level means another delay on each",
				"broker", broker.Name, "addr", broker.Addr, "levels", table, "other", b.Name, "other_levels", s.MessageDelayLevel)
			return
		}
	}
}

func sameTable(a, b string) bool {
	return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}

func (v *View) brokerConfig(broker Broker) (Settings, error) {
	r, err := v.o.Client.repeatable(context.Background(), broker.Addr, newRequest(codec.ReqGetBrokerConfig, nil))
	if err != nil {
		return Settings{}, err
	}
	if r.Code != codec.RespSuccess {
		return Settings{}, &ReplyError{Code: r.Code, Remark: r.Remark}
	}
	s := parseSettings(string(r.Body))
	s.Version = r.Version
	return s, nil
}

// parseSettings reads a broker's configuration; what it does not say, or says badly, has its default.
func parseSettings(text string) Settings {
	p, s := parseProperties(text), DefaultSettings()
	if t := strings.TrimSpace(p["messageDelayLevel"]); t != "" {
		s.MessageDelayLevel = t
	}
	number(p["timerPrecisionMs"], &s.TimerPrecisionMs)
	size, perm := int64(s.MaxMessageSize), int64(s.BrokerPermission)
	number(p["maxMessageSize"], &size)
	number(p["brokerPermission"], &perm)
	s.MaxMessageSize, s.BrokerPermission = int(size), int32(perm)
	if b, err := strconv.ParseBool(p["autoCreateTopicEnable"]); err == nil {
		s.AutoCreateTopic = b
	}
	return s
}

func number(text string, to *int64) {
	if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32); err == nil && n >= 0 {
		*to = n
	}
}

// followSettings asks every broker, each SettingsTTL and as soon as it appears; one that cannot be asked
// sooner.
func (v *View) followSettings(ctx context.Context) {
	for {
		v.askDue(ctx)
		select {
		case <-ctx.Done():
			return
		case <-v.settings.wake:
		case <-time.After(v.o.SettingsTTL / 20):
		}
	}
}

func (v *View) askDue(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(settingsAskers)
	for _, b := range v.Brokers() {
		e := v.settings.get(b.Addr)
		ttl := v.o.SettingsTTL
		if e.err != nil {
			ttl /= 10
		}
		if ctx.Err() != nil || (!e.askedAt.IsZero() && time.Since(e.askedAt) < ttl) {
			continue
		}
		g.Go(func() error {
			if err := v.refreshSettings(ctx, b); err != nil {
				v.o.Log.Debug("settings of a broker", "broker", b.Name, "addr", b.Addr, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait()
}
