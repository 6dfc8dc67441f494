package timer

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/delaygate/delaygate/timer/vfs"
)

// aheadRig has 12 sealed entries of 900 bytes, the first due in 10 s.
func aheadRig(t *testing.T, budget int64) (r *rig, runReads *atomic.Int64) {
	r = newRig(t)
	r.o.Window, r.o.ReadAheadBytes = 64, budget
	r.kill(false)
	r.put(12, 10_000, 900)
	for r.s.Stats().Seals == 0 {
		r.put(1, 3600_000, 900)
	}
	runReads = new(atomic.Int64)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpRead && strings.Contains(path, runPrefix) {
			runReads.Add(1)
		}
		return nil
	})
	return r, runReads
}

func (r *rig) ahead() (held int64, waiting int) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.wheel.ahead.held, r.s.wheel.ahead.queue.len()
}

func TestBodiesAreReadBeforeTheyAreDue(t *testing.T) {
	r, reads := aheadRig(t, 1<<20)
	r.clock.Store(rigNow + 9000)
	r.s.Start(r.c.sink)
	r.until("all bodies in RAM", func() bool { held, _ := r.ahead(); return held == 12*900 })
	checkInvariants(t, r.s)
	before := reads.Load()
	r.clock.Store(rigNow + 10_000)
	for got := 0; got < 12; {
		for _, it := range r.c.wait(t) {
			b, err := r.s.Load(it)
			if err != nil || !bytes.Equal(b, body(got, 900)) {
				t.Fatalf("entry %d: %d bytes, %v", got, len(b), err)
			}
			got++
		}
	}
	if n := reads.Load() - before; n != 0 {
		t.Fatalf("%d reads of runs after the bodies were in RAM", n)
	}
	if held, waiting := r.ahead(); held != 0 || waiting != 0 {
		t.Fatalf("%d bytes and %d entries are left", held, waiting)
	}
}

func TestReadAheadKeepsItsBudget(t *testing.T) {
	const record = 900 + headBytes + 2 // names and key of the rig: b, t, one or two digits
	r, reads := aheadRig(t, 4*(record+2))
	r.clock.Store(rigNow + 9000)
	r.s.Start(r.c.sink)
	r.until("four bodies in RAM", func() bool { held, _ := r.ahead(); return held == 4*900 })
	checkInvariants(t, r.s)
	r.clock.Store(rigNow + 10_000)
	for got := 0; got < 12; {
		for _, it := range r.c.wait(t) {
			if b, err := r.s.Load(it); err != nil || !bytes.Equal(b, body(got, 900)) {
				t.Fatalf("entry %d: %d bytes, %v", got, len(b), err)
			}
			r.s.Settle(it)
			got++
		}
	}
	if reads.Load() == 0 {
		t.Fatal("nothing was read")
	}
	checkInvariants(t, r.s)
}

func TestDamagedRecordIsLeftToLoad(t *testing.T) {
	r, _ := aheadRig(t, 1<<20)
	run := r.names(runPrefix, "")[0]
	r.flip(run, segHeadBytes+headBytes+500)
	r.clock.Store(rigNow + 9000)
	r.s.Start(r.c.sink)
	r.until("the others in RAM", func() bool { held, _ := r.ahead(); return held == 11*900 })
	r.clock.Store(rigNow + 10_000)
	damaged := 0
	for got := 0; got < 12; {
		for _, it := range r.c.wait(t) {
			if _, err := r.s.Load(it); errors.Is(err, ErrCorrupt) {
				damaged++
			} else if err != nil {
				t.Fatal(err)
			}
			got++
		}
	}
	if damaged != 1 {
		t.Fatalf("%d are damaged", damaged)
	}
}
