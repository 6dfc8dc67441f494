package timer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// room leaves n bytes free on the disk.
func (r *rig) room(n int64) { r.mem.SetCapacity(r.mem.Used() + n) }

// calm waits until the next segment and the reserve are there and nothing is left to seal.
func (r *rig) calm() {
	r.t.Helper()
	r.until("nothing is left to do", func() bool {
		st := r.s.Stats()
		return len(r.s.spares) == 1 && st.Reserve && st.Segments == 1
	})
}

// failOnce makes the next operation of that kind on a path that begins so fail.
func (r *rig) failOnce(op vfs.Op, prefix string, err error) (failed *atomic.Bool) {
	failed = &atomic.Bool{}
	r.fs.Set(func(o vfs.Op, path string) *vfs.Fault {
		if o == op && strings.HasPrefix(path, "/data/"+prefix) && failed.CompareAndSwap(false, true) {
			return &vfs.Fault{Err: err}
		}
		return nil
	})
	return failed
}

func (r *rig) wantPuts() {
	r.t.Helper()
	r.until("puts", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 6000})
		return err == nil
	})
}

func TestWatermarks(t *testing.T) {
	const seg = minSegmentBytes
	need := sealNeed(seg, 0)
	for _, tc := range []struct {
		name             string
		farFree, minFree int64
		free             int64
		wantFar, wantAll string // "": taken
	}{
		{"room for all", 0, 0, need + farSegments*seg, "", ""},
		{"far ones first", 0, 0, need + farSegments*seg - 1, "far mark", ""},
		{"the lower mark", 0, 0, need, "far mark", ""},
		{"all", 0, 0, need - 1, "min mark", "min mark"},
		{"far mark raised", 1 << 20, 0, 1<<20 - 1, "far mark", ""},
		{"far mark reached", 1 << 20, 0, 1 << 20, "", ""},
		{"min mark raised", 0, 1 << 20, 1<<20 - 1, "min mark", "min mark"},
		{"min mark reached", 0, 1 << 20, 1 << 20, "", ""},
		{"options lower no mark", 1, 1, need - 1, "min mark", "min mark"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.o.FarFree, r.o.MinFree = tc.farFree, tc.minFree
			r.kill(false)
			r.calm()
			r.room(tc.free)
			r.until("a look at the disk", func() bool { return r.s.Stats().FreeBytes == tc.free })
			for _, put := range []struct {
				in   time.Duration
				want string
			}{{time.Hour + time.Millisecond, tc.wantFar}, {time.Hour, tc.wantAll}, {0, tc.wantAll}} {
				_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + put.in.Milliseconds()})
				if put.want == "" && err != nil || put.want != "" && (!errors.Is(err, ErrFull) ||
					!strings.Contains(err.Error(), put.want) || !strings.Contains(err.Error(), fmt.Sprint(tc.free))) {
					t.Errorf("put %v ahead: %v, want %q and how much is free", put.in, err, put.want)
				}
			}
			st := r.s.Stats()
			if st.FarRefused != (tc.wantFar != "") || st.PutsRefused != (tc.wantAll != "") {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestPutsAreTakenAgainAQuarterOfASegmentAboveTheMark(t *testing.T) {
	r := newRig(t)
	r.calm()
	need := sealNeed(minSegmentBytes, 0)
	for _, tc := range []struct {
		free    int64
		refused bool
	}{
		{need - 1, true},
		{need, true},
		{need + minSegmentBytes/4 - 1, true},
		{need + minSegmentBytes/4, false},
		{need, false},
	} {
		r.room(tc.free)
		r.until("a look at the disk", func() bool { return r.s.Stats().FreeBytes == tc.free })
		if st := r.s.Stats(); st.PutsRefused != tc.refused {
			t.Fatalf("with %d free, need %d: %+v", tc.free, need, st)
		}
	}
}

func TestMarksGrowWithWhatIsNotSealed(t *testing.T) {
	r := newRig(t)
	r.calm()
	before := r.s.demand()
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault { // nothing is sealed
		if op == vfs.OpCreate && strings.HasPrefix(path, "/data/"+runPrefix) {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	r.put(40, 5000, 900)
	r.until("segments", func() bool { return r.s.Stats().Segments >= 3 })
	if after := r.s.demand(); after.seals < 3*before.seals || before.seals != sealNeed(minSegmentBytes, 0) {
		t.Fatalf("%+v, then %+v", before, after)
	}
	// Small records need more index than a quarter of them.
	if n := sealNeed(1<<20, 100_000); n < 1<<20+100_000*(indexBytes+2*keyBytes) {
		t.Fatal(n)
	}
}

// What can wait leaves alone what the seals ahead may need, RESERVE counted in.
func TestRoomForWhatCanWait(t *testing.T) {
	need := sealNeed(minSegmentBytes, 0)
	for _, tc := range []struct {
		name       string
		free, want int64 // what there is beside RESERVE, and what is asked for
		blank      bool
		ok         bool
	}{
		{"nothing", 0, 0, false, true}, // RESERVE is one seal
		{"more than that", 0, 1, false, false},
		{"a segment", minSegmentBytes, minSegmentBytes, false, true},
		{"more than a segment", minSegmentBytes, minSegmentBytes + 1, false, false},
		{"out of a blank segment", 0, minSegmentBytes, true, true},
		{"more than a blank segment", 0, minSegmentBytes + 1, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			for tc.blank && len(r.names(freePrefix, "")) == 0 {
				r.put(10, 5000, 900)
				r.calm()
			}
			r.calm()
			r.room(tc.free)
			d := r.s.demand()
			if d.seals != need || d.spent > 0 != tc.blank {
				t.Fatalf("%+v", d)
			}
			want := tc.want + max(0, d.spent-minSegmentBytes)
			if err := r.s.roomFor(want); (err == nil) != tc.ok || err != nil && !errors.Is(err, errNoRoom) {
				t.Errorf("%d bytes with %d free: %v", want, tc.free, err)
			}
			if got := r.s.roomToMerge([]candidate{{live: want - minSegmentBytes}}); got != tc.ok {
				t.Errorf("merge: %v", got)
			}
			r.until("a look at the disk", func() bool { return r.s.Stats().FreeBytes == tc.free+d.spent })
		})
	}
}

// While the next segment or RESERVE is being made, its space is neither free nor there; that is no reason to refuse.
func TestNothingIsRefusedWhileTheNextSegmentIsMade(t *testing.T) {
	r := &rig{t: t, mem: vfs.NewMem(), c: newCollector()}
	r.clock.Store(rigNow)
	r.fs = vfs.NewFaulty(r.mem)
	r.o = testOptions(r.fs, &r.clock)
	need := sealNeed(minSegmentBytes, 0)
	r.mem.SetCapacity(minSegmentBytes + need + minSegmentBytes + need + 2048) // the open segment, its seal, the next, RESERVE, MANIFEST
	var syncs, looks atomic.Int64
	blocked, goOn := make(chan struct{}), make(chan struct{})
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		switch {
		case op == vfs.OpFree:
			looks.Add(1)
		case op == vfs.OpSync && strings.HasPrefix(path, "/data/"+segPrefix) && syncs.Add(1) == 2:
			close(blocked)
			<-goOn
		}
		return nil
	})
	r.s = mustOpen(t, r.o)
	defer func() { r.s.Close() }()
	<-blocked
	before := looks.Load()
	r.until("looks at the disk", func() bool { return looks.Load() > before+5 })
	if st := r.s.Stats(); st.PutsRefused {
		t.Errorf("%+v", st)
	}
	close(goOn)
	r.calm()
	if st := r.s.Stats(); st.PutsRefused {
		t.Errorf("%+v", st)
	}
}

func TestClosedStoreSaysSoOnAFullDisk(t *testing.T) {
	r := newRig(t)
	r.calm()
	r.room(0)
	r.until("all refused", func() bool { return r.s.Stats().PutsRefused })
	mustClose(t, r.s)
	if _, err := r.s.Put(&Entry{}, nil); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

// Without a number from the disk its errors decide.
func TestUnknownFreeSpace(t *testing.T) {
	r := newRig(t)
	r.calm()
	r.room(0)
	r.until("all refused", func() bool { return r.s.Stats().PutsRefused })
	r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if op == vfs.OpFree {
			return &vfs.Fault{Err: syscall.ENOSYS}
		}
		return nil
	})
	r.until("nothing refused", func() bool { return !r.s.Stats().FarRefused })
	n, err := int64(0), error(nil)
	for err == nil {
		if _, err = putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 500, Body: body(1, 900)}); err == nil {
			n++
		}
	}
	if !errors.Is(err, ErrFull) || n < 10 {
		t.Fatalf("after %d: %v", n, err)
	}
	r.mem.SetCapacity(0)
	r.wantPuts()
	r.kill(true)
	r.wantPending(n + 1)
}

