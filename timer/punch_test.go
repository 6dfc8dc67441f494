package timer

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/delaygate/delaygate/timer/vfs"
)

// punchRig is a rig whose janitor punches single pages.
func punchRig(t *testing.T) *rig {
	r := newRig(t)
	r.o.Window, r.o.SegmentBytes, r.o.punchBytes, r.o.lookEvery = 1024, 64<<10, pageBytes, time.Millisecond
	r.o.ReadAheadBytes = 1 // what is loaded is read then
	r.kill(false)
	return r
}

// fire makes the first n pending entries due and returns them.
func (r *rig) fire(n int) []Item {
	r.t.Helper()
	r.s.Start(r.c.sink)
	r.clock.Store(rigNow + 50_000)
	var items []Item
	for len(items) < n {
		items = append(items, r.c.wait(r.t)...)
	}
	return items[:n]
}

// runs puts n entries that are due in ms and waits until all but the last segment's are in runs.
func (r *rig) runs(n int, in int64, size int) []LSN {
	r.t.Helper()
	lsns := r.put(n, in, size)
	r.until("seals", func() bool { return r.s.Stats().Segments == 1 && r.s.Stats().Runs > 0 })
	return lsns
}

func TestDeliveredSpaceIsGivenBack(t *testing.T) {
	r := punchRig(t)
	r.runs(300, 20_000, 900)
	items := r.fire(300)
	full := r.s.Stats()
	// One in 20 stays, as if its broker were down.
	var stay []Item
	for i, it := range items {
		if i%20 == 10 {
			stay = append(stay, it)
			continue
		}
		r.s.Settle(it)
	}
	r.until("space", func() bool { return r.s.Stats().PunchedBytes > 100_000 })
	st := r.s.Stats()
	if st.Runs != full.Runs || st.DiskBytes > full.DiskBytes-100_000 {
		t.Fatalf("before %+v, after %+v", full, st)
	}
	for _, it := range stay {
		if b, err := r.s.Load(it); err != nil || len(b) != 900 {
			t.Fatalf("load of what stayed: %d bytes, %v", len(b), err)
		}
	}
	mustClose(t, r.s)
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	r.open()
	r.wantPending(int64(len(stay)))
	r.until("the space once more, as the power loss undid the holes", func() bool { return r.s.Stats().PunchedBytes > 100_000 })
	if got := r.fireAll(true); len(got) != len(stay) || got[0].LSN != stay[0].LSN {
		t.Fatalf("fired %d, want %d", len(got), len(stay))
	}
	r.wantCorrupt(false)
}

// A crash right before the hole is made: MANIFEST has the bits, the next life punches.
func TestCrashBeforePunching(t *testing.T) {
	r := punchRig(t)
	about, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if op == vfs.OpPunch {
			once.Do(func() { close(about) })
			<-goOn
		}
		return nil
	})
	r.runs(300, 20_000, 900)
	for i, it := range r.fire(300) {
		if i%20 != 10 {
			r.s.Settle(it)
		}
	}
	<-about
	r.mem.Kill()
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	close(goOn)
	r.s.Close()
	r.open()
	if n := r.s.Stats().Pending; n < 15 || n > 300-8*pageBytes/1000 { // the bits of the first round were synced
		t.Fatalf("%d pending", n)
	}
	r.until("punching", func() bool { return r.s.Stats().PunchedBytes > 0 })
	r.fireAll(true)
	r.wantCorrupt(false)
}

// What is punched is done in the MANIFEST that a power loss would leave at that moment.
func TestOnlyDurablyDoneEntriesArePunched(t *testing.T) {
	r := punchRig(t)
	var mu sync.Mutex
	durable := map[string]map[uint32]uint64{} // by path of a run, at the last punching
	mem := r.mem
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpPunch {
			state, err := readManifest(mem.AfterPowerLoss(nil, 0), "/data/"+manifestName)
			if err != nil {
				t.Error(err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			durable[path] = state.done[mustID(strings.TrimPrefix(path, "/data/"))]
		}
		return nil
	})
	r.runs(300, 20_000, 900)
	for i, it := range r.fire(300) {
		if i%20 != 10 {
			r.s.Settle(it)
		}
	}
	r.until("punching", func() bool { return r.s.Stats().PunchedBytes > 100_000 })
	r.mem.Kill()
	r.mem = r.mem.AfterKill()
	r.s.Close()
	mu.Lock()
	defer mu.Unlock()
	cut := 0
	for path, bits := range durable {
		x, err := openRun(r.mem, path, mustID(strings.TrimPrefix(path, "/data/")))
		if err != nil {
			t.Fatal(err)
		}
		gaps, err := findHoles(x.f, x.indexOff)
		if err != nil {
			t.Fatal(err)
		}
		for ord := range x.entries {
			place, err := x.offsets(ord)
			if err != nil {
				t.Fatal(err)
			}
			if holes(gaps).overlap(place.from, place.to) == 0 {
				continue
			}
			cut++
			if bits[uint32(ord/64)]&(1<<(ord%64)) == 0 {
				t.Fatalf("entry %d of %s was punched, MANIFEST has it as pending", ord, path)
			}
		}
	}
	if cut < 100 {
		t.Fatalf("only %d entries were punched", cut)
	}
	r.open()
}

