package compat_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/raw"
)

// flood is a set of raw sends to one topic and what has come of them.
type flood struct {
	addr   string
	reader *raw.Reader
	topic  string
	queues int
	prefix string
	body   []byte
	// serialize is the form of the request headers.
	serialize codec.Serialize

	mu      sync.Mutex
	due     []int64 // by index; 0 = no delay
	levels  []int
	started []int64 // when it was sent first, ms
	acked   []bool
	stored  map[string][]int64 // store timestamps by UNIQ_KEY
}

// Whether a message may come more than once.
const (
	exactly = true
	atLeast = false
)

// add plans n messages due at a wall-clock ms, 0 for at once.
func (f *flood) add(due int64, n int) {
	for range n {
		f.due = append(f.due, due)
		f.levels = append(f.levels, 0)
		f.started = append(f.started, 0)
		f.acked = append(f.acked, false)
	}
}

// addLevel plans n messages with a delay level.
func (f *flood) addLevel(level, n int) {
	f.add(0, n)
	for i := len(f.levels) - n; i < len(f.levels); i++ {
		f.levels[i] = level
	}
}

func (f *flood) key(i int) string { return fmt.Sprintf("%s-%024d", f.prefix, i) }

// message returns the i-th send. Its due time does not change when it is sent again.
func (f *flood) message(i int) *raw.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started[i] == 0 {
		f.started[i] = time.Now().UnixMilli()
	}
	m := &raw.Message{Topic: f.topic, Queue: int32(i % f.queues), Body: f.body, Serialize: f.serialize}
	if m.Body == nil {
		m.Body = []byte("body of " + f.key(i))
	}
	m.Props.Set(codec.PropUniqKey, f.key(i))
	if f.due[i] != 0 {
		m.Props.Set("TIMER_DELIVER_MS", fmt.Sprint(f.due[i]))
	}
	if f.levels[i] != 0 {
		m.Props.Set("DELAY", fmt.Sprint(f.levels[i]))
	}
	return m
}

// open lists what has not been acknowledged.
func (f *flood) open() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var rest []int
	for i, ok := range f.acked {
		if !ok {
			rest = append(rest, i)
		}
	}
	return rest
}

// sendOpen sends what has not been acknowledged, on one connection, and calls each for every answer.
func (f *flood) sendOpen(ctx context.Context, window int, each func(acked int)) error {
	count := len(f.acked) - len(f.open())
	return raw.Flood(ctx, f.addr, f.open(), window, f.message, func(i int, _ *codec.Command) {
		f.mu.Lock()
		f.acked[i] = true
		f.mu.Unlock()
		count++
		if each != nil {
			each(count)
		}
	})
}

// send sends all that is open; nothing may be refused.
func (f *flood) send(t *testing.T, window int) {
	t.Helper()
	if err := f.sendOpen(t.Context(), window, nil); err != nil {
		t.Errorf("flood to %s: %v", f.topic, err)
	}
}

// await reads the topic until every acknowledged message is there.
func (f *flood) await(t *testing.T) {
	t.Helper()
	last := int64(0)
	for i := range f.due {
		last = max(last, f.dueOf(i))
	}
	wait := time.Until(time.UnixMilli(last))
	ctx, cancel := context.WithTimeout(t.Context(), max(wait, 0)+patience)
	defer cancel()
	err := f.reader.Until(ctx, func() bool { return f.missing() == 0 }, f.note)
	if err != nil {
		t.Fatalf("%s: %d of %d messages are missing: %v", f.topic, f.missing(), len(f.due), err)
	}
}

func (f *flood) note(m *codec.StoredMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stored == nil {
		f.stored = map[string][]int64{}
	}
	key := uniqKey(*m)
	f.stored[key] = append(f.stored[key], m.StoreTimestamp)
}

func (f *flood) missing() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for i, ok := range f.acked {
		if ok && len(f.stored[f.key(i)]) == 0 {
			n++
		}
	}
	return n
}

// dueOf is the earliest moment at which the i-th message may be stored: exact for a timer, counted from
// before the send for a level.
func (f *flood) dueOf(i int) int64 {
	switch {
	case f.levels[i] > 0:
		return f.started[i] + defaultLevels[f.levels[i]].Milliseconds()
	case f.due[i] > 0:
		return f.due[i]
	}
	return f.started[i]
}

var defaultLevels = map[int]time.Duration{1: time.Second, 2: 5 * time.Second, 3: 10 * time.Second, 4: 30 * time.Second}

// check fails for every message that came early, and for repeats where none may be.
func (f *flood) check(t *testing.T, once bool) {
	t.Helper()
	early, repeated, unacked := 0, 0, 0
	for i := range f.due {
		times := f.stored[f.key(i)]
		for _, at := range times {
			if at < f.dueOf(i) {
				early++
			}
		}
		if len(times) > 1 {
			repeated += len(times) - 1
		}
		if len(times) > 0 && !f.acked[i] {
			unacked++
		}
	}
	if early > 0 {
		t.Errorf("%s: %d messages were stored before they were due", f.topic, early)
	}
	if once && repeated > 0 {
		t.Errorf("%s: %d messages came more than once", f.topic, repeated)
	}
	t.Logf("%s: %d messages, %d repeats, %d stored without an acknowledgement", f.topic, len(f.due), repeated, unacked)
}

// spread is a distribution of lateness in ms.
type spread struct {
	n                   int
	p50, p99, p999, max int64
}

func (s spread) String() string {
	return fmt.Sprintf("n %d, p50 %d ms, p99 %d ms, p99.9 %d ms, max %d ms", s.n, s.p50, s.p99, s.p999, s.max)
}

// lateness is store time - due of the messages with a delay; for levels, due counts from before the send.
func (f *flood) lateness() spread {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []int64
	for i := range f.due {
		if f.due[i] == 0 && f.levels[i] == 0 {
			continue
		}
		if times := f.stored[f.key(i)]; len(times) > 0 {
			all = append(all, times[0]-f.dueOf(i))
		}
	}
	if len(all) == 0 {
		return spread{}
	}
	slices.Sort(all)
	at := func(q float64) int64 { return all[min(len(all)-1, int(q*float64(len(all))))] }
	return spread{n: len(all), p50: at(0.5), p99: at(0.99), p999: at(0.999), max: all[len(all)-1]}
}
