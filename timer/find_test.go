package timer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/delaygate/delaygate/timer/vfs"
)

// findRig has 4 entries of each of two topics in runs and 4 of each in segments: entry i has the unique key u<i>, the
// business keys order<i/2> and all, and is due in 50 s.
type findRig struct {
	*rig
	lsns []LSN
}

const findIn = 50_000

func newFindRig(t *testing.T) *findRig {
	t.Helper()
	f := &findRig{rig: newRig(t)}
	f.putKeys(8)
	f.sealAll(80_000)
	f.putKeys(8)
	return f
}

func (f *findRig) putKeys(n int) {
	f.t.Helper()
	for range n {
		i := len(f.lsns)
		lsn, err := putWait(f.s, &Entry{
			Flow: Flow{fmt.Sprint("b", i%3), fmt.Sprint("topic", i%2)}, Lane: uint16(i), Due: rigNow + findIn, Key: fmt.Sprint("u", i),
			Keys: fmt.Sprintf("order%d  all", i/2), Body: body(i, 50),
		})
		if err != nil {
			f.t.Fatal(err)
		}
		f.lsns = append(f.lsns, lsn)
	}
}

// wantFound wants exactly these entries, in this order, in these states.
func (f *findRig) wantFound(topic, k string, want map[int]State) {
	f.t.Helper()
	rows, err := f.s.Find(Search{Topic: topic, Key: k})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range rows {
		i := slices.Index(f.lsns, r.LSN)
		state, ok := want[i]
		if !ok || r.State != state || r.Due != rigNow+findIn || r.Flow != (Flow{fmt.Sprint("b", i%3), topic}) || r.Lane != uint16(i) ||
			r.Key != fmt.Sprint("u", i) || r.Keys != fmt.Sprintf("order%d  all", i/2) || r.Len < 50 {
			f.t.Fatalf("find %s of %s: entry %d, %+v; want %v", k, topic, i, r, want)
		}
	}
	pending := slices.IndexFunc(rows, func(r Row) bool { return r.State.over() })
	if pending < 0 {
		pending = len(rows)
	}
	byLSN := func(a, b Row) int { return cmp.Compare(a.LSN, b.LSN) }
	if len(rows) != len(want) || !slices.IsSortedFunc(rows[:pending], byLSN) || !slices.IsSortedFunc(rows[pending:], byLSN) ||
		slices.ContainsFunc(rows[pending:], func(r Row) bool { return !r.State.over() }) {
		f.t.Fatalf("find %s of %s: %+v, want %v", k, topic, rows, want)
	}
}

func (f *findRig) wantByLSN(i int, want State) {
	f.t.Helper()
	r, err := f.s.FindLSN(f.lsns[i])
	if err != nil || r.LSN != f.lsns[i] || r.Due != rigNow+findIn || r.State != want || r.Key != fmt.Sprint("u", i) {
		f.t.Fatalf("find entry %d: %+v, %v; want %v", i, r, err, want)
	}
}

