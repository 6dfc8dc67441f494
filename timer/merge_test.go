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

func TestMergeByNumber(t *testing.T) {
	m := newMergeRig(t, 600)
	before := m.s.Stats().Runs
	m.remerge(4, nil)
	m.until("few runs", func() bool { return m.s.Stats().Runs <= 4 })
	st := m.s.Stats()
	if before < 12 || st.Merges < 1 || st.MergedBytes < 600*150 || st.Pending != 600 {
		t.Fatalf("%d runs before, now %+v", before, st)
	}
	m.until("the sources are unlinked", func() bool { return len(m.names(runPrefix, "")) == st.Runs })
	m.crash(true)
	m.check()
}

// Every key finds its entry in merged runs.
func TestKeysAfterMerge(t *testing.T) {
	m := newMergeRig(t, 300)
	m.remerge(2, nil)
	m.until("few runs", func() bool { return m.s.Stats().Runs <= 2 })
	for lsn, k := range m.keys {
		var n int
		fmt.Sscanf(k, "key%d", &n)
		for key, want := range map[string]int{k: 1, fmt.Sprint("order", n/2): 1, "all": 100} {
			rows, err := m.s.Find(Search{Topic: fmt.Sprint("topic", n%3), Key: key, Limit: 300})
			if err != nil || len(rows) != want || !slices.ContainsFunc(rows, func(r Row) bool { return r.LSN == lsn }) {
				t.Fatalf("%s finds %d rows, want %d, lsn %d among them; %v", key, len(rows), want, lsn, err)
			}
		}
	}
}

// What is settled or cancelled while its runs are being merged is done in the new run, and stays so after a power loss.
func TestSettleAndCancelDuringMerge(t *testing.T) {
	for _, where := range []string{"writing", "MANIFEST"} {
		t.Run(where, func(t *testing.T) {
			m := newMergeRig(t, 300)
			m.clock.Store(rigNow + 25_000) // about a quarter is due
			var hook mergeHook
			at := newStop(t)
			m.remergeWith(2, &hook, func(op vfs.Op, path string) *vfs.Fault {
				made := hook.is(op, path)
				switch {
				case where == "writing" && made && op == vfs.OpWrite:
					at.wait()
				case where == "MANIFEST" && op == vfs.OpWrite && strings.HasPrefix(path, "/data/"+manifestName) && hook.whole():
					at.wait()
				}
				return nil
			})
			<-at.reached
			m.s.Start(m.c.sink)
			items := m.c.wait(t)
			var done []LSN
			for i, it := range items {
				if i%3 == 0 {
					done = append(done, it.LSN)
					m.s.Settle(it)
				}
			}
			for i, lsn := range m.order {
				if m.dues[lsn] < rigNow+30_000 || i%4 != 0 {
					continue
				}
				answer := make(chan Outcome, 1)
				m.s.Cancel(m.dues[lsn], lsn, func(out Outcome, _ error) { answer <- out })
				if out := <-answer; out != Cancelled {
					t.Fatalf("cancel: %v", out)
				}
				done = append(done, lsn)
			}
			if len(done) < 30 {
				t.Fatalf("only %d were done during the merge", len(done))
			}
			at.release()
			m.until("few runs", func() bool { return m.s.Stats().Runs <= 2 })
			m.wantPending(int64(300 - len(done)))
			m.fs.Set(nil)
			mustClose(t, m.s) // the settles are synced
			m.mem = m.mem.AfterPowerLoss(nil, 0)
			m.openWith(nil)
			m.check(done...)
		})
	}
}

