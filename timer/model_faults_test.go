package timer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"pgregory.net/rapid"

	"github.com/delaygate/delaygate/timer/vfs"
)

func (m *model) crash(power bool) {
	m.mem.Kill() // what is acknowledged from here on was synced before
	m.reboot(power)
	m.s.Close()
	m.inflight.Wait()
	m.tally()
	m.crashes++
	m.open()
}

var errInjected = errors.New("injected")

// crashAt lets the process die at some operation on the disk, with work of every kind at hand.
func (m *model) crashAt() {
	dead := m.dieAfter(rapid.IntRange(0, 80).Draw(m.t, "operations"))
	m.dying = true
	m.fire()
	m.settleSome(0.7)
	m.begin(rapid.IntRange(1, 60).Draw(m.t, "n"))
	for end := time.Now().Add(5 * time.Millisecond); !dead() && time.Now().Before(end); {
		time.Sleep(50 * time.Microsecond)
	}
	m.dying = false
	m.crash(rapid.Bool().Draw(m.t, "power") && m.o.Sync == SyncAlways)
}

// fail makes some operations fail for a while, as a bad or full disk does, and waits until the store is well again.
func (m *model) fail() {
	seed := m.rng.Uint64()
	rate := rapid.SampledFrom([]float64{0.05, 0.3, 1}).Draw(m.t, "rate")
	r := rand.New(rand.NewPCG(seed, 5))
	cause := rapid.SampledFrom([]error{syscall.ENOSPC, syscall.EIO}).Draw(m.t, "cause")
	var mu sync.Mutex
	hook := m.hook
	m.faulty.Set(func(op vfs.Op, path string) *vfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		if f := hook(op, path); f != nil {
			return f
		}
		full := op == vfs.OpCreate || op == vfs.OpWrite || op == vfs.OpRename
		if cause == syscall.ENOSPC && !full || op == vfs.OpReadDir || r.Float64() >= rate {
			return nil
		}
		if op == vfs.OpSync {
			m.eio.Store(true)
		}
		return &vfs.Fault{Err: fmt.Errorf("%w: %w", errInjected, cause), Short: r.IntN(2) == 0}
	})
	m.put(rapid.IntRange(1, 30).Draw(m.t, "n"))
	m.fire()
	m.settleSome(0.5)
	m.cancelSome(5)
	m.put(rapid.IntRange(1, 30).Draw(m.t, "n"))
	if rapid.IntRange(0, 3).Draw(m.t, "crash") == 0 {
		m.crash(rapid.Bool().Draw(m.t, "power") && m.o.Sync == SyncAlways)
		return
	}
	m.faulty.Set(m.hook)
	m.wantWell(cause)
}

// squeeze leaves little or no room on the disk for a while, perhaps across a crash.
func (m *model) squeeze() {
	m.mem.SetCapacity(m.mem.Used() + rapid.Int64Range(0, 12).Draw(m.t, "halves")*m.o.SegmentBytes/2)
	for range rapid.IntRange(1, 4).Draw(m.t, "times") {
		m.put(rapid.IntRange(1, 30).Draw(m.t, "n"))
		m.fire()
		m.settleSome(0.5)
		if rapid.IntRange(0, 3).Draw(m.t, "crash") == 0 {
			m.crash(rapid.Bool().Draw(m.t, "power") && m.o.Sync == SyncAlways)
		}
	}
	m.mem.SetCapacity(0)
	m.wantWell(syscall.ENOSPC)
}

// wantWell waits until the store takes messages again.
func (m *model) wantWell(after error) {
	for end := time.Now().Add(modelPatience); !m.put(1); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("the store did not recover from %v: %+v", after, m.s.Stats())
		}
	}
}
