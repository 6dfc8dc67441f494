package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/delaygate/delaygate/levels"
)

// Validate reports the first setting that cannot work, with its key and what is allowed.
func (c *Config) Validate() error {
	if err := hostPort("listen", c.Listen, "127.0.0.1:9876"); err != nil {
		return err
	}
	if err := hostPort("admin", c.Admin, "127.0.0.1:9880"); err != nil {
		return err
	}
	for _, a := range c.NameServers() {
		if err := hostPort("upstream", a, "10.0.0.1:9876"); err != nil {
			return err
		}
	}
	if c.Data == "" {
		return errors.New("data: name the folder that keeps pending messages")
	}
	if _, _, err := c.PortRange(); err != nil {
		return err
	}
	if _, err := c.PortMap(); err != nil {
		return err
	}
	if err := c.Hold.validate(); err != nil {
		return err
	}
	if err := c.Store.validate(); err != nil {
		return err
	}
	return c.Log.validate()
}

func (h Hold) validate() error {
	if h.MaxDelay < time.Second || h.MaxDelay > 3650*24*time.Hour {
		return fmt.Errorf("hold.max_delay: %s is outside 1s to 87600h", h.MaxDelay)
	}
	if _, err := levels.Parse(h.Levels); err != nil {
		return fmt.Errorf("hold.levels: %w", err)
	}
	return nil
}

func (s Store) validate() error {
	if s.Sync != "always" && s.Sync != "interval" {
		return fmt.Errorf("store.sync: %q is neither always nor interval", s.Sync)
	}
	if s.SyncEvery < time.Millisecond || s.SyncEvery > time.Minute {
		return fmt.Errorf("store.sync_every: %s is outside 1ms to 1m", s.SyncEvery)
	}
	if s.SegmentBytes < 1<<20 || s.SegmentBytes > 1<<30 {
		return fmt.Errorf("store.segment_bytes: %d is outside %d to %d", s.SegmentBytes, 1<<20, 1<<30)
	}
	if s.Horizon < time.Second || s.Horizon > 10*time.Minute {
		return fmt.Errorf("store.horizon: %s is outside 1s to 10m", s.Horizon)
	}
	if s.MinFree < 0 {
		return fmt.Errorf("store.min_free: %d is negative; 0 leaves what the store needs for itself", s.MinFree)
	}
	if s.FarFree < 0 {
		return fmt.Errorf("store.far_free: %d is negative; 0 leaves four segments above store.min_free", s.FarFree)
	}
	if s.FarAfter < time.Second || s.FarAfter > 3650*24*time.Hour {
		return fmt.Errorf("store.far_after: %s is outside 1s to 87600h", s.FarAfter)
	}
	return nil
}

func (l Log) validate() error {
	switch l.Level {
	case "debug", "info", "warn", "error":
	default:
		return fmt.Errorf("log.level: %q is none of debug, info, warn, error", l.Level)
	}
	if l.Format != "text" && l.Format != "json" {
		return fmt.Errorf("log.format: %q is neither text nor json", l.Format)
	}
	return nil
}

// NameServers returns the upstream addresses in the order given.
func (c *Config) NameServers() []string {
	return strings.FieldsFunc(c.Upstream, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
}

// PortRange returns the first and the last port of broker_ports.
func (c *Config) PortRange() (first, last int, err error) {
	a, b, ok := strings.Cut(c.BrokerPorts, "-")
	first, errA := strconv.Atoi(strings.TrimSpace(a))
	last, errB := strconv.Atoi(strings.TrimSpace(b))
	if !ok || errA != nil || errB != nil || first < 3 || last > 65535 || first > last {
		return 0, 0, fmt.Errorf("broker_ports: %q is not FIRST-LAST with 3 <= FIRST <= LAST <= 65535, for example 20000-29990", c.BrokerPorts)
	}
	return first, last, nil
}

// PortMap returns advertise.ports as a map from listener port to the port that clients use.
func (c *Config) PortMap() (map[int]int, error) {
	m := map[int]int{}
	for pair := range strings.SplitSeq(c.Advertise.Ports, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		from, to, ok := strings.Cut(pair, ":")
		f, errF := strconv.ParseUint(from, 10, 16)
		t, errT := strconv.ParseUint(to, 10, 16)
		if !ok || errF != nil || errT != nil || f == 0 || t == 0 {
			return nil, fmt.Errorf("advertise.ports: %q is not LISTENED:ADVERTISED, for example 20000:30000", pair)
		}
		m[int(f)] = int(t)
	}
	return m, nil
}

func hostPort(key, v, example string) error {
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s: %q is not HOST:PORT, for example %s", key, v, example)
	}
	return nil
}