// Without MANIFEST nothing says what is done, but what was punched does not come back as damaged.
func TestPunchedEntriesWithoutManifest(t *testing.T) {
	r := punchRig(t)
	r.runs(300, 20_000, 900)
	items := r.fire(300)
	var stay []LSN
	for i, it := range items {
		if i%20 == 10 {
			stay = append(stay, it.LSN)
			continue
		}
		r.s.Settle(it)
	}
	r.until("punching", func() bool { return r.s.Stats().PunchedBytes > 100_000 })
	// The segments with the settles are sealed. One body is zeros, of which the file system may have made a hole.
	const more = 130
	seals := r.s.Stats().Seals
	zeros, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 60_000, Body: make([]byte, 3*pageBytes)})
	if err != nil {
		t.Fatal(err)
	}
	stay = append(append(stay, zeros), r.put(more, 90_000, 900)...)
	r.until("seals", func() bool { return r.s.Stats().Seals >= seals+2 })
	mustClose(t, r.s)
	r.mem = r.mem.AfterKill()
	r.punchZeros()
	if err := r.mem.Remove("/data/" + manifestName); err != nil {
		t.Fatal(err)
	}
	r.open()
	if n := r.s.Stats().Pending; n <= int64(len(stay)) || n > more+200 { // what shared a page with others came back
		t.Fatalf("%d pending, %d were", n, len(stay))
	}
	fired := map[LSN]bool{}
	for _, it := range r.fireAll(true) { // loads each
		fired[it.LSN] = true
	}
	for _, lsn := range stay {
		if !fired[lsn] {
			t.Fatalf("lsn %d did not fire", lsn)
		}
	}
	if n := r.s.Stats().Corrupt; n != 1 { // MANIFEST
		t.Fatalf("corrupt %d", n)
	}
}

// punchZeros makes a hole of every page of the runs that is all zeros.
func (r *rig) punchZeros() {
	r.t.Helper()
	for _, name := range r.names(runPrefix, "") {
		f, err := r.mem.Open("/data/" + name)
		if err != nil {
			r.t.Fatal(err)
		}
		size, _ := f.Size()
		for off := int64(0); off+pageBytes <= size; off += pageBytes {
			if b, err := readAt(f, off, pageBytes); err != nil || len(bytes.Trim(b, "\x00")) == 0 {
				f.Punch(off, pageBytes)
			}
		}
		f.Sync(false)
	}
}

func TestFileSystemThatCannotPunch(t *testing.T) {
	for _, fault := range []error{syscall.EOPNOTSUPP, syscall.EIO} {
		t.Run(fault.Error(), func(t *testing.T) {
			r := punchRig(t)
			var asked atomic.Int64
			r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
				if op != vfs.OpPunch {
					return nil
				}
				asked.Add(1)
				return &vfs.Fault{Err: fault}
			})
			r.runs(300, 20_000, 900)
			items := r.fire(300)
			for i, it := range items {
				if i%20 != 10 {
					r.s.Settle(it)
				}
			}
			r.until("an attempt", func() bool { return asked.Load() > 0 })
			for i, it := range items {
				if i%20 != 10 {
					continue
				}
				if _, err := r.s.Load(it); err != nil {
					t.Fatal(err)
				}
				r.s.Settle(it)
			}
			r.until("runs to be dropped all the same", func() bool { return r.s.Stats().Runs == 0 })
			if n := asked.Load(); errors.Is(fault, errors.ErrUnsupported) && n != 1 {
				t.Fatalf("asked %d times", n)
			}
			r.wantCorrupt(false)
		})
	}
}

// A body that is read while its entry is settled and punched is no damage.
func TestLoadBesideSettleAndPunch(t *testing.T) {
	r := punchRig(t)
	r.runs(300, 20_000, 900)
	items := r.fire(300)
	var once atomic.Bool
	r.s.mu.Lock()
	home := items[20].entry.home
	r.s.mu.Unlock()
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpRead && path == home.path && !once.Swap(true) {
			for _, it := range items[:50] {
				r.s.Settle(it)
			}
			r.until("punching", func() bool {
				b, err := readAt(home.f, items[20].entry.off, headBytes)
				return err == nil && len(bytes.Trim(b, "\x00")) == 0
			})
		}
		return nil
	})
	if b, err := r.s.Load(items[20]); !errors.Is(err, ErrSettled) {
		t.Fatalf("load: %d bytes, %v", len(b), err)
	}
	r.wantCorrupt(false)
}

func TestDoneStretches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		want := make([]bool, n)
		for range rapid.IntRange(0, 6).Draw(t, "stretches") {
			from := rapid.IntRange(0, n-1).Draw(t, "from")
			for i := from; i < min(n, from+rapid.IntRange(1, 130).Draw(t, "length")); i++ {
				want[i] = true
			}
		}
		words := make([]uint64, (n+63)/64)
		for i, set := range want {
			if set {
				words[i/64] |= 1 << (i % 64)
			}
		}
		got := make([]bool, n)
		last := -1
		for from, to := range doneStretches(words, n) {
			if from <= last || to <= from {
				t.Fatalf("stretch [%d, %d) behind %d", from, to, last)
			}
			for i := from; i < to; i++ {
				got[i] = true
			}
			last = to // a stretch that touches the one before is not the longest
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestHoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h holes
		want := map[int64]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "punches") {
			from := rapid.Int64Range(0, 60).Draw(t, "from")
			to := from + rapid.Int64Range(1, 20).Draw(t, "length")
			n := int64(0)
			for i := from; i < to; i++ {
				if want[i] {
					n++
				}
			}
			if got := h.overlap(from, to); got != n {
				t.Fatalf("[%d, %d) overlaps %v in %d, want %d", from, to, h, got, n)
			}
			h = h.with(from, to)
			for i := from; i < to; i++ {
				want[i] = true
			}
			for i := range h {
				if h[i].to <= h[i].from || i > 0 && h[i].from <= h[i-1].to {
					t.Fatalf("holes %v", h)
				}
			}
		}
		if got := h.overlap(0, 100); got != int64(len(want)) {
			t.Fatalf("%v holds %d, want %d", h, got, len(want))
		}
	})
}
