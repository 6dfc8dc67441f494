package timer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

type cancelAnswer struct {
	out Outcome
	err error
}

// cancelWait cancels and waits for the answer.
func cancelWait(s *Store, due int64, lsn LSN) (Outcome, error) {
	done := make(chan cancelAnswer, 1)
	s.Cancel(due, lsn, func(out Outcome, err error) { done <- cancelAnswer{out, err} })
	a := <-done
	return a.out, a.err
}

func (r *rig) wantCancel(in int64, lsn LSN, want Outcome) {
	r.t.Helper()
	if out, err := cancelWait(r.s, rigNow+in, lsn); out != want || err != nil {
		r.t.Fatalf("cancel lsn %d due in %d ms: %v, %v; want %v", lsn, in, out, err, want)
	}
}

// sealAll puts more, due in ms, until everything that was put before is in runs.
func (r *rig) sealAll(in int64) {
	r.t.Helper()
	open := r.segments()
	r.until("everything sealed", func() bool {
		r.put(1, in, 3000)
		for _, id := range r.segments() {
			for _, old := range open {
				if id == old {
					return false
				}
			}
		}
		return true
	})
}

func (r *rig) segments() (ids []uint64) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, g := range r.s.segs {
		ids = append(ids, g.id)
	}
	return ids
}

// fireSome starts firing and returns the first n entries that fire.
func (r *rig) fireSome(n int) (items []Item) {
	r.t.Helper()
	r.s.Start(r.c.sink)
	for len(items) < n {
		items = append(items, r.c.wait(r.t)...)
	}
	return items
}

// The four answers of Cancel wherever an entry may be, and after a power loss.
func TestCancelAnswers(t *testing.T) {
	const near, far = 1500, 50_000 // the horizon is 2000
	for _, c := range []struct {
		name   string
		in     int64
		sealed bool
	}{
		{"segment, in the wheel", near, false},
		{"segment, far", far, false},
		{"run, in the wheel", near, true},
		{"run, on disk only", far, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			lsns := r.put(6, c.in, 100)
			if c.sealed {
				r.sealAll(80_000)
			}
			pending := r.s.Stats().Pending
			for n, lsn := range lsns[:3] {
				r.wantCancel(c.in, lsn, Cancelled)
				r.wantPending(pending - int64(n) - 1)
				checkInvariants(t, r.s)
			}
			r.wantCancel(c.in, lsns[0], CancelledBefore)
			r.wantCancel(c.in, r.s.Stats().LastLSN+1000, Unknown)
			r.wantCancel(c.in, 0, Unknown)
			if n := r.s.Stats().Cancelled; n != 3 {
				t.Fatalf("%d cancelled, want 3", n)
			}
			r.kill(true)
			r.wantPending(pending - 3)
			checkInvariants(t, r.s)
			r.wantCancel(c.in, lsns[1], CancelledBefore)

			r.clock.Store(rigNow + c.in)
			items := r.fireSome(3)
			for i, it := range items {
				if it.LSN != lsns[3+i] {
					t.Fatalf("fired %+v, want lsn %d", it, lsns[3+i])
				}
				r.wantCancel(c.in, it.LSN, Fired)
			}
			r.s.Settle(items[0])
			r.wantCancel(c.in, items[0].LSN, Fired)
			if c.sealed {
				r.wantCancel(c.in, lsns[1], CancelledBefore)
			}
			if n := r.s.Stats().Cancelled; n != 0 {
				t.Fatalf("%d cancelled since Open, want 0", n)
			}
			checkInvariants(t, r.s)
			r.wantCorrupt(false)
		})
	}
}

// What was sealed away, or dropped with its run, is told apart by its due time.
func TestCancelOfWhatIsGone(t *testing.T) {
	const in = 50_000
	r := newRig(t)
	inLog := r.put(2, in, 100)
	r.wantCancel(in, inLog[0], Cancelled)
	r.wantCancel(in, inLog[1], Cancelled)
	r.sealAll(in)
	inRun := r.put(3, in, 100)
	r.sealAll(in)
	for lsn := inLog[0]; lsn <= inRun[0]+100; lsn++ {
		if _, err := cancelWait(r.s, rigNow+in, lsn); err != nil {
			t.Fatal(err)
		}
	}
	r.wantPending(0)
	r.until("the runs are dropped", func() bool { return r.s.Stats().Runs == 0 })
	r.kill(true)
	for _, lsn := range []LSN{inLog[0], inRun[0]} {
		r.wantCancel(in, lsn, CancelledBefore)
	}
	r.clock.Store(rigNow + in)
	for _, lsn := range []LSN{inLog[0], inRun[0]} {
		r.wantCancel(in, lsn, Fired) // nothing tells them from delivered ones any more
	}
	r.s.due(r.clock.Load())
	r.clock.Store(rigNow)
	r.wantCancel(in, inRun[1], Fired) // the clock went back, which does not prove that it was not delivered
	r.wantCancel(in, r.s.Stats().LastLSN+1, Unknown)
}

