package delivery_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delaygate/delaygate/internal/delivery"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/timer"
)

func TestLaneIsServedInOrderWithOneUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(nil)
		r := newRig(t, net, nil)
		due := now()
		r.Fire([]timer.Item{item("a", "T", 3, due, 5), item("a", "T", 3, due, 6), item("a", "T", 3, due-10, 9), item("a", "T", 3, due, 2)})
		sleep(time.Second)
		r.wantSettled(t, 9, 2, 5, 6)
		for _, s := range net.sent() {
			if s.waiting != 1 || s.queue != "3" || s.addr != "addr-of-a" {
				t.Errorf("%+v", s)
			}
			if v, _ := s.cmd.Fields.Get("zz"); v != "kept" {
				t.Error("unknown fields were lost")
			}
		}
	})
}

func TestLanesRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(sent) verdict { return verdict{after: 100 * time.Millisecond} })
		r := newRig(t, net, nil)
		for lane := range uint16(10) {
			r.Fire(items("a", "T", lane, 10*int(lane), 3))
		}
		sleep(301 * time.Millisecond)
		r.wantAllSettledOnce(t, 30)
	})
}

func TestLaneWaitsUntilItsSettleIsWritten(t *testing.T) {
	const slow, stuck = 300 * time.Millisecond, time.Hour
	for _, c := range []struct {
		name    string
		written time.Duration
		next    time.Duration // when the second message goes out, after the answer to the first
	}{
		{"written soon", slow, slow},
		{"disk held up", stuck, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNet(nil) // answers after 1 ms
				r := newRig(t, net, nil)
				late := make(chan *time.Timer, 2)
				r.store.hold = func(_ timer.Item, written func()) { late <- time.AfterFunc(c.written, written) }
				start := time.Now()
				r.Fire(items("a", "T", 0, 1, 2))
				sleep(time.Minute)
				all := net.sent()
				if len(all) != 2 {
					t.Fatalf("%d sent", len(all))
				}
				if d := all[1].at.Sub(start); d != time.Millisecond+c.next {
					t.Errorf("the second was sent after %v", d)
				}
				if st := r.Stats(); st.Delivered != 2 || st.InFlight != 0 {
					t.Errorf("%+v", st)
				}
				for range 2 { // written at last: nothing happens twice
					(<-late).Reset(0)
				}
				sleep(time.Second)
				if st := r.Stats(); st.Delivered != 2 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// failing draws every kind of transient failure.
func failing(rnd *rand.Rand) verdict {
	switch rnd.IntN(12) {
	case 0:
		return verdict{code: 2, remark: "busy"}
	case 1:
		return verdict{code: 14}
	case 2:
		return verdict{code: 1500}
	case 3:
		return verdict{never: true}
	case 4:
		return verdict{err: fmt.Errorf("%w: reset", upstream.ErrUnknownOutcome)}
	case 5:
		return verdict{err: errDown}
	case 6:
		return verdict{err: fmt.Errorf("%w: %w", upstream.ErrNotSent, upstream.ErrQueueFull)}
	default:
		return verdict{code: []int32{0, 0, 10, 11, 12}[rnd.IntN(5)], after: time.Duration(1+rnd.IntN(5)) * time.Millisecond}
	}
}

func TestOrderSurvivesRandomFailures(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd, faults := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
			stored := map[string]int{} // lane -> last LSN that its broker stored
			net := newNet(nil)
			net.answer = func(s sent) verdict {
				lane := s.addr + s.topic + s.queue
				lsn, _ := strconv.Atoi(s.lsn)
				if s.waiting != 1 {
					t.Errorf("seed %d: %d unanswered in %s", seed, s.waiting, lane)
				}
				if last := stored[lane]; last > lsn {
					t.Errorf("seed %d: %d was sent after %d was stored", seed, lsn, last)
				}
				v := failing(faults)
				if v.err == nil && !v.never && (v.code == 0 || 10 <= v.code && v.code <= 12) {
					stored[lane] = lsn
				}
				return v
			}
			r := newRig(t, net, nil)
			lsn := 0
			for range 30 {
				var batch []timer.Item
				for range 10 {
					lsn++
					batch = append(batch, item(fmt.Sprint("b", rnd.IntN(2)), fmt.Sprint("T", rnd.IntN(3)), uint16(rnd.IntN(3)), now(), lsn))
				}
				r.Fire(batch)
				sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
			}
			sleep(time.Hour)
			r.wantAllSettledOnce(t, lsn)
			if s := r.Stats(); s.Delivered != int64(lsn) || s.Waiting+s.InFlight+s.Kept != 0 || s.Retried == 0 || len(s.Down) != 0 {
				t.Errorf("seed %d: %+v", seed, s)
			}
		})
	}
}

func TestNeverEarlyWhenTheClockSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		net := newNet(nil)
		net.answer = func(s sent) verdict {
			lsn, _ := strconv.ParseInt(s.lsn, 10, 64)
			if w := r.clock.Now(); w < lsn {
				t.Errorf("%d was sent at %d", lsn, w)
			}
			return verdict{}
		}
		r = newRig(t, net, nil)
		r.clock.shift(-now()) // so that LSNs can be due times
		at := r.clock.Now() + 1000
		r.clock.shift(60_000) // it jumps forward, and fires what is due in a minute
		var all []timer.Item
		for i := range 60 {
			due := at + int64(i)*1000
			all = append(all, item("a", "T", uint16(i%4), due, int(due)))
		}
		r.clock.shift(-60_000) // and back, before anything is sent
		r.Fire(all)
		sleep(3500 * time.Millisecond)
		if n := len(net.sent()); n < 1 || n > 4 {
			t.Errorf("%d sent in the first 3.5 s", n)
		}
		r.clock.shift(-5000)
		sleep(10 * time.Second)
		r.clock.shift(20_000)
		sleep(2 * time.Second)
		sleep(time.Minute)
		r.wantAllSettledOnce(t, 60)
	})
}

// The clock may go back while the body is read.
func TestClockIsReadAgainAfterTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(nil)
		r := newRig(t, net, nil)
		first := true
		r.store.load = func(it timer.Item) ([]byte, error) {
			if first {
				r.clock.shift(-5000)
				first = false
			}
			return frameOf(it), nil
		}
		r.Fire(items("a", "T", 0, 1, 1))
		sleep(4900 * time.Millisecond)
		if n := len(net.sent()); n != 0 {
			t.Fatalf("%d sent before the due time", n)
		}
		sleep(1200 * time.Millisecond)
		r.wantSettled(t, 1)
	})
}

func TestTopicsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(sent) verdict { return verdict{after: 10 * time.Millisecond} })
		r := newRig(t, net, nil)
		for lane := range uint16(500) {
			r.Fire(items("a", "big", lane, 1000*int(lane+1), 20))
		}
		sleep(5 * time.Millisecond)
		start := time.Now()
		r.Fire(items("a", "small", 0, 1, 1))
		sleep(time.Minute)
		r.wantAllSettledOnce(t, 10_001)
		for _, s := range net.sent() {
			if s.topic == "small" && s.at.Sub(start) > 20*time.Millisecond {
				t.Errorf("the other topic was sent after %v", s.at.Sub(start))
			}
		}
		if net.most != 64 {
			t.Errorf("%d unanswered at most, want 64", net.most)
		}
	})
}

func TestWindowShrinksOnBusyAndGrowsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := false
		net := newNet(nil)
		net.answer = func(sent) verdict {
			if busy {
				return verdict{code: 2}
			}
			return verdict{}
		}
		r := newRig(t, net, func(o *delivery.Options) { o.Window = 32 })
		most := func() int {
			defer net.set(func() { net.most = 0 })
			return net.most
		}
		for lane := range uint16(200) {
			r.Fire(items("a", "T", lane, 10_000*int(lane+1), 1000))
		}
		sleep(100 * time.Millisecond)
		if n := most(); n != 32 {
			t.Errorf("%d unanswered, want 32", n)
		}
		net.set(func() { busy = true })
		sleep(10 * time.Second)
		most()
		sleep(10 * time.Second)
		if n := most(); n != 1 {
			t.Errorf("%d unanswered while the broker is busy, want 1", n)
		}
		net.set(func() { busy = false })
		sleep(5 * time.Second)
		if n := most(); n != 32 {
			t.Errorf("%d unanswered after the broker was busy, want 32", n)
		}
		sleep(time.Hour)
		r.wantAllSettledOnce(t, 200_000)
	})
}

// What was in flight together when the broker became busy costs one halving, not one each.
func TestOneWaveOfBusyAnswersHalvesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(s sent) verdict {
			if s.nth == 1 {
				return verdict{code: 2}
			}
			return verdict{after: time.Hour}
		})
		r := newRig(t, net, func(o *delivery.Options) { o.Window, o.Timeout = 32, 2*time.Hour })
		for lane := range uint16(32) {
			r.Fire(items("a", "T", lane, int(lane+1), 1))
		}
		sleep(time.Minute)
		if s := r.Stats(); s.InFlight != 16 {
			t.Errorf("%d in flight, want half of 32", s.InFlight)
		}
	})
}

func TestGoroutinesDoNotGrowWithLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(sent) verdict { return verdict{code: 2, after: time.Millisecond} })
		before := runtime.NumGoroutine()
		r := newRig(t, net, nil)
		for i := range 20_000 {
			r.Fire(items(fmt.Sprint("b", i%5), fmt.Sprint("T", i%100), uint16(i), i+1, 1))
		}
		for range 10 {
			sleep(100 * time.Millisecond)
			if n := runtime.NumGoroutine() - before; n > 20 {
				t.Fatalf("%d goroutines for 20 000 lanes", n)
			}
		}
	})
}

func TestFireDoesNotWaitForReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(nil)
		r := newRig(t, net, nil)
		gate := make(chan struct{})
		reading, most := 0, 0
		r.store.load = func(it timer.Item) ([]byte, error) {
			r.store.mu.Lock()
			reading++
			most = max(most, reading)
			r.store.mu.Unlock()
			<-gate
			r.store.mu.Lock()
			reading--
			r.store.mu.Unlock()
			return frameOf(it), nil
		}
		start := time.Now()
		for lane := range uint16(100) {
			r.Fire(items("a", "T", lane, 10*int(lane+1), 5))
		}
		synctest.Wait()
		if d := time.Since(start); d != 0 || most != 4 {
			t.Errorf("Fire took %v, %d bodies are read at a time", d, most)
		}
		close(gate)
		sleep(time.Minute)
		r.wantAllSettledOnce(t, 500)
	})
}