// With not a byte free and nothing to give up, a folder opens: what is pending fires, settles wait, and all goes on when there is room.
func TestOpenOnAFullDisk(t *testing.T) {
	for _, name := range []string{"no room for a segment", "no room for MANIFEST", "no room for an edit of MANIFEST"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.put(40, 5000, 900)
			r.calm()
			r.mem.Kill()
			r.mem = r.mem.AfterKill()
			r.s.Close()
			var full atomic.Bool
			full.Store(true)
			r.fs = vfs.NewFaulty(r.mem)
			var edits atomic.Int64
			r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
				seg := op == vfs.OpCreate && strings.HasPrefix(path, "/data/"+segPrefix) || op == vfs.OpRename && !strings.Contains(path, manifestName)
				man := op == vfs.OpWrite && strings.HasPrefix(path, "/data/"+manifestName)
				late := man && (edits.Add(1) > 1 || name == "no room for MANIFEST")
				if full.Load() && (name == "no room for a segment" && seg || name != "no room for a segment" && late) {
					return &vfs.Fault{Err: syscall.ENOSPC}
				}
				return nil
			})
			before := r.names("", "")
			r.o.FS, r.c = r.fs, newCollector()
			r.s = mustOpen(t, r.o)
			if _, err := r.s.Put(&Entry{}, nil); !errors.Is(err, ErrFull) {
				t.Fatalf("put: %v", err)
			}
			for _, n := range r.names("", "") { // nothing that the old MANIFEST needs is touched
				before = slices.DeleteFunc(before, func(b string) bool { return b == n })
			}
			if kept := slices.DeleteFunc(before, func(b string) bool { return b == reserveName || strings.HasPrefix(b, freePrefix) }); len(kept) > 0 && name == "no room for MANIFEST" {
				t.Fatalf("removed: %v", kept)
			}
			r.wantPending(40)
			r.fireAll(true)
			if st := r.s.Stats(); st.Settling == 0 || !st.PutsRefused {
				t.Fatalf("%+v", st)
			}
			full.Store(false)
			r.wantPuts()
			r.until("settles are durable", func() bool { return r.s.Stats().Settling == 0 })
			r.calm()
			r.s.mu.Lock()
			known := 1 + len(r.s.segs) + len(r.s.runs) // with the next segment
			r.s.mu.Unlock()
			if got := append(r.names(segPrefix, ""), r.names(runPrefix, "")...); len(got) != known {
				t.Fatalf("%d segments and runs are known, there are %v", known, got)
			}
			r.kill(true)
			r.wantPending(1)
			r.wantCorrupt(false)
		})
	}
}

