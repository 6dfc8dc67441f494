package timer

import (
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/delaygate/delaygate/timer/vfs"
)

// The rows of the crash table in the package comment that are about merges.

func isManifestWrite(op vfs.Op, path string) bool {
	return (op == vfs.OpWrite || op == vfs.OpCreate) && strings.HasPrefix(path, "/data/"+manifestName)
}

func TestCrashWhileMergedRunIsWritten(t *testing.T) {
	for _, power := range []bool{false, true} {
		m := newMergeRig(t, 300)
		var hook mergeHook
		at := newStop(t)
		m.remergeWith(2, &hook, func(op vfs.Op, path string) *vfs.Fault {
			if hook.is(op, path) && op == vfs.OpSync {
				at.wait()
			}
			return nil
		})
		<-at.reached
		m.mem.Kill()
		at.release()
		m.crash(power)
		if slices.Contains(m.names(runPrefix, ""), hook.name()) {
			t.Fatal("the unfinished run is still there")
		}
		m.check()
	}
}

// unnamedRig is stopped where a merged run is installed in RAM and MANIFEST does not have it.
func unnamedRig(t *testing.T) (*mergeRig, *mergeHook) {
	m := newMergeRig(t, 300)
	m.clock.Store(rigNow + 25_000)
	var hook mergeHook
	m.remergeWith(2, &hook, func(op vfs.Op, path string) *vfs.Fault {
		if !hook.is(op, path) && isManifestWrite(op, path) && hook.whole() {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	m.until("the merged run in RAM", func() bool {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		return m.s.unnamed && !m.s.installing
	})
	return m, &hook
}

func TestCrashBetweenMergedRunAndManifest(t *testing.T) {
	m, hook := unnamedRig(t)
	checkInvariants(t, m.s)
	m.s.Start(m.c.sink)
	var done []LSN
	for _, it := range m.c.wait(t) {
		done = append(done, it.LSN)
		m.s.Settle(it)
	}
	mustClose(t, m.s) // the settles are synced
	m.o.MaxRuns = 128
	m.mem = m.mem.AfterPowerLoss(nil, 0)
	m.openWith(nil)
	if slices.Contains(m.names(runPrefix, ""), hook.name()) {
		t.Fatal("the unnamed run is still there")
	}
	m.check(done...)
}

// An entry whose cancel is not synced yet is left out of the merged run. As long as MANIFEST names the sources, only the record of a cancel
// keeps it from coming back: who asks again is answered when one is synced.
func TestCancelOfWhatAMergeLeftOut(t *testing.T) {
	m := newMergeRig(t, 300)
	var hook mergeHook
	var hold atomic.Bool
	var blocked atomic.Value // path of the segment that is not synced
	hold.Store(true)
	syncing := newStop(t)
	m.remergeWith(2, &hook, func(op vfs.Op, path string) *vfs.Fault {
		switch {
		case op == vfs.OpFree && hold.Load(): // no merge begins
			return &vfs.Fault{Err: syscall.EIO}
		case op == vfs.OpSync && path == blocked.Load():
			syncing.wait()
		case !hook.is(op, path) && isManifestWrite(op, path) && hook.whole():
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	lsn := m.order[200]
	answers := make(chan Outcome, 2)
	var disk *vfs.Mem
	mem := m.mem
	cancel := func() {
		m.s.Cancel(m.dues[lsn], lsn, func(out Outcome, err error) {
			if disk == nil { // at the first answer, whichever cancel gets it
				disk = mem.AfterPowerLoss(nil, 0)
			}
			answers <- out
		})
	}
	blocked.Store(m.segment().path)
	cancel()
	<-syncing.reached
	hold.Store(false)
	m.until("the merged run in RAM", func() bool {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		return m.s.unnamed && !m.s.installing
	})
	cancel()
	syncing.release()
	if a, b := <-answers, <-answers; a != Cancelled || b != CancelledBefore {
		t.Fatalf("%v, then %v", a, b)
	}
	mustClose(t, m.s)
	m.mem, m.o.MaxRuns = disk, 128
	m.openWith(nil)
	m.check(lsn)
}

func TestCrashBeforeSourcesAreUnlinked(t *testing.T) {
	m := newMergeRig(t, 300)
	at := newStop(t)
	m.remerge(2, func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpRemove && strings.HasPrefix(path, "/data/"+runPrefix) {
			at.wait()
		}
		return nil
	})
	<-at.reached
	if n := len(m.names(runPrefix, "")); n < mergeWays+1 {
		t.Fatalf("%d runs on the disk", n)
	}
	m.mem.Kill()
	at.release()
	m.crash(true)
	if n := len(m.names(runPrefix, "")); n > 2 { // the merged one, and one that was beyond mergeWays
		t.Fatalf("%d runs on the disk", n)
	}
	m.check()
}

// mergedDisk merges all runs into one and returns the names of the sources and of the new run; all are on the disk.
func mergedDisk(t *testing.T) (m *mergeRig, sources []string, made string) {
	m = newMergeRig(t, 200)
	sources = m.names(runPrefix, "")
	m.o.manifestBytes = 1 << 20 // the merge is an edit of its own, and the last
	m.remerge(len(sources)-1, func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpRemove && strings.HasPrefix(path, "/data/"+runPrefix) {
			return &vfs.Fault{Skip: true}
		}
		return nil
	})
	m.merged(1)
	m.until("the sources out of use", func() bool {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		return len(m.s.trash) == 0
	})
	m.mem.Kill()
	m.mem = m.mem.AfterPowerLoss(nil, 0)
	m.s.Close()
	for _, name := range m.names(runPrefix, "") {
		if !slices.Contains(sources, name) {
			made = name
		}
	}
	if made == "" || len(sources) < 4 || len(sources) > mergeWays {
		t.Fatalf("merged %v into %q", sources, made)
	}
	m.o.MaxRuns = 128
	return m, sources, made
}

func (m *mergeRig) remove(names ...string) {
	m.t.Helper()
	for _, name := range names {
		if err := m.mem.Remove("/data/" + name); err != nil {
			m.t.Fatal(err)
		}
	}
}

// Whatever is left of the sources when the edit that names the merged run, or all of MANIFEST, is lost: every entry is there once.
func TestMergedRunAndDamagedManifest(t *testing.T) {
	for _, c := range []struct {
		name     string
		manifest string // what is lost
		gone     int    // sources, -1: all
		made     bool   // the merged run counts
	}{
		{"last edit lost, sources gone", "edit", -1, true},
		{"last edit lost, one source gone", "edit", 1, true},
		{"last edit lost, sources there", "edit", 0, false},
		{"MANIFEST lost, sources gone", "all", -1, true},
		{"MANIFEST lost, one source gone", "all", 1, true},
		{"MANIFEST lost, sources there", "all", 0, false},
		{"nothing lost, sources there", "", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, sources, made := mergedDisk(t)
			if c.gone < 0 {
				c.gone = len(sources)
			}
			m.remove(sources[:c.gone]...)
			runs := 1
			if !c.made {
				runs = len(sources)
			}
			switch c.manifest {
			case "edit":
				b, err := readFile(m.mem, "/data/"+manifestName)
				if err != nil {
					t.Fatal(err)
				}
				m.flip(manifestName, int64(len(b))-1)
			case "all":
				m.remove(manifestName)
				m.harm = 1
			}
			m.openWith(nil)
			if st := m.s.Stats(); st.Runs != runs {
				t.Fatalf("%d runs count, want %d", st.Runs, runs)
			}
			if has := slices.Contains(m.names(runPrefix, ""), made); has != c.made {
				t.Fatalf("the merged run is there: %v", has)
			}
			if n := len(m.names(runPrefix, "")); n != runs {
				t.Fatalf("%d runs on the disk, want %d", n, runs)
			}
			m.check()
		})
	}
}

// A source that is damaged beyond reading is no sign that the merge was finished.
func TestUnfinishedMergeBesideADamagedSource(t *testing.T) {
	m, sources, _ := mergedDisk(t)
	b, err := readFile(m.mem, "/data/"+manifestName)
	if err != nil {
		t.Fatal(err)
	}
	m.flip(manifestName, int64(len(b))-1)
	f, err := m.mem.Open("/data/" + sources[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(segHeadBytes + 10); err != nil {
		t.Fatal(err)
	}
	f.Sync(false)
	m.openWith(nil)
	m.wantCorrupt(true)
	if st := m.s.Stats(); st.Runs != len(sources)-1 || st.Pending < 120 {
		t.Fatalf("the others do not count: %+v", st)
	}
}