func TestFindByEachKey(t *testing.T) {
	f := newFindRig(t)
	check := func() {
		t.Helper()
		for i := range f.lsns {
			topic, other := fmt.Sprint("topic", i%2), fmt.Sprint("topic", 1-i%2)
			f.wantFound(topic, fmt.Sprint("u", i), map[int]State{i: StateWaiting})
			f.wantFound(topic, fmt.Sprint("order", i/2), map[int]State{i: StateWaiting})
			f.wantFound(other, fmt.Sprint("u", i), nil)
			f.wantByLSN(i, StateWaiting)
		}
		all := map[int]State{}
		for i := 1; i < len(f.lsns); i += 2 {
			all[i] = StateWaiting
		}
		f.wantFound("topic1", "all", all)
		for _, k := range []string{"", "u", "al", "order1  all", "u1 ", "none"} {
			f.wantFound("topic1", k, nil)
		}
		f.wantFound("none", "all", nil)
	}
	check()
	f.kill(true)
	check()
	f.sealAll(80_000)
	check()
	if _, err := f.s.FindLSN(f.s.Stats().LastLSN + 7); !errors.Is(err, ErrNotPending) {
		t.Fatal(err)
	}
	if rows, err := f.s.Find(Search{Topic: "topic1", Key: "all", Limit: 3}); len(rows) != 3 || err != nil {
		t.Fatalf("%+v, %v", rows, err)
	}
	for _, limit := range []int{-1, maxRows + 1} {
		if _, err := f.s.Find(Search{Topic: "topic1", Key: "all", Limit: limit}); err == nil {
			t.Fatalf("limit %d passes", limit)
		}
	}
	mustClose(t, f.s)
	if _, err := f.s.Find(Search{Topic: "topic1", Key: "all", Limit: 3}); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, err := f.s.FindLSN(f.lsns[0]); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

// Entries that are not pending any more come last, and never push out one that is.
func TestFindTellsStates(t *testing.T) {
	f := newFindRig(t)
	for _, i := range []int{1, 3, 9, 11} { // two in a run, two in a segment
		f.wantCancel(findIn, f.lsns[i], Cancelled)
	}
	f.clock.Store(rigNow + findIn)
	f.s.Start(f.c.sink)
	for fired := 0; fired < 12; {
		for _, it := range f.c.wait(t) {
			if i := slices.Index(f.lsns, it.LSN); i == 13 || i == 15 || i == 7 {
				fired++ // these stay
			} else {
				f.s.Settle(it)
				fired++
			}
		}
	}
	want := map[int]State{
		1: StateCancelled, 3: StateCancelled, 5: StateSettled, 7: StateSending, 9: StateCancelled, 11: StateCancelled, 13: StateSending, 15: StateSending,
	}
	f.wantFound("topic1", "all", want)
	for i, state := range want {
		f.wantFound("topic1", fmt.Sprint("u", i), map[int]State{i: state})
		f.wantByLSN(i, state)
	}
	rows, err := f.s.Find(Search{Topic: "topic1", Key: "all", Limit: 3})
	if err != nil || len(rows) != 3 {
		t.Fatalf("%+v, %v", rows, err)
	}
	for _, r := range rows {
		if r.State != StateSending {
			t.Fatalf("%+v", rows)
		}
	}
}

// A damaged page of a key table hides nothing, and is counted once.
func TestFindWithDamagedKeyTable(t *testing.T) {
	const n = 2000
	r, run := sealedRun(t, n, func(i int) *Entry {
		return &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 3600_000 + int64(i), Key: fmt.Sprint("k", i), Keys: fmt.Sprint("third", i%3)}
	})
	for page := 0; page < run.keyPages(); page += 2 {
		r.flip(fileName(runPrefix, run.id), run.keysOff+int64(page)*pageBytes+pageHead+3)
	}
	cancelled, err := r.s.Find(Search{Topic: "t", Key: "k100", Limit: 1})
	if err != nil || len(cancelled) != 1 {
		t.Fatalf("%+v, %v", cancelled, err)
	}
	r.wantCancel(3600_000+100, cancelled[0].LSN, Cancelled)
	for i := 0; i < n; i += 97 {
		rows, err := r.s.Find(Search{Topic: "t", Key: fmt.Sprint("k", i)})
		if err != nil || len(rows) != 1 || rows[0].Due != rigNow+3600_000+int64(i) {
			t.Fatalf("%d: %+v, %v", i, rows, err)
		}
	}
	if st := r.s.Stats(); st.Corrupt != 1 {
		t.Fatalf("%d corrupt", st.Corrupt)
	}
}

