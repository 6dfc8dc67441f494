package timer

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// A segment that a failed write condemned is sealed out of the reserve on a full disk, and its place is the next segment.
func TestSealFromTheReserve(t *testing.T) {
	r := newRig(t)
	r.calm()
	r.put(8, 5000, 900)
	r.failOpenSegment(func() { r.room(0) })
	r.until("a seal", func() bool { return r.s.Stats().Seals == 1 })
	r.until("the next segment", func() bool { return len(r.s.spares) == 1 })
	if st := r.s.Stats(); st.Reserve || !st.PutsRefused || len(r.names(reserveName, "")) > 0 {
		t.Fatalf("%+v %v", st, r.names("", ""))
	}
	r.mem.SetCapacity(0)
	r.until("the reserve again", func() bool { return r.s.Stats().Reserve })
	if r.reserveSize() != r.s.reserveBytes() {
		t.Fatal(r.reserveSize())
	}
	r.wantPuts()
	r.kill(true)
	r.wantPending(9)
	r.wantCorrupt(false)
	r.fireAll(true)
}

// Settles fill the open segment and the next one while puts are refused; they stay durable, and the segments are sealed and used again.
func TestSettlesGoOnWhenTheDiskIsFull(t *testing.T) {
	r := newRig(t)
	r.o.Window = 10_000
	r.kill(false)
	const n = 3000
	r.put(n, 50, 0)
	r.calm()
	r.room(0)
	r.until("all refused", func() bool { return r.s.Stats().PutsRefused })
	r.clock.Store(rigNow + 60)
	r.s.Start(r.c.sink)
	var items []Item
	for len(items) < n {
		items = append(items, r.c.wait(t)...)
	}
	seals := r.s.Stats().Seals
	for _, it := range items[:n-100] {
		r.s.Settle(it)
	}
	r.until("settles are durable", func() bool { return r.s.Stats().Settling == 0 })
	if st := r.s.Stats(); st.Seals < seals+2 {
		t.Fatalf("the settles did not fill two segments: %+v", st)
	}
	r.kill(true)
	r.wantPending(100)
	r.mem.SetCapacity(0)
	r.wantPuts()
}

// reserveSize returns how large RESERVE is, -1 if it is not there.
func (r *rig) reserveSize() int64 {
	f, err := r.mem.Open("/data/" + reserveName)
	if err != nil {
		return -1
	}
	defer f.Close()
	n, _ := f.Size()
	return n
}

// MANIFEST takes its share of the reserve, and all of it only if that does not do.
func TestManifestFromTheReserve(t *testing.T) {
	whole := sealNeed(minSegmentBytes, 0)
	for _, enough := range []int64{whole - minSegmentBytes, -1} {
		r := newRig(t)
		r.calm()
		fit, least := atomic.Bool{}, whole
		r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
			man := strings.HasPrefix(path, "/data/"+manifestName)
			if !man || op != vfs.OpWrite && op != vfs.OpCreate || fit.Load() {
				return nil
			}
			if least = min(least, r.reserveSize()); least > enough {
				return &vfs.Fault{Err: syscall.ENOSPC}
			}
			fit.Store(true)
			return nil
		})
		r.put(20, 5000, 900)
		r.until("a seal", func() bool { return r.s.Stats().Seals > 0 })
		r.fs.Set(nil)
		if least != enough {
			t.Errorf("RESERVE had %d bytes when MANIFEST could be written, want %d", least, enough)
		}
		r.kill(true)
		r.wantPending(20)
	}
}

