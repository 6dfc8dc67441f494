package timer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
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

func (r *rig) open() {
	r.t.Helper()
	r.fs = vfs.NewFaulty(r.mem)
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

// Damage.

func TestRotIsSkippedCountedAndKept(t *testing.T) {
	r := newRig(t)
	r.put(5, 5000, 200)
	seg := r.segment()
	off := seg.entries[2].off
	r.mem.Kill()
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	r.s.Close()
	r.flip(fileName(segPrefix, seg.id), off+100)
	r.open()
	r.wantPending(4)
	r.wantCorrupt(true)
	r.until("the evidence", func() bool { r.put(20, 5000, 900); return len(r.names(segPrefix, brokenSuffix)) == 1 })
}

func TestTornTailIsCut(t *testing.T) {
	r := newRig(t)
	r.put(5, 5000, 200)
	seg := r.segment()
	off := seg.entries[4].off // the last group: nothing says that it was synced
	r.mem.Kill()
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	r.s.Close()
	r.flip(fileName(segPrefix, seg.id), off+100)
	r.open()
	r.wantPending(4)
	r.wantCorrupt(false)
	r.put(1, 5000, 10)
	r.kill(true) // and stays cut when later groups are synced
	r.wantPending(5)
	r.wantCorrupt(false)
}

func TestRotAfterACleanStartIsSeen(t *testing.T) {
	r := newRig(t)
	r.put(5, 5000, 200)
	seg := r.segment()
	off := seg.entries[4].off
	r.kill(true) // MANIFEST now knows where the segment ends
	r.mem.Kill()
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	r.s.Close()
	r.flip(fileName(segPrefix, seg.id), off+100)
	r.open()
	r.wantPending(4)
	r.wantCorrupt(true)
}

func TestDamagedSegmentHead(t *testing.T) {
	r := newRig(t)
	r.put(5, 5000, 200)
	name := fileName(segPrefix, r.segment().id)
	r.mem.Kill()
	r.mem = r.mem.AfterKill()
	r.s.Close()
	r.flip(name, 20)
	r.open()
	r.wantPending(5)
	r.wantCorrupt(true)
}

func TestLostManifestIsRebuilt(t *testing.T) {
	for _, damage := range []string{"removed", "flipped"} {
		t.Run(damage, func(t *testing.T) {
			r := newRig(t)
			r.put(60, 5000, 900)
			r.until("seals", func() bool { return r.s.Stats().Seals >= 4 })
			mustClose(t, r.s)
			r.mem = r.mem.AfterKill()
			if damage == "flipped" {
				r.flip(manifestName, segHeadBytes+20)
			} else if err := r.mem.Remove("/data/" + manifestName); err != nil {
				t.Fatal(err)
			}
			r.open()
			r.wantPending(60)
			checkInvariants(t, r.s)
			if n := len(r.fireAll(true)); n != 60 {
				t.Fatal(n)
			}
			if damage == "flipped" && len(r.names(manifestName, brokenSuffix)) != 1 {
				t.Fatal("no evidence")
			}
		})
	}
}

func TestTornManifestTail(t *testing.T) {
	r := newRig(t)
	r.o.manifestBytes = 1 << 20
	r.kill(true)
	r.put(60, 5000, 900)
	r.until("seals", func() bool { return r.s.Stats().Seals >= 4 })
	mustClose(t, r.s)
	r.mem = r.mem.AfterKill()
	f, _ := r.mem.Open("/data/" + manifestName)
	size, _ := f.Size()
	f.Truncate(size - 3)
	f.Sync(true)
	r.open() // the last edit is gone: its run is adopted or its segment replayed
	if r.s.Stats().Pending < 60 {
		t.Fatalf("%+v", r.s.Stats())
	}
	checkInvariants(t, r.s)
}

func TestDamagedRun(t *testing.T) {
	r := newRig(t)
	r.put(60, 5000, 900)
	r.until("seals", func() bool { return r.s.Stats().Seals >= 4 })
	first, second := r.s.runs[0], r.s.runs[1]
	mustClose(t, r.s)
	r.mem = r.mem.AfterKill()
	r.flip(fileName(runPrefix, first.id), first.size-50)             // footer
	r.flip(fileName(runPrefix, second.id), second.indexOff+pageHead) // index page
	r.open()
	r.wantPending(60 - int64(first.entries))
	if len(r.names(runPrefix, brokenSuffix)) != 1 {
		t.Fatal("no evidence")
	}
	r.clock.Store(rigNow + 10_000)
	r.s.Start(r.c.sink)
	for fired := 0; fired < 60-first.entries-second.entries; { // the others are not held up
		for _, it := range r.c.wait(t) {
			fired++
			r.s.Settle(it)
		}
	}
	r.wantCorrupt(true)
}

func TestDamagedBodyInRun(t *testing.T) {
	r := newRig(t)
	r.put(15, 5000, 900)
	r.until("a seal", func() bool { return r.s.Stats().Seals >= 1 })
	run := r.s.runs[0]
	r.flip(fileName(runPrefix, run.id), segHeadBytes+headBytes+100)
	r.clock.Store(rigNow + 10_000)
	r.s.Start(r.c.sink)
	first := r.c.wait(t)[0]
	if _, err := r.s.Load(first); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Load: %v", err)
	}
	r.wantCorrupt(true)
}