// Killed on a full disk before MANIFEST could be written: the next start finds all that the first one found.
func TestKilledWhileMANIFESTHasNoRoom(t *testing.T) {
	r := newRig(t)
	r.put(40, 5000, 900)
	r.calm()
	var tries atomic.Int64
	for round := range 4 {
		r.mem.Kill()
		if round%2 == 0 {
			r.mem = r.mem.AfterKill()
		} else {
			r.mem = r.mem.AfterPowerLoss(nil, 0)
		}
		r.s.Close()
		r.fs = vfs.NewFaulty(r.mem)
		r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
			if op == vfs.OpWrite && strings.HasPrefix(path, "/data/"+manifestName) {
				tries.Add(1)
				return &vfs.Fault{Err: syscall.ENOSPC}
			}
			return nil
		})
		r.o.FS = r.fs
		r.s = mustOpen(t, r.o)
		r.wantPending(40)
		r.wantCorrupt(false)
		at := tries.Load()
		r.until("more tries", func() bool { return tries.Load() > at+2 })
	}
	r.kill(true)
	r.wantPending(40)
	r.wantCorrupt(false)
}

// Where blank segments cannot be renamed, new ones are made.
func TestNewSegmentsWhereNoneCanBeRecycled(t *testing.T) {
	r := newRig(t)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpRename && strings.HasPrefix(path, "/data/"+segPrefix) {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	r.put(100, 5000, 900)
	if st := r.s.Stats(); st.Seals < 3 || st.Pending != 100 {
		t.Fatalf("%+v", st)
	}
}

// A blank segment that cannot be renamed now is not forgotten.
func TestBlankSegmentIsRecycledAfterAFailedRename(t *testing.T) {
	r := newRig(t)
	n := 0
	more := func() { r.put(10, 5000, 900); n += 10; r.calm() }
	for len(r.names(freePrefix, "")) == 0 {
		more()
	}
	failed := r.failOnce(vfs.OpRename, segPrefix, syscall.EIO)
	for !failed.Load() {
		more()
	}
	r.until("every blank segment is known", func() bool {
		r.s.mu.Lock()
		known := slices.Clone(r.s.free)
		r.s.mu.Unlock()
		slices.Sort(known)
		on := r.names(freePrefix, "")
		for i := range on {
			on[i] = r.s.path(on[i])
		}
		return len(on) > 0 && slices.Equal(known, on)
	})
	r.kill(true)
	r.wantPending(int64(n))
}

// Files of a full disk are those of the store: nothing is left over once everything is delivered.
func TestSpaceIsNotLeakedOnAFullDisk(t *testing.T) {
	r := newRig(t)
	r.calm()
	for range 5 {
		r.room(3 * minSegmentBytes)
		for refused := 0; refused < 5; {
			if _, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 50, Body: body(1, 900)}); err != nil {
				refused++
				time.Sleep(time.Millisecond)
			}
		}
		r.clock.Store(rigNow)
		r.kill(false)
		r.fireAll(true)
		r.mem.SetCapacity(0)
		r.until("settles are durable", func() bool { return r.s.Stats().Settling == 0 })
		r.clock.Store(rigNow)
	}
	r.kill(true)
	r.calm()
	r.until("nothing but two segments, the reserve and MANIFEST", func() bool {
		st := r.s.Stats()
		return st.Pending == 0 && r.mem.Used() == st.DiskBytes && st.DiskBytes <= (2+spareFiles)*minSegmentBytes+r.s.reserveBytes()+2*r.o.manifestBytes
	})
}