// A seal uses up blank segments before RESERVE.
func TestBlankSegmentsGoBeforeTheReserve(t *testing.T) {
	r := newRig(t)
	for len(r.names(freePrefix, "")) == 0 {
		r.put(10, 5000, 900)
		r.calm()
	}
	for r.entriesOfOpen() < 5 {
		r.put(1, 5000, 900)
		r.calm()
	}
	blank, pending, seals := r.names(freePrefix, ""), r.s.Stats().Pending, r.s.Stats().Seals
	r.failOpenSegment(func() { r.room(6000) }) // with a blank segment it does
	r.until("a seal", func() bool { return r.s.Stats().Seals > seals })
	if left := r.names(freePrefix, ""); r.reserveSize() != r.s.reserveBytes() || slices.Equal(left, blank) {
		t.Fatalf("RESERVE has %d bytes, blank were %v and are %v", r.reserveSize(), blank, left)
	}
	r.kill(true)
	r.wantPending(pending)
}

func (r *rig) entriesOfOpen() int {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return len(r.s.segs[len(r.s.segs)-1].entries)
}

// failOpenSegment makes a put fail, and the janitor seal the open segment, after then was called.
func (r *rig) failOpenSegment(then func()) {
	r.t.Helper()
	var failed atomic.Bool
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op != vfs.OpSync || !strings.HasPrefix(path, "/data/"+segPrefix) || failed.Swap(true) {
			return nil
		}
		then()
		return &vfs.Fault{Err: syscall.EIO}
	})
	if _, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 1}); !errors.Is(err, ErrFailed) {
		r.t.Fatal(err)
	}
}

// The reserve alone makes an open segment possible when there is nothing to seal.
func TestReserveMakesRoomForTheOpenSegment(t *testing.T) {
	r := newRig(t)
	r.calm()
	mustClose(t, r.s)
	r.mem = r.mem.AfterKill()
	for _, n := range append(r.names(segPrefix, ""), r.names(freePrefix, "")...) {
		r.mem.Remove("/data/" + n) // nothing is in them
	}
	r.room(1000) // for MANIFEST
	r.open()
	r.until("an open segment", r.hasOpen)
	if st := r.s.Stats(); st.Reserve || !st.PutsRefused {
		t.Fatalf("%+v", st)
	}
	r.mem.SetCapacity(0)
	r.wantPuts()
}

// The last byte is gone and the process dies: MANIFEST takes its share of the reserve, the rest stays for seals.
func TestRestartOnAFullDiskKeepsTheReserveForSeals(t *testing.T) {
	r := newRig(t)
	r.o.lookEvery = time.Hour
	r.calm()
	r.room(0)
	for range 3 { // what is left of the share does for the next starts
		r.kill(false)
		r.until("all refused, an open segment", func() bool { st := r.s.Stats(); return st.Segments == 1 && st.PutsRefused })
		if st := r.s.Stats(); r.s.reserved.Load() != r.s.reserveBytes()-r.s.slack() || st.Reserve {
			t.Fatalf("the reserve has %d of %d bytes: %+v", r.s.reserved.Load(), r.s.reserveBytes(), st)
		}
	}
	r.looksAtTheDisk(50) // the janitor has nothing to do any more
	r.mem.SetCapacity(0)
	r.calm()
}

// looksAtTheDisk waits until the free space was looked at n times more.
func (r *rig) looksAtTheDisk(n int64) {
	r.t.Helper()
	var looks atomic.Int64
	r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if op == vfs.OpFree {
			looks.Add(1)
		}
		return nil
	})
	r.until("looks at the disk", func() bool { return looks.Load() >= n })
}

// A copy of a folder has a hole where RESERVE had zeros.
func TestReserveThatIsAHoleIsFilled(t *testing.T) {
	r := newRig(t)
	r.calm()
	f, err := r.mem.Open("/data/" + reserveName)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Punch(0, r.s.reserveBytes()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, r.s)
	r.open()
	r.calm()
	g, err := r.mem.Open("/data/" + reserveName)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if n, _ := g.Occupied(); n < r.s.reserveBytes() {
		t.Fatalf("%d of %d bytes", n, r.s.reserveBytes())
	}
}

func TestReserveOfAnotherSizeIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.calm()
	for _, segment := range []int64{32 << 10, 16 << 10} {
		r.o.SegmentBytes = segment
		r.kill(false)
		r.calm()
		if r.reserveSize() != sealNeed(segment, 0) {
			t.Fatal(segment, r.reserveSize())
		}
	}
}

func (r *rig) hasOpen() bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.hasOpenSegment()
}

// With one segment on a full disk, and nothing else to give up, that one is sealed when it is full, and used again.
func TestSettlesGoOnInTheOnlySegment(t *testing.T) {
	r := newRig(t)
	r.o.Window, r.o.lookEvery = 10_000, time.Hour
	r.kill(false)
	const n = 3000
	r.put(n, 50, 0)
	r.kill(false)
	r.calm()
	mustClose(t, r.s)
	r.mem = r.mem.AfterKill()
	for _, name := range append(r.names(freePrefix, ""), r.names(segPrefix, "")[1:]...) { // blank, all of them
		r.mem.Remove("/data/" + name)
	}
	r.mem.Remove("/data/" + reserveName)
	r.room(12_000) // for MANIFEST
	r.open()
	r.until("an open segment", r.hasOpen)
	r.clock.Store(rigNow + 60)
	r.s.Start(r.c.sink)
	for fired := 0; fired < n; {
		for _, it := range r.c.wait(t) {
			if fired++; fired%50 != 0 { // no run is given back
				r.s.Settle(it)
			}
		}
	}
	r.until("settles are durable", func() bool { return r.s.Stats().Settling == 0 })
	if st := r.s.Stats(); st.Seals < 2 || !st.PutsRefused || st.Reserve {
		t.Fatalf("%+v", st)
	}
	r.kill(true)
	r.wantPending(n / 50)
	r.mem.SetCapacity(0)
	r.calm()
}

// There is room for a segment but not for a seal, and the writer has no segment: it gets one, so that settles are durable.
func TestSettlesGoOnWhereNothingCanBeSealed(t *testing.T) {
	r := newRig(t)
	r.put(20, 50, 900) // of these some are in a run
	r.until("a run", func() bool { return r.s.Stats().Runs > 0 })
	r.kill(false)
	r.calm()
	var noSegments atomic.Bool
	hook := func(op vfs.Op, path string) *vfs.Fault {
		seg := strings.HasPrefix(path, "/data/"+segPrefix) && (op == vfs.OpCreate || op == vfs.OpRename)
		if seg && noSegments.Load() || op == vfs.OpCreate && strings.HasPrefix(path, "/data/"+runPrefix) {
			return &vfs.Fault{Err: syscall.ENOSPC}
		}
		return nil
	}
	r.fs.Set(hook) // nothing is sealed from here on
	r.put(5, 50_000, 900)
	r.mem.Kill()
	r.mem = r.mem.AfterKill()
	r.s.Close()
	r.mem.Remove("/data/" + reserveName)
	for _, name := range append(r.names(freePrefix, ""), r.names(segPrefix, "")[1:]...) { // blank, all of them
		r.mem.Remove("/data/" + name)
	}
	noSegments.Store(true)
	r.room(minSegmentBytes + 3000)
	r.fs, r.c = vfs.NewFaulty(r.mem), newCollector()
	r.fs.Set(hook)
	r.o.FS = r.fs
	r.s = mustOpen(t, r.o)
	noSegments.Store(false)
	r.clock.Store(rigNow + 60)
	r.s.Start(r.c.sink)
	for settled := 0; settled < 20; {
		for _, it := range r.c.wait(t) {
			settled++
			r.s.Settle(it)
		}
	}
	r.until("settles are durable", func() bool { return r.s.Stats().Settling == 0 })
	if st := r.s.Stats(); st.Seals > 0 || !st.PutsRefused {
		t.Fatalf("%+v", st)
	}
	r.kill(true)
	r.wantPending(5)
	r.mem.SetCapacity(0)
	r.wantPuts()
}