// A reader of a source finishes on the old file, which is not unlinked before.
func TestLoadDuringMerge(t *testing.T) {
	m := newMergeRig(t, 200)
	m.clock.Store(rigNow + 25_000)
	reading := newStop(t)
	var path atomic.Value
	var hold atomic.Bool
	hold.Store(true)
	m.remerge(2, func(op vfs.Op, p string) *vfs.Fault {
		switch {
		case op == vfs.OpFree && hold.Load(): // no merge begins
			return &vfs.Fault{Err: syscall.EIO}
		case op == vfs.OpRead && path.CompareAndSwap(p, ""):
			reading.wait()
		}
		return nil
	})
	m.s.Start(m.c.sink)
	item := m.c.wait(t)[20] // not the first record of any run
	m.s.mu.Lock()
	home := item.entry.home
	m.s.mu.Unlock()
	loaded := make(chan error, 1)
	path.Store(home.path)
	go func() {
		_, err := m.s.Load(item)
		loaded <- err
	}()
	<-reading.reached
	hold.Store(false)
	m.merged(1)
	m.s.mu.Lock()
	moved := item.entry.home != home
	m.s.mu.Unlock()
	if !moved {
		t.Fatal("the entry was not merged")
	}
	if !slices.Contains(m.names(runPrefix, ""), strings.TrimPrefix(home.path, "/data/")) {
		t.Fatal("the source was unlinked under its reader")
	}
	if n := len(m.s.candidates(time.Now())); n != 0 {
		t.Fatalf("the next merge may begin, of %d runs", n)
	}
	reading.release()
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	m.until("the source is unlinked", func() bool { return !slices.Contains(m.names(runPrefix, ""), strings.TrimPrefix(home.path, "/data/")) })
	if b, err := m.s.Load(item); err != nil || string(b) != string(m.bodies[item.LSN]) {
		t.Fatalf("load from the new run: %d bytes, %v", len(b), err)
	}
}

// A damaged record stays where it is in the order and is reported when it fires; its neighbours are delivered, its old file is kept.
func TestMergeOfDamagedRecord(t *testing.T) {
	m := newMergeRig(t, 300)
	m.s.mu.Lock()
	r := m.s.runs[1]
	m.s.mu.Unlock()
	place, err := r.offsets(7)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, m.s)
	m.mem = m.mem.AfterKill()
	m.flip(fileName(runPrefix, r.id), place.from+headBytes+20)
	m.o.MaxRuns = 2
	m.openWith(nil)
	m.until("few runs", func() bool { return m.s.Stats().Runs <= 2 })
	m.wantPending(300)
	m.until("the evidence", func() bool {
		return slices.Contains(m.names(runPrefix, brokenSuffix), fileName(runPrefix, r.id)+brokenSuffix)
	})
	m.clock.Store(rigNow + 100_000)
	m.s.Start(m.c.sink)
	damaged := 0
	for got := 0; got < 300; {
		for _, it := range m.c.wait(t) {
			got++
			b, err := m.s.Load(it)
			switch {
			case errors.Is(err, ErrCorrupt):
				damaged++
			case err != nil || string(b) != string(m.bodies[it.LSN]):
				t.Fatalf("%+v with %d bytes, %v", it, len(b), err)
			}
		}
	}
	if n := m.s.Stats().Corrupt; damaged != 1 || n != 1 {
		t.Fatalf("%d damaged, %d counted", damaged, n)
	}
}

// A run with a damaged page is written anew and merged then; one that cannot be read is left alone; the others are merged.
func TestRunsThatCannotBeMerged(t *testing.T) {
	for _, what := range []string{"index", "keys", "unreadable"} {
		t.Run(what, func(t *testing.T) {
			m := newMergeRig(t, 600)
			m.s.mu.Lock()
			r := m.s.runs[0]
			m.s.mu.Unlock()
			bad := fileName(runPrefix, r.id)
			mustClose(t, m.s)
			m.mem = m.mem.AfterKill()
			switch what {
			case "index":
				m.flip(bad, r.indexOff+100)
			case "keys":
				m.flip(bad, r.keysOff+100)
			}
			m.o.MaxRuns = 3
			var opened atomic.Bool
			m.openWith(func(op vfs.Op, path string) *vfs.Fault {
				if what == "unreadable" && opened.Load() && op == vfs.OpRead && path == "/data/"+bad {
					return &vfs.Fault{Err: syscall.EIO}
				}
				return nil
			})
			opened.Store(true)
			m.until("the others are merged", func() bool { return m.s.Stats().Runs <= 3 })
			if what == "unreadable" && !slices.Contains(m.names(runPrefix, ""), bad) {
				t.Fatal("the run was merged, or dropped")
			}
			m.until("evidence", func() bool {
				return what == "unreadable" || slices.Contains(m.names(runPrefix, brokenSuffix), bad+brokenSuffix)
			})
			if n := m.s.Stats().Pending; n != 600 {
				t.Fatalf("%d pending", n)
			}
			m.wantCorrupt(what != "unreadable")
		})
	}
}

