package timer

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delaygate/delaygate/timer/vfs"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		victim(dir)
	}
	goleak.VerifyTestMain(m)
}

// testOptions are small: 16 KiB segments, a window of 4, a horizon of 2 s.
func testOptions(fs vfs.FS, clock *atomic.Int64) Options {
	o := DefaultOptions()
	o.Dir, o.FS = "/data", fs
	if clock != nil {
		o.Now = clock.Load
	}
	o.SegmentBytes, o.Window, o.Horizon = minSegmentBytes, 4, 2*time.Second
	o.poll, o.backoff, o.spacePoll, o.manifestBytes = time.Millisecond, time.Millisecond, time.Millisecond, 2048
	o.scanBatch, o.scanLines, o.importWindow = 7, 300, 40
	if os.Getenv("TIMER_LOG") != "" {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return o
}

func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// putWait puts and waits for the answer.
func putWait(s *Store, e *Entry) (LSN, error) {
	done := make(chan error, 1)
	lsn, err := s.Put(e, func(err error) { done <- err })
	if err != nil {
		return 0, err
	}
	return lsn, <-done
}

func body(n int, size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// collector is a sink that remembers.
type collector struct {
	mu    sync.Mutex
	items []Item
	more  chan struct{}
}

func newCollector() *collector { return &collector{more: make(chan struct{}, 1)} }

func (c *collector) sink(items []Item) {
	c.mu.Lock()
	c.items = append(c.items, items...)
	c.mu.Unlock()
	poke(c.more)
}

func (c *collector) take() []Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	items := c.items
	c.items = nil
	return items
}

// wait returns what was fired, waiting until there is something.
func (c *collector) wait(t testing.TB) []Item {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if items := c.take(); len(items) > 0 {
			return items
		}
		select {
		case <-c.more:
		case <-deadline:
			t.Fatal("nothing fired within 20 s")
		}
	}
}

func TestPutFireLoadSettle(t *testing.T) {
	var clock atomic.Int64
	clock.Store(1_000_000)
	s := mustOpen(t, testOptions(vfs.NewMem(), &clock))
	defer mustClose(t, s)
	c := newCollector()
	s.Start(c.sink)
	e := &Entry{Flow: Flow{"b", "t"}, Lane: 3, Due: 1_000_500, Key: "k", Body: []byte("hello")}
	lsn, err := putWait(s, e)
	if err != nil {
		t.Fatal(err)
	}
	clock.Store(1_000_499)
	time.Sleep(20 * time.Millisecond)
	if got := c.take(); len(got) != 0 {
		t.Fatalf("fired early: %v", got)
	}
	clock.Store(1_000_500)
	got := c.wait(t)
	if len(got) != 1 || got[0].LSN != lsn || got[0].Lane != 3 || got[0].Flow != e.Flow || got[0].Due != e.Due {
		t.Fatalf("fired %+v", got)
	}
	if b, err := s.Load(got[0]); err != nil || string(b) != "hello" {
		t.Fatalf("Load = %q, %v", b, err)
	}
	if st := s.Stats(); st.Pending != 1 || st.Overdue != 1 || st.LastLSN != lsn {
		t.Fatalf("stats %+v", st)
	}
	s.Settle(got[0])
	s.Settle(got[0])
	if st := s.Stats(); st.Pending != 0 || st.Overdue != 0 {
		t.Fatalf("stats %+v", st)
	}
	if _, err := s.Load(got[0]); err != ErrSettled {
		t.Fatalf("Load after Settle: %v", err)
	}
}

// Many entries through tiny segments and a tiny window: all fire once, in order, mostly out of runs.
func TestFireThroughSeals(t *testing.T) {
	var clock atomic.Int64
	clock.Store(1_000_000)
	s := mustOpen(t, testOptions(vfs.NewMem(), &clock))
	defer mustClose(t, s)
	c := newCollector()
	s.Start(c.sink)
	const n = 2000
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[LSN]*Entry{}
	for i := range n {
		e := &Entry{
			Flow: Flow{"b", fmt.Sprint("t", i%3)}, Due: 1_000_000 + rng.Int64N(60_000), Key: fmt.Sprint(i), Body: body(i, rng.IntN(300)),
		}
		lsn, err := putWait(s, e)
		if err != nil {
			t.Fatal(err)
		}
		want[lsn] = e
	}
	last := map[Flow]key{}
	clock.Store(1_060_000)
	for len(want) > 0 {
		for _, it := range c.wait(t) {
			e := want[it.LSN]
			if e == nil {
				t.Fatalf("fired twice: %+v", it)
			}
			delete(want, it.LSN)
			if k := (key{it.Due, it.LSN}); k.less(last[it.Flow]) && it.Due > 1_000_000 {
				t.Fatalf("order: %v after %v", k, last[it.Flow])
			} else {
				last[it.Flow] = k
			}
			b, err := s.Load(it)
			if err != nil || string(b) != string(e.Body) {
				t.Fatalf("Load: %v", err)
			}
			s.Settle(it)
		}
	}
	st := s.Stats()
	if st.Pending != 0 || st.Seals < 30 || st.Corrupt != 0 {
		t.Fatalf("stats %+v", st)
	}
	t.Logf("%+v", st)
}