func TestNewerFormatIsRefused(t *testing.T) {
	r := newRig(t)
	mustClose(t, r.s)
	f, _ := r.mem.Open("/data/" + manifestName)
	head, _ := readAt(f, 0, segHeadBytes)
	le.PutUint32(head[12:], formatVersion+1)
	le.PutUint32(head[8:], checksum(0, head[12:]))
	f.WriteAt(head, 0)
	if _, err := Open(r.o); !errors.Is(err, ErrVersion) {
		t.Fatalf("Open: %v", err)
	}
}

func TestFolderIsLocked(t *testing.T) {
	r := newRig(t)
	if _, err := Open(r.o); !errors.Is(err, ErrLocked) {
		t.Fatalf("second Open: %v", err)
	}
}

// A failing disk.

func TestFailedSyncStopsAcknowledging(t *testing.T) {
	r := newRig(t)
	r.put(3, 5000, 100)
	r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if op == vfs.OpSync {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	if _, err := putWait(r.s, &Entry{Due: rigNow}); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("put: %v", err)
	}
	if _, err := putWait(r.s, &Entry{Due: rigNow}); !errors.Is(err, ErrFailed) {
		t.Fatalf("put: %v", err)
	}
	r.fs.Set(nil)
	r.until("puts again", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 6000})
		return err == nil
	})
	r.kill(true)
	r.wantPending(4)
	r.wantCorrupt(false)
	if n := len(r.fireAll(true)); n != 4 {
		t.Fatal(n)
	}
}

// What a failed group left behind neither comes back nor looks like rot, although the segment is not sealed yet and
// later groups say that everything before them is synced.
func TestFailedGroupIsCutOff(t *testing.T) {
	r := newRig(t)
	r.put(3, 5000, 100)
	var fail atomic.Bool
	fail.Store(true)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		seg := strings.HasPrefix(path, "/data/"+segPrefix)
		switch {
		case op == vfs.OpCreate && strings.HasPrefix(path, "/data/"+runPrefix):
			return &vfs.Fault{Err: syscall.EIO} // nothing is sealed
		case op == vfs.OpWrite && seg && fail.Load():
			fail.Store(false)
			return &vfs.Fault{Err: syscall.EIO, Short: true}
		}
		return nil
	})
	var wg sync.WaitGroup
	wg.Add(2)
	for range 2 { // one of them whole, one torn, or both torn
		if _, err := r.s.Put(&Entry{Flow: Flow{"b", "t"}, Due: rigNow, Body: body(1, 500)}, func(err error) { wg.Done() }); err != nil {
			wg.Done()
		}
	}
	wg.Wait()
	var acked atomic.Int64
	r.until("puts again", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 6000})
		if err == nil {
			acked.Add(1)
		}
		return acked.Load() == 3
	})
	before := r.s.Stats().Pending
	r.kill(false)
	r.wantPending(before)
	r.wantCorrupt(false)
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

// A put that is earlier than what was fired already moves the resume point back behind fired entries of a run: the loader
// must leave those out.
func TestLoaderLeavesFiredEntriesOut(t *testing.T) {
	r := newRig(t)
	r.put(30, 500, 900)
	r.until("runs", func() bool { return r.s.Stats().Runs >= 2 })
	r.clock.Store(rigNow + 600)
	r.s.Start(r.c.sink)
	var items []Item
	for len(items) < r.o.Window {
		items = append(items, r.c.wait(t)...)
	}
	r.put(1, 100, 10)
	checkInvariants(t, r.s)
	seen := map[LSN]bool{}
	for n := 0; n < 31; {
		for _, it := range items {
			if seen[it.LSN] {
				t.Fatalf("%d fired twice", it.LSN)
			}
			seen[it.LSN] = true
		}
		n = len(seen)
		for _, it := range items[len(items)/2:] { // half of the window stays out while the loader works
			r.s.Settle(it)
		}
		next := items[:len(items)/2]
		items = nil
		if n < 31 && len(next) < r.o.Window {
			items = r.c.wait(t)
		}
		for _, it := range next {
			r.s.Settle(it)
		}
		checkInvariants(t, r.s)
	}
	r.wantPending(0)
}

func TestFullDisk(t *testing.T) {
	r := newRig(t)
	var full atomic.Bool
	full.Store(true)
	r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if full.Load() && (op == vfs.OpCreate || op == vfs.OpRename) {
			return &vfs.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	acked := int64(0)
	var err error
	for err == nil {
		if _, err = putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 500, Body: body(1, 900)}); err == nil {
			acked++
		}
	}
	if !errors.Is(err, ErrFull) || acked < 10 {
		t.Fatalf("after %d puts: %v", acked, err)
	}
	r.wantPending(acked)
	full.Store(false)
	r.until("puts again", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 6000})
		return err == nil
	})
	r.kill(true)
	r.wantPending(acked + 1)
	r.wantCorrupt(false)
}

func TestPutRefusals(t *testing.T) {
	r := newRig(t)
	if _, err := r.s.Put(&Entry{Body: make([]byte, minSegmentBytes)}, nil); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("too large: %v", err)
	}
	block := make(chan struct{})
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpSync {
			<-block
		}
		return nil
	})
	answers := make(chan error, 100_000)
	n := 0
	var err error
	for err == nil {
		if _, err = r.s.Put(&Entry{Due: rigNow, Body: make([]byte, 10_000)}, func(err error) { answers <- err }); err == nil {
			n++
		}
	}
	if !errors.Is(err, ErrBusy) {
		t.Fatalf("busy: %v", err)
	}
	close(block)
	for range n {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, r.s)
	if _, err := r.s.Put(&Entry{}, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
}