// A segment that is sealed while an entry in it is cancelled.
func TestCancelDuringSeal(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			r := newRig(t)
			block, blocked := make(chan struct{}), make(chan struct{})
			var once sync.Once
			r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
				if op == vfs.OpSync && len(path) > 10 && path[:10] == "/data/run-" {
					once.Do(func() { close(blocked) })
					<-block
				}
				return nil
			})
			lsns := r.put(3, 50_000, 100)
			for r.s.Stats().Segments == 1 { // a second segment that gets full waits for the seal
				r.put(1, 60_000, 3000)
			}
			<-blocked
			pending := r.s.Stats().Pending
			r.wantCancel(50_000, lsns[1], Cancelled)
			if crash {
				r.mem.Kill()
				close(block)
				r.kill(true)
			} else {
				close(block)
				r.until("sealed", func() bool { return r.s.Stats().Seals > 0 })
				r.s.mu.Lock()
				if run := r.s.runs[0]; run.cancels != 1 || !run.isCancelled(1) || run.pending != run.entries-1 {
					t.Errorf("run has %d of %d pending, %d cancelled", run.pending, run.entries, run.cancels)
				}
				r.s.mu.Unlock()
				r.wantCancel(50_000, lsns[1], CancelledBefore)
				r.kill(true)
			}
			r.wantPending(pending - 1)
			r.wantCancel(50_000, lsns[1], CancelledBefore)
			for _, it := range r.fireAll(true) {
				if it.LSN == lsns[1] {
					t.Fatalf("fired %+v, which was cancelled", it)
				}
			}
		})
	}
}

// Cancelled puts are not written into a run.
func TestSealLeavesOutCancelledPuts(t *testing.T) {
	r := newRig(t)
	lsns := r.put(12, 50_000, 1000)
	for _, lsn := range lsns[:11] {
		r.wantCancel(50_000, lsn, Cancelled)
	}
	r.sealAll(80_000)
	r.s.mu.Lock()
	run := r.s.runs[0]
	r.s.mu.Unlock()
	for i, lsn := range lsns {
		if _, _, ok, err := run.find(key{rigNow + 50_000, lsn}); ok != (i == 11) || err != nil {
			t.Errorf("put %d is in the run: %v, %v", i, ok, err)
		}
	}
	if run.pending != run.entries {
		t.Errorf("%d of %d are pending", run.pending, run.entries)
	}
}

// Neither the first answer nor the one to a second cancel comes before the record is durable.
func TestCancelIsAnsweredWhenDurable(t *testing.T) {
	r := newRig(t)
	lsn := r.put(1, 5000, 100)[0]
	open := r.segment().path
	block, blocked := make(chan struct{}), make(chan struct{}, 1)
	unblock := sync.OnceFunc(func() { close(block) })
	t.Cleanup(unblock)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpSync && path == open {
			poke(blocked)
			<-block
		}
		return nil
	})
	answers := make(chan cancelAnswer, 2)
	answer := func(out Outcome, err error) { answers <- cancelAnswer{out, err} }
	r.s.Cancel(rigNow+5000, lsn, answer)
	<-blocked
	r.s.Cancel(rigNow+5000, lsn, answer)
	select {
	case a := <-answers:
		t.Fatalf("answered %+v before the sync", a)
	default:
	}
	lost := r.mem.AfterPowerLoss(nil, 0)
	unblock()
	for _, want := range []Outcome{Cancelled, CancelledBefore} {
		if a := <-answers; a.out != want || a.err != nil {
			t.Fatalf("%+v, want %v", a, want)
		}
	}
	r.kill(true)
	r.wantPending(0)
	r.s.Close()
	r.mem = lost
	r.open()
	r.wantPending(1) // nobody was told that it is cancelled
}

