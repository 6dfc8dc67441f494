package compat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/proxy"
	"github.com/delaygate/delaygate/compat_test/raw"
)

// killRounds is how often the proxy is killed, unless DELAYGATE_KILL_ROUNDS says otherwise.
const killRounds = 5

// Killed at random moments while messages come in, become due and are delivered, again and again on one folder:
// everything acknowledged arrives, nothing early, and each kill repeats at most one message of each lane (queue):
// the one whose answer was on its way, or was not yet written down.
func TestKillsRepeatAtMostOneMessageOfEachLane(t *testing.T) {
	t.Parallel()
	rounds := killRounds
	if s := os.Getenv("DELAYGATE_KILL_ROUNDS"); s != "" {
		rounds = must(strconv.Atoi(s))(t)
	}
	p := must(suite.startProxy("5.5.0", "kill-rounds", "DELAYGATE_STORE_SEGMENT_BYTES=1048576"))(t)
	l := newKillLoad(t, p)
	ctx, stop := context.WithCancel(t.Context())
	var sender, reader sync.WaitGroup
	sender.Go(func() { l.send(ctx, t) })
	reading, stopReading := context.WithCancel(t.Context())
	reader.Go(func() { _ = l.reader.Until(reading, func() bool { return false }, l.note) })
	defer reader.Wait()
	defer stopReading()
	defer sender.Wait()
	defer stop()
	for range rounds {
		l.flows(t, p)
		time.Sleep(rand.N(700 * time.Millisecond))
		p.Kill()
		comeBack(t, p)
	}
	l.flows(t, p)
	stop()
	sender.Wait()
	for give := time.Now().Add(patience); l.missing() > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(give) {
			t.Fatalf("%d of %d acknowledged messages are missing; the proxy's log:\n%s", l.missing(), l.acked, p.Log())
		}
	}
	l.check(t, rounds)
}

const (
	killQueues  = 16
	killBurst   = 400  // messages of one connection
	killBacklog = 4000 // acknowledged and not delivered
)

// killLoad sends messages that are soon due, each under a key of its own, and notes what arrives. A message whose
// outcome is unknown is not sent again and does not count.
type killLoad struct {
	addr   string
	topic  string
	reader *raw.Reader

	mu       sync.Mutex
	messages []killMessage
	acked    int
	arrived  int // acknowledged ones, once each
	repeats  [killQueues]int
	early    int
}

type killMessage struct {
	due    int64
	acked  bool
	copies int
}

func newKillLoad(t *testing.T, p *proxy.Proxy) *killLoad {
	t.Helper()
	c := must(suite.clusters["5.5.0"]())(t)
	l := &killLoad{topic: "kill-rounds"}
	if err := createTopic(t.Context(), c, brokerA, l.topic, killQueues); err != nil {
		t.Fatal(err)
	}
	l.addr = must(raw.MasterAddr(t.Context(), p.NameServer, brokerA))(t)
	l.reader = raw.NewReader(c.Broker(brokerA).Addr, l.topic, killQueues)
	t.Cleanup(l.reader.Close)
	return l
}

// send sends until ctx ends; a broken connection is what kills leave.
func (l *killLoad) send(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		if l.backlog() > killBacklog {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		err := raw.Flood(ctx, l.addr, l.plan(), killBurst, l.message, l.ack)
		var refused *raw.ReplyError
		if errors.As(err, &refused) {
			t.Errorf("a send was refused: %v", err)
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// plan adds messages that are due within two seconds.
func (l *killLoad) plan() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now().UnixMilli()
	var indexes []int
	for range killBurst {
		indexes = append(indexes, len(l.messages))
		l.messages = append(l.messages, killMessage{due: now + 50 + rand.Int64N(2000)})
	}
	return indexes
}

func (l *killLoad) message(i int) *raw.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &raw.Message{Topic: l.topic, Queue: int32(i % killQueues), Body: make([]byte, 200)}
	m.Props.Set(codec.PropUniqKey, fmt.Sprintf("KR%030d", i))
	m.Props.Set("TIMER_DELIVER_MS", fmt.Sprint(l.messages[i].due))
	return m
}

func (l *killLoad) ack(i int, _ *codec.Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.messages[i]
	m.acked = true
	l.acked++
	if m.copies > 0 {
		l.arrived++
	}
}

func (l *killLoad) note(s *codec.StoredMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := strconv.Atoi(strings.TrimPrefix(uniqKey(*s), "KR"))
	if err != nil || i >= len(l.messages) {
		return
	}
	m := &l.messages[i]
	if s.StoreTimestamp < m.due {
		l.early++
	}
	m.copies++
	switch {
	case m.copies > 1:
		l.repeats[i%killQueues]++
	case m.acked:
		l.arrived++
	}
}

func (l *killLoad) backlog() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked - l.arrived
}

func (l *killLoad) missing() int { return l.backlog() }

// flows waits until messages are accepted and delivered.
func (l *killLoad) flows(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	l.mu.Lock()
	acked, arrived := l.acked, l.arrived
	l.mu.Unlock()
	for give := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		ok := l.acked > acked+killBurst && l.arrived > arrived+killBurst
		l.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(give) || t.Failed() {
			t.Fatalf("nothing flows any more: %d accepted, %d delivered; the proxy's log:\n%s", l.acked, l.arrived, p.Log())
		}
	}
}

func (l *killLoad) check(t *testing.T, rounds int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := 0
	for q, n := range l.repeats {
		all += n
		if n > rounds {
			t.Errorf("queue %d has %d repeats after %d kills", q, n, rounds)
		}
	}
	if l.early > 0 {
		t.Errorf("%d messages were stored before they were due", l.early)
	}
	t.Logf("%d kills: %d messages sent, %d acknowledged, all delivered, %d repeats of at most %d", rounds, len(l.messages), l.acked, all, rounds*killQueues)
}
