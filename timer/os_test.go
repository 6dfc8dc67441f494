package timer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// On the real file system, with 1 MiB segments and a horizon of 2 s: at least 50 seals, most deliveries out of runs, a restart in
// the middle; each entry exactly once, none early, in order per flow.
func TestManySealsOnDisk(t *testing.T) {
	o := DefaultOptions()
	o.Dir, o.SegmentBytes, o.Horizon, o.Window = t.TempDir(), 1<<20, 2*time.Second, 512
	start := time.Now().UnixMilli()
	var jump atomic.Int64 // the clock runs ahead by this
	o.Now = func() int64 { return time.Now().UnixMilli() + jump.Load() }
	const n, size = 60_000, 900
	x := &exactly{t: t, due: make([]int64, n), lsn: make([]LSN, n), fired: make([]bool, n), last: map[Flow]key{}, now: o.Now}
	s := mustOpen(t, o)
	x.s = s
	rng := rand.New(rand.NewPCG(5, 5))
	var wg sync.WaitGroup
	for i := range n {
		x.due[i] = start + 20_000 + rng.Int64N(160_000)
		e := &Entry{Flow: Flow{"b", fmt.Sprint("t", i%5)}, Due: x.due[i], Key: fmt.Sprint(i), Body: append(le.AppendUint32(nil, uint32(i)), body(i, size)...)}
		wg.Add(1)
		for {
			_, err := s.Put(e, func(err error) {
				if err != nil {
					t.Error(err)
				}
				wg.Done()
			})
			if err == nil {
				break
			}
			if err != ErrBusy {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	wg.Wait()
	deadline := time.After(60 * time.Second)
	seals := s.Stats().Seals
	mustClose(t, s)
	s = mustOpen(t, o)
	x.s = s
	if st := s.Stats(); st.Pending != n || st.Corrupt != 0 {
		t.Fatalf("after reopening: %+v", st)
	}
	s.Start(x.sink)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.Stats().Pending > 0 {
		select {
		case <-tick.C:
			jump.Add(200) // 40 times as fast, in small steps
		case <-deadline:
			t.Fatalf("not drained in time: %+v", s.Stats())
		}
	}
	st := s.Stats()
	mustClose(t, s)
	seals += st.Seals
	if seals < 50 || x.count != n || st.Corrupt != 0 {
		t.Fatalf("%d seals, %d fired, %+v", seals, x.count, st)
	}
	if x.fromRuns < n/2 {
		t.Fatalf("only %d of %d out of runs", x.fromRuns, n)
	}
	t.Logf("%d seals, %d of %d out of runs, %d bytes left", seals, x.fromRuns, n, st.DiskBytes)
}

// exactly is a sink that loads, checks and settles.
type exactly struct {
	t        *testing.T
	s        *Store
	now      func() int64
	due      []int64
	lsn      []LSN
	fired    []bool
	last     map[Flow]key
	count    int
	fromRuns int
}

func (x *exactly) sink(items []Item) {
	now := x.now()
	for _, it := range items {
		x.s.mu.Lock()
		if it.entry.home.run != nil {
			x.fromRuns++
		}
		x.s.mu.Unlock()
		b, err := x.s.Load(it)
		if err != nil {
			x.t.Error(err)
			continue
		}
		i := int(le.Uint32(b))
		k := key{it.Due, it.LSN}
		switch {
		case x.fired[i]:
			x.t.Errorf("%d fired twice", i)
		case it.Due != x.due[i] || it.Due > now:
			x.t.Errorf("%d due %d fired with due %d at %d", i, x.due[i], it.Due, now)
		case k.less(x.last[it.Flow]):
			x.t.Errorf("%d out of order", i)
		case !bytes.Equal(b[4:], body(i, len(b)-4)):
			x.t.Errorf("%d has another body", i)
		}
		x.fired[i], x.last[it.Flow] = true, k
		x.count++
		x.s.Settle(it)
	}
}

// A flow whose broker is away keeps its window and no more; others are not held up, and nothing is lost when it is back.
func TestStuckFlowStopsOnlyItself(t *testing.T) {
	r := newRig(t)
	const n = 300
	for i := range n {
		for _, topic := range []string{"stuck", "fine"} {
			if _, err := putWait(r.s, &Entry{Flow: Flow{"b", topic}, Due: rigNow + 500, Key: fmt.Sprint(i), Body: body(i, 300)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.s.Start(r.c.sink)
	r.clock.Store(rigNow + 100_000)
	var stuck []Item
	fine := 0
	for fine < n {
		for _, it := range r.c.wait(t) {
			if it.Flow.Topic == "stuck" {
				stuck = append(stuck, it)
				continue
			}
			fine++
			r.s.Settle(it)
		}
	}
	if len(stuck) > r.o.Window {
		t.Fatalf("%d of the stuck flow are out, its window is %d", len(stuck), r.o.Window)
	}
	if st := r.s.Stats(); st.Overdue < int64(r.o.Window) || st.Overdue > n || st.OldestOverdueMs != 99_500 {
		t.Fatalf("%+v", st)
	}
	checkInvariants(t, r.s)
	for done := 0; ; {
		for _, it := range stuck {
			r.s.Settle(it)
			done++
		}
		if done == n {
			break
		}
		stuck = r.c.wait(t)
	}
	r.wantPending(0)
}

func TestClockSteps(t *testing.T) {
	r := newRig(t)
	r.put(1, 1000, 10)
	r.put(1, 3_600_000, 10)
	r.s.Start(r.c.sink)
	r.clock.Store(rigNow + 1000)
	if n := len(r.c.wait(t)); n != 1 {
		t.Fatal(n)
	}
	r.clock.Store(rigNow - 500_000) // backwards: nothing fires again, nothing early
	time.Sleep(20 * time.Millisecond)
	if got := r.c.take(); len(got) != 0 {
		t.Fatalf("fired %v after a step back", got)
	}
	r.clock.Store(rigNow + 4_000_000) // forwards: what became due fires
	if n := len(r.c.wait(t)); n != 1 {
		t.Fatal(n)
	}
}