// What was found before the damage is not found twice.
func TestFindAcrossDamagedKeyPage(t *testing.T) {
	const n, keys = 2000, 4
	r, run := sealedRun(t, n, func(i int) *Entry {
		return &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 3600_000 + int64(i), Keys: fmt.Sprint("part", i%keys)}
	})
	partly := 0
	for part := range keys {
		k := fmt.Sprint("part", part)
		page, _, err := run.firstKeyPage(keyHash("t", k, new([]byte)), make([]byte, pageBytes))
		if err != nil {
			t.Fatal(err)
		}
		at := run.keysOff + int64(page+1)*pageBytes + pageHead
		r.flip(fileName(runPrefix, run.id), at)
		if before, err := run.ordsOf("t", k); len(before) > 0 && err != nil {
			partly++
		}
		rows, err := r.s.Find(Search{Topic: "t", Key: k, Limit: n})
		lsns := map[LSN]bool{}
		for _, r := range rows {
			lsns[r.LSN] = true
		}
		if err != nil || len(rows) != n/keys || len(lsns) != len(rows) {
			t.Fatalf("%s: %d rows of %d entries, %v", k, len(rows), len(lsns), err)
		}
		r.flip(fileName(runPrefix, run.id), at) // well again
	}
	if partly == 0 {
		t.Fatal("no key was found in part before the damage")
	}
}

func TestFindAmongNumbers(t *testing.T) {
	f := newFindRig(t)
	for _, c := range []struct{ first, last, from, to int }{
		{-1, -1, 1, 15}, {3, -1, 3, 15}, {-1, 9, 1, 9}, {5, 5, 5, 5}, {4, 12, 5, 11}, {12, 12, 13, 11}, {9, 3, 9, 3},
	} {
		q := Search{Topic: "topic1", Key: "all"}
		if c.first >= 0 {
			q.First = f.lsns[c.first]
		}
		if c.last >= 0 {
			q.Last = f.lsns[c.last]
		}
		rows, err := f.s.Find(q)
		if err != nil || len(rows) != max(0, (c.to-c.from)/2+1) {
			t.Fatalf("%+v: %d rows, %v", c, len(rows), err)
		}
		for i, r := range rows {
			if r.LSN != f.lsns[c.from+2*i] {
				t.Fatalf("%+v: row %d is %+v", c, i, r)
			}
		}
	}
}

