package timer

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// Producers, firing, settling, sealing and loading all at once, with tiny windows, segments and batches: every entry fires
// exactly once, and none early.
func TestEverythingAtOnce(t *testing.T) {
	for _, window := range []int{1, 3, 16} {
		for _, batch := range []int{1, 5} {
			t.Run(fmt.Sprintf("window %d batch %d", window, batch), func(t *testing.T) { everythingAtOnce(t, window, batch) })
		}
	}
}

func everythingAtOnce(t *testing.T, window, batch int) {
	const producers, each = 4, 400
	o := testOptions(vfs.NewMem(), nil)
	o.Window, o.loadBatch, o.Horizon = window, batch, 20*time.Millisecond
	s := mustOpen(t, o)
	defer mustClose(t, s)
	var (
		mu    sync.Mutex
		fired = map[LSN]bool{}
		work  = make(chan Item, 4*window)
		wg    sync.WaitGroup
		left  atomic.Int64
	)
	left.Store(producers * each)
	done := make(chan struct{})
	for w := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for it := range work {
				if _, err := s.Load(it); err != nil {
					t.Error(err)
				}
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
				}
				s.Settle(it)
				if left.Add(-1) == 0 {
					close(done)
				}
			}
		}()
	}
	s.Start(func(items []Item) {
		now := o.Now()
		for _, it := range items {
			if it.Due > now {
				t.Errorf("early: %+v at %d", it, now)
			}
			mu.Lock()
			if fired[it.LSN] {
				t.Errorf("twice: %+v", it)
			}
			fired[it.LSN] = true
			mu.Unlock()
			work <- it // has room for every window
		}
	})
	var puts sync.WaitGroup
	for p := range producers {
		puts.Add(1)
		go func() {
			defer puts.Done()
			rng := rand.New(rand.NewPCG(uint64(p), 3))
			for i := range each {
				e := &Entry{Flow: Flow{"b", fmt.Sprint(i % 4)}, Due: o.Now() - 50 + rng.Int64N(300), Key: "k", Body: body(i, rng.IntN(600))}
				answer := func(err error) {
					if err != nil {
						t.Error(err)
					}
				}
				for _, err := s.Put(e, answer); err != nil; _, err = s.Put(e, answer) {
					time.Sleep(100 * time.Microsecond)
				}
				if rng.IntN(8) == 0 {
					time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
				}
			}
		}()
	}
	puts.Wait()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Errorf("%d did not fire: %+v", left.Load(), s.Stats())
	}
	checkInvariants(t, s)
	close(work)
	wg.Wait()
	if st := s.Stats(); st.Pending != 0 || st.Seals < 20 {
		t.Errorf("%+v", st)
	}
}
