package timer

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// The rows of the crash table in the package comment, in its order.

func TestCrashBeforeSyncOfPut(t *testing.T) {
	r := newRig(t)
	acked := make(chan error, 1)
	block, blocked := make(chan struct{}), make(chan struct{}, 1)
	open := r.segment().path
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpSync && path == open {
			select {
			case blocked <- struct{}{}:
			default:
			}
			<-block
		}
		return nil
	})
	if _, err := r.s.Put(&Entry{Due: rigNow}, func(err error) { acked <- err }); err != nil {
		t.Fatal(err)
	}
	<-blocked
	select {
	case <-acked:
		t.Fatal("acknowledged before the sync")
	default:
	}
	r.mem.Kill()
	killed, lost := r.mem.AfterKill(), r.mem.AfterPowerLoss(nil, 0)
	close(block)
	r.s.Close()
	if err := <-acked; err == nil {
		t.Fatal("acknowledged although the sync failed")
	}
	r.mem = killed
	r.open()
	r.wantPending(1) // may appear
	r.wantCorrupt(false)
	r.s.Close()
	r.mem = lost
	r.open()
	r.wantPending(0)
	r.wantCorrupt(false)
}

func TestCrashAfterSyncOfPut(t *testing.T) {
	r := newRig(t)
	lsns := r.put(3, 50, 100)
	r.kill(true)
	r.wantPending(3)
	for i, it := range r.fireAll(true) {
		if it.LSN != lsns[i] {
			t.Fatalf("fired %d, want %d", it.LSN, lsns[i])
		}
	}
}

func TestCrashBetweenRunAndManifest(t *testing.T) {
	r := newRig(t)
	mem := r.mem
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault { // MANIFEST cannot be written once there is a run
		if len(namesIn(mem, runPrefix, "")) > 0 && (op == vfs.OpWrite || op == vfs.OpCreate) && len(path) >= 14 && path[:14] == "/data/MANIFEST" {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	r.put(20, 5000, 900)
	r.until("a run", func() bool { return len(r.names(runPrefix, "")) > 0 })
	run := r.names(runPrefix, "")[0]
	r.until("its sync", func() bool { _, err := openRun(r.mem, "/data/"+run, mustID(run)); return err == nil })
	r.kill(true)
	r.wantPending(20)
	if _, err := r.mem.Open("/data/" + run); !vfs.IsNotExist(err) {
		t.Fatalf("the unnamed run is still there: %v", err)
	}
	r.fireAll(true)
	r.wantCorrupt(false)
}

func mustID(name string) uint64 {
	id, ok := anyID(name)
	if !ok {
		panic(name)
	}
	return id
}

func TestCrashAfterManifestBeforeRecycling(t *testing.T) {
	r := newRig(t)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpRename && len(path) > 11 && path[:11] == "/data/free-" {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	r.put(20, 5000, 900)
	r.until("a seal", func() bool { return r.s.Stats().Seals > 0 })
	r.kill(true)
	r.wantPending(20)
	if n := len(r.fireAll(true)); n != 20 {
		t.Fatalf("fired %d", n)
	}
	r.wantCorrupt(false)
}

func TestCrashBeforeSettleIsWritten(t *testing.T) {
	r := newRig(t)
	r.put(3, 50, 10)
	if n := len(r.fireAll(false)); n != 3 {
		t.Fatal(n)
	}
	r.kill(false)
	r.wantPending(3) // fires again
}

func TestCrashAfterSettleIsSynced(t *testing.T) {
	r := newRig(t)
	r.put(3, 50, 10)
	r.fireAll(true)
	r.put(2, 90_000, 10) // the settles ride with the first or the second
	r.kill(true)
	r.wantPending(2)
}

func TestSettleIsSyncedWithoutPuts(t *testing.T) {
	r := newRig(t)
	r.put(1, 50, 10)
	r.fireAll(true)
	r.until("the settle on disk", func() bool {
		s, err := Open(withFS(r.o, r.mem.AfterPowerLoss(nil, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Stats().Pending == 0
	})
}

func withFS(o Options, fs vfs.FS) Options {
	o.FS = fs
	return o
}

func TestSettlesOfRunsSurviveTheirSegment(t *testing.T) {
	r := newRig(t)
	r.o.Window = 64
	r.kill(false)
	r.put(40, 50, 900) // several runs
	r.until("seals", func() bool { return r.s.Stats().Seals >= 3 })
	r.clock.Store(rigNow + 60)
	r.s.Start(r.c.sink)
	var items []Item
	for len(items) < 20 {
		items = append(items, r.c.wait(t)...)
	}
	for i, it := range items {
		if i%2 == 0 {
			r.s.Settle(it)
		}
	}
	want := 40 - int64(len(items)+1)/2
	seals := r.s.Stats().Seals
	r.put(40, 90_000, 900) // seals the segment with the settles
	r.until("seals", func() bool { return r.s.Stats().Seals >= seals+3 })
	r.kill(true)
	r.wantPending(want + 40)
	checkInvariants(t, r.s)
}

func TestNumbersAreNeverUsedTwice(t *testing.T) {
	r := newRig(t)
	first := r.put(1, 50, 10)[0]
	r.kill(true)
	second := r.put(1, 50, 10)[0]
	if second < first+lsnSkip {
		t.Fatalf("%d after %d", second, first)
	}
	r.fireAll(true)
	mustClose(t, r.s)
	r.open()
	if third := r.put(1, 50, 10)[0]; third < second+lsnSkip {
		t.Fatalf("%d after %d", third, second)
	}
}

// What recovery read from the page cache is made durable before its end is noted: a later power loss does not look like rot.
func TestReplayedSegmentsAreSynced(t *testing.T) {
	r := newRig(t)
	r.o.Sync, r.o.SyncEvery = SyncInterval, time.Hour // what is put is written, not synced
	r.kill(true)
	old := r.s
	r.put(3, 5000, 100)
	r.mem.Kill()
	r.mem = r.mem.AfterKill()
	old.Close()
	fs := vfs.NewFaulty(r.mem)
	block := make(chan struct{})
	var segs atomic.Int64
	fs.Set(func(op vfs.Op, path string) *vfs.Fault { // the janitor stops before it seals
		if op == vfs.OpCreate && strings.HasPrefix(path, "/data/"+segPrefix) && segs.Add(1) == 2 {
			<-block
		}
		return nil
	})
	s := mustOpen(t, withFS(r.o, fs))
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	close(block)
	mustClose(t, s)
	r.open()
	r.wantPending(3)
	r.wantCorrupt(false)
}
