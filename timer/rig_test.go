package timer

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// rig is a store on a memory disk with what was put into it.
type rig struct {
	t     *testing.T
	mem   *vfs.Mem
	fs    *vfs.Faulty
	hook  vfs.Hook // of every store
	clock atomic.Int64
	o     Options
	s     *Store
	c     *collector
}

const rigNow = 1_000_000

func newRig(t *testing.T) *rig {
	r := &rig{t: t, mem: vfs.NewMem()}
	r.clock.Store(rigNow)
	r.o = testOptions(nil, &r.clock)
	r.open()
	t.Cleanup(func() { r.s.Close() })
	return r
}

// noSeals keeps segments from being sealed, in the stores opened from now on as well.
func (r *rig) noSeals() {
	r.hook = func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpCreate && strings.HasPrefix(path, "/data/"+runPrefix) {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	}
	r.fs.Set(r.hook)
}

func (r *rig) open() {
	r.t.Helper()
	r.fs = vfs.NewFaulty(r.mem)
	r.fs.Set(r.hook)
	r.o.FS = r.fs
	r.s = mustOpen(r.t, r.o)
	r.c = newCollector()
}

// kill replaces the store by one that finds what a killed process leaves; power: and what the power failure leaves of that.
func (r *rig) kill(power bool) {
	r.t.Helper()
	old := r.mem
	old.Kill()
	if power {
		r.mem = old.AfterPowerLoss(nil, 0)
	} else {
		r.mem = old.AfterKill()
	}
	r.s.Close()
	r.open()
}

// put puts n entries that are due in ms.
func (r *rig) put(n int, in int64, size int) []LSN {
	r.t.Helper()
	var lsns []LSN
	for i := range n {
		lsn, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + in, Key: fmt.Sprint(i), Body: body(i, size)})
		if err != nil {
			r.t.Fatal(err)
		}
		lsns = append(lsns, lsn)
	}
	return lsns
}

// segment returns the oldest segment.
func (r *rig) segment() *segment {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.segs[0]
}

// fireAll starts firing, moves the clock and settles until nothing is pending; it returns what was fired, in order.
func (r *rig) fireAll(settle bool) []Item {
	r.t.Helper()
	r.clock.Store(rigNow + 100_000)
	r.s.Start(r.c.sink)
	var all []Item
	pending := r.s.Stats().Pending
	for int64(len(all)) < pending {
		for _, it := range r.c.wait(r.t) {
			all = append(all, it)
			if _, err := r.s.Load(it); err != nil {
				r.t.Fatal(err)
			}
			if settle {
				r.s.Settle(it)
			}
		}
	}
	return all
}

func (r *rig) wantPending(n int64) {
	r.t.Helper()
	if st := r.s.Stats(); st.Pending != n {
		r.t.Fatalf("pending %d, want %d: %+v", st.Pending, n, st)
	}
}

func (r *rig) wantCorrupt(some bool) {
	r.t.Helper()
	if st := r.s.Stats(); (st.Corrupt > 0) != some {
		r.t.Fatalf("corrupt %d, want some: %v", st.Corrupt, some)
	}
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within 20 s: %s: %+v", what, r.s.Stats())
		}
	}
}

// flip changes one byte of a file.
func (r *rig) flip(name string, off int64) {
	r.t.Helper()
	f, err := r.mem.Open("/data/" + name)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := readAt(f, off, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	b[0] ^= 0x55
	if _, err := f.WriteAt(b, off); err != nil {
		r.t.Fatal(err)
	}
	f.Sync(true)
}

func (r *rig) names(prefix, suffix string) []string { return namesIn(r.mem, prefix, suffix) }

func namesIn(mem *vfs.Mem, prefix, suffix string) []string {
	all, _ := mem.ReadDir("/data")
	var out []string
	for _, n := range all {
		if len(n) >= len(prefix)+len(suffix) && n[:len(prefix)] == prefix && n[len(n)-len(suffix):] == suffix {
			out = append(out, n)
		}
	}
	return out
}