// A cancel that fails may hold; asking again gives an answer that holds.
func TestCancelOnFailingDisk(t *testing.T) {
	r := newRig(t)
	lsns := r.put(2, 5000, 100)
	r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if op == vfs.OpSync {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	if out, err := cancelWait(r.s, rigNow+5000, lsns[0]); out != 0 || !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v, %v", out, err)
	}
	for range 2 { // refused at once: the log has stopped
		for _, lsn := range lsns {
			if out, err := cancelWait(r.s, rigNow+5000, lsn); out != 0 || !errors.Is(err, ErrFailed) {
				t.Fatalf("%v, %v", out, err)
			}
		}
	}
	r.wantPending(1) // the second was not touched
	r.fs.Set(nil)
	var out Outcome
	r.until("cancels again", func() (ok bool) {
		var err error
		out, err = cancelWait(r.s, rigNow+5000, lsns[0])
		return err == nil
	})
	if out != CancelledBefore {
		t.Fatal(out)
	}
	r.kill(true)
	r.wantPending(1)
	r.wantCancel(5000, lsns[0], CancelledBefore)
	if items := r.fireAll(true); len(items) != 1 || items[0].LSN != lsns[1] {
		t.Fatalf("%+v", items)
	}
}

func TestCancelOfClosedStore(t *testing.T) {
	r := newRig(t)
	lsn := r.put(1, 5000, 100)[0]
	mustClose(t, r.s)
	if out, err := cancelWait(r.s, rigNow+5000, lsn); out != 0 || !errors.Is(err, ErrClosed) {
		t.Fatalf("%v, %v", out, err)
	}
}

// A damaged index page is built anew; if an entry is lost with it there is no answer rather than a wrong one.
func TestCancelInDamagedRun(t *testing.T) {
	r := newRig(t)
	lsns := r.put(2, 50_000, 100)
	r.sealAll(80_000)
	r.s.mu.Lock()
	run := r.s.runs[0]
	r.s.mu.Unlock()
	r.flip(fileName(runPrefix, run.id), segHeadBytes+50)
	r.flip(fileName(runPrefix, run.id), run.indexOff+pageHead)
	if out, err := cancelWait(r.s, rigNow+50_000, lsns[0]); out != 0 || !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v, %v", out, err)
	}
	r.wantCancel(50_000, lsns[1], Cancelled)
}

// Cancels, puts, firing, seals and loads all at once: each entry is either fired, once, or cancelled, once.
func TestCancelRacesFiring(t *testing.T) {
	const workers, each = 4, 500
	o := testOptions(vfs.NewMem(), nil)
	o.Window, o.loadBatch, o.Horizon = 3, 5, 20*time.Millisecond
	s := mustOpen(t, o)
	defer mustClose(t, s)
	var fired, cancelled, twice atomic.Int64
	var seen sync.Map // by LSN
	end := func(lsn LSN, n *atomic.Int64) {
		if _, again := seen.LoadOrStore(lsn, true); again {
			twice.Add(1)
		}
		n.Add(1)
	}
	work := make(chan Item, workers*each)
	var settling, wg sync.WaitGroup
	settling.Go(func() {
		for it := range work {
			s.Settle(it)
		}
	})
	s.Start(func(items []Item) {
		for _, it := range items {
			end(it.LSN, &fired)
			work <- it
		}
	})
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			type put struct {
				due int64
				lsn LSN
			}
			var puts []put
			for i := range each {
				e := &Entry{Flow: Flow{"b", fmt.Sprint(i % 3)}, Due: o.Now() + rng.Int64N(120), Body: body(i, rng.IntN(500))}
				lsn, err := putWait(s, e)
				if err != nil {
					t.Error(err)
					continue
				}
				puts = append(puts, put{e.Due, lsn})
				p := puts[rng.IntN(len(puts))]
				out, err := cancelWait(s, p.due, p.lsn)
				if err != nil || out == Unknown {
					t.Errorf("cancel: %v, %v", out, err)
				}
				if out == Cancelled {
					end(p.lsn, &cancelled)
				}
				_, known := seen.Load(p.lsn)
				if (out == Fired || out == CancelledBefore) && !known && p.due > o.Now() {
					t.Errorf("lsn %d due %d: %v, but it neither fired nor was cancelled", p.lsn, p.due, out)
				}
			}
		})
	}
	wg.Wait()
	for end := time.Now().Add(20 * time.Second); s.Stats().Pending > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	checkInvariants(t, s)
	if n := fired.Load() + cancelled.Load(); n != workers*each || twice.Load() != 0 || fired.Load() == 0 || cancelled.Load() == 0 {
		t.Errorf("%d fired, %d cancelled, %d more than once, want %d in all", fired.Load(), cancelled.Load(), twice.Load(), workers*each)
	}
	if st := s.Stats(); st.Cancelled != cancelled.Load() || st.Seals < 10 {
		t.Errorf("%+v", st)
	}
	close(work)
	settling.Wait()
}