// A merge that fails leaves nothing behind and is tried again.
func TestFailedMergeIsTriedAgain(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir} {
		t.Run(string(rune('a'+int(op))), func(t *testing.T) {
			m := newMergeRig(t, 300)
			var hook mergeHook
			var failed atomic.Int64
			m.remergeWith(2, &hook, func(o vfs.Op, path string) *vfs.Fault {
				made := hook.is(o, path) || op == vfs.OpSyncDir && hook.name() != ""
				if o == op && made && failed.Add(1) == 1 {
					return &vfs.Fault{Err: syscall.ENOSPC}
				}
				return nil
			})
			m.until("few runs", func() bool { return m.s.Stats().Runs <= 2 })
			if failed.Load() == 0 {
				t.Fatal("nothing failed")
			}
			if slices.Contains(m.names(runPrefix, ""), hook.name()) {
				t.Fatalf("%s is still there", hook.name())
			}
			m.crash(true)
			m.check()
		})
	}
}

// A store that is closed during a merge ends it and begins anew.
func TestCloseDuringMerge(t *testing.T) {
	m := newMergeRig(t, 300)
	var hook mergeHook
	at := newStop(t)
	m.remergeWith(2, &hook, func(op vfs.Op, path string) *vfs.Fault {
		if hook.is(op, path) && op == vfs.OpWrite {
			at.wait()
		}
		return nil
	})
	<-at.reached
	closed := make(chan error, 1)
	go func() { closed <- m.s.Close() }()
	at.release()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	m.mem = m.mem.AfterKill()
	m.o.MaxRuns = 128
	m.openWith(nil)
	m.check()
}

// What ends at any moment of a merge is done in the new run, as settled or as cancelled; what does not has its place there.
func TestEndingsAtEveryStepOfTakingOver(t *testing.T) {
	m := newMergeRig(t, 200)
	m.o.lookEvery, m.o.punchBytes = time.Hour, 100 // nothing is punched or merged but here
	m.reopen(nil)
	s := m.s
	m.clock.Store(rigNow + 30_000)
	s.Start(m.c.sink)
	items := m.c.wait(t)
	j := &mergeJob{s: s, id: 1 << 20}
	s.mu.Lock()
	for _, r := range s.runs {
		r.merging = true
		j.sources = append(j.sources, &source{run: r})
	}
	s.mu.Unlock()
	settled, cancelled := map[LSN]bool{}, map[LSN]bool{}
	last := len(m.order)
	end := func() { // settles two and cancels two
		for range 2 {
			s.Settle(items[0])
			settled[items[0].LSN] = true
			items = items[1:]
			last--
			lsn := m.order[last]
			if out, err := cancelWait(s, m.dues[lsn], lsn); out != Cancelled || err != nil {
				t.Fatalf("cancel: %v, %v", out, err)
			}
			cancelled[lsn] = true
			if out, err := cancelWait(s, m.dues[lsn], lsn); out != CancelledBefore || err != nil {
				t.Fatalf("cancel once more: %v, %v", out, err)
			}
		}
	}
	out, err := j.run()
	if err != nil {
		t.Fatal(err)
	}
	j.out = out
	for _, src := range j.sources {
		src.out = out
	}
	end()
	s.mu.Lock()
	s.installing = true
	s.generation++
	s.mu.Unlock()
	held, err := s.locate(j)
	if err != nil {
		t.Fatal(err)
	}
	end()
	s.carryMost(j)
	end()
	if jobs := s.punchable(); len(jobs) != 0 {
		t.Fatalf("%d runs would be punched during their merge", len(jobs))
	}
	if err := s.replace(j); err != nil {
		t.Fatal(err)
	}
	end()
	s.move(held, out)
	end()
	s.mu.Lock()
	s.installing = false
	if want := 200 - len(settled) - len(cancelled); out.pending != want {
		t.Errorf("%d pending in the new run, want %d", out.pending, want)
	}
	for ord := range out.entries {
		b := make([]byte, pageBytes)
		if err := out.readPage(ord/pageEntries, b); err != nil {
			t.Error(err)
		}
		lsn := pageEntry(b, ord%pageEntries).lsn
		if out.isDone(ord) != (settled[lsn] || cancelled[lsn]) || out.isCancelled(ord) != cancelled[lsn] {
			t.Errorf("entry %d: done %v, cancelled %v; settled %v, cancelled %v", ord, out.isDone(ord), out.isCancelled(ord), settled[lsn], cancelled[lsn])
		}
	}
	s.mu.Unlock()
	checkInvariants(t, s)
	for _, it := range items {
		if b, err := s.Load(it); err != nil || string(b) != string(m.bodies[it.LSN]) {
			t.Fatalf("load of %+v: %d bytes, %v", it, len(b), err)
		}
	}
	for _, src := range j.sources {
		src.run.f.Close()
	}
}