// Keys of a segment that a crash left are known before it is sealed.
func TestFindInReplayedSegment(t *testing.T) {
	f := &findRig{rig: newRig(t)}
	f.putKeys(4)
	f.mem.Kill()
	f.mem = f.mem.AfterPowerLoss(nil, 0)
	f.s.Close()
	f.fs = vfs.NewFaulty(f.mem)
	f.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpCreate && strings.HasPrefix(path, "/data/"+runPrefix) {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	f.o.FS = f.fs
	f.s = mustOpen(t, f.o)
	f.wantFound("topic1", "u3", map[int]State{3: StateWaiting})
	f.wantFound("topic0", "all", map[int]State{0: StateWaiting, 2: StateWaiting})
	if n := f.s.Stats().Runs; n != 0 {
		t.Fatalf("%d runs", n)
	}
}

// A segment that is sealed while a search goes on shows its entries once.
func TestFindDuringSeal(t *testing.T) {
	f := &findRig{rig: newRig(t)}
	f.putKeys(4)
	v, err := f.s.openView(everything())
	if err != nil {
		t.Fatal(err)
	}
	f.sealAll(80_000)
	s := &finder{v: v, topic: []byte("topic1"), key: []byte("all"), limit: 10, last: maxLSN}
	err = s.find()
	v.close()
	if rows := s.result(); err != nil || len(rows) != 2 || rows[0].LSN != f.lsns[1] || rows[1].LSN != f.lsns[3] {
		t.Fatalf("%+v, %v", rows, err)
	}
}

func TestSegKeys(t *testing.T) {
	var k segKeys
	if k.first(7) != 0 {
		t.Fatal("something in nothing")
	}
	hashes := []uint32{7, 7 + 1<<20, 9, 7, 0, 7, 1<<32 - 1}
	for i, h := range hashes {
		k.add(h, uint32(i), 4096)
	}
	if len(k.heads) != 4096/bytesPerHead {
		t.Fatalf("%d heads", len(k.heads))
	}
	for _, step := range []int{1, 2, 100} {
		for h, want := range map[uint32][]uint32{7: {5, 3, 0}, 7 + 1<<20: {1}, 9: {2}, 0: {4}, 1<<32 - 1: {6}, 8: nil, 15: nil} {
			var got []uint32
			for line := k.first(h); line != 0; {
				got, line = k.next(line, h, got, step)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d by %d: %v, want %v", h, step, got, want)
			}
		}
	}
}

// What the disk refuses is an error, not an empty answer.
func TestFindOnFailingDisk(t *testing.T) {
	f := newFindRig(t)
	f.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpRead {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	for _, k := range []string{"u1", "u9"} {
		if rows, err := f.s.Find(Search{Topic: "topic1", Key: k}); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: %+v, %v", k, rows, err)
		}
	}
	if _, err := f.s.FindLSN(f.lsns[1]); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.fs.Set(nil)
	f.wantFound("topic1", "u1", map[int]State{1: StateWaiting})
	f.wantCorrupt(false)
}

func TestCancelByKey(t *testing.T) {
	f := newFindRig(t)
	var out Outcome
	var err error
	calls := 0
	cancel := func(k string) []Row {
		t.Helper()
		done := make(chan struct{}, 1)
		out, err = 0, nil
		several := f.s.CancelByKey("topic1", k, func(o Outcome, e error) {
			out, err = o, e
			calls++
			done <- struct{}{}
		})
		if several == nil {
			<-done
		}
		return several
	}
	for _, c := range []struct {
		key  string
		want Outcome
	}{
		{"u1", Cancelled}, {"u1", CancelledBefore}, {"order0", CancelledBefore}, {"u2", Unknown}, {"none", Unknown}, {"", Unknown},
		{"order4", Cancelled}, {"u9", CancelledBefore},
	} {
		if several := cancel(c.key); several != nil || out != c.want || err != nil {
			t.Fatalf("%q: %v, %v, %+v; want %v", c.key, out, err, several, c.want)
		}
	}
	before := calls
	if several := cancel("all"); len(several) != 6 || calls != before {
		t.Fatalf("%+v, %d calls", several, calls-before)
	}
	f.wantPending(f.s.Stats().Pending)
	f.clock.Store(rigNow + findIn)
	f.fireSome(1)
	row, err := f.s.FindLSN(f.lsns[3])
	if err != nil || row.State != StateSending {
		t.Fatalf("%+v, %v", row, err)
	}
	if cancel("u3"); out != Fired || err != nil {
		t.Fatalf("%v, %v", out, err)
	}
	mustClose(t, f.s)
	if cancel("u5"); out != 0 || !errors.Is(err, ErrClosed) {
		t.Fatalf("%v, %v", out, err)
	}
}

// Keys of segments are found by half a hash: what only collides is not what was asked for.
func TestFindBelievesTheRecord(t *testing.T) {
	seen := map[uint32]string{}
	var a, b string
	for i := 0; b == ""; i++ {
		k := fmt.Sprint("k", i)
		h := keyHashes(&Entry{Flow: Flow{Topic: "t"}, Key: k})[0]
		if other, ok := seen[h]; ok {
			a, b = other, k
		}
		seen[h] = k
	}
	r := newRig(t)
	lsn, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + findIn, Key: a})
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := r.s.Find(Search{Topic: "t", Key: b}); len(rows) != 0 || err != nil {
		t.Fatalf("%s for %s: %+v, %v", a, b, rows, err)
	}
	if rows, err := r.s.Find(Search{Topic: "t", Key: a}); len(rows) != 1 || rows[0].LSN != lsn || err != nil {
		t.Fatalf("%+v, %v", rows, err)
	}
}
