package timer

import (
	"errors"
	"slices"
	"testing"
)

// midSeal lets a test stop between the steps of a seal.
type midSeal struct {
	r    *rig
	seg  *segment
	pend []sealed
	run  *run
}

func (r *rig) midSeal() *midSeal {
	r.t.Helper()
	r.until("the janitor has nothing left to do", func() bool {
		r.s.mu.Lock() // it made the spare before it held this
		defer r.s.mu.Unlock()
		return len(r.s.spares) == 1
	})
	m := &midSeal{r: r, seg: r.segment()}
	m.pend = r.s.pendingOf(m.seg)
	var err error
	if m.run, m.pend, err = r.s.writeRun(m.seg, m.pend); err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (m *midSeal) install() { m.r.s.install(m.run, m.pend) }

func (m *midSeal) retire() { m.r.s.retire(m.seg) }

// settle settles what is due at once.
func (r *rig) settle(now int64) int {
	items, _, _, _ := r.s.due(now)
	for _, it := range items {
		r.s.Settle(it)
	}
	return len(items)
}

// wantScan checks what each way of reading says is pending.
func (r *rig) wantScan(where string, want []key) {
	r.t.Helper()
	rows := r.all(Query{Keys: true, Limit: 2}, nil)
	if got := keysOf(rows); !slices.Equal(got, want) {
		r.t.Errorf("%s: list %v, want %v", where, got, want)
	}
	for _, row := range rows {
		if row.Err != nil || row.Key == "" {
			r.t.Errorf("%s: %+v", where, row)
		}
	}
	top, err := r.s.Fullest(0, rigNow+1_000_000, 1000)
	n := int64(0)
	for _, s := range top.Seconds {
		n += s.Pending
	}
	if err != nil || n != int64(len(want)) {
		r.t.Errorf("%s: the seconds have %d, want %d: %v", where, n, len(want), err)
	}
	for _, k := range want {
		if e, _, err := r.s.Get(k.due, k.lsn); err != nil || len(e.Body) != 20 {
			r.t.Errorf("%s: get %v: %d bytes of body, %v", where, k, len(e.Body), err)
		}
	}
}

// At each step of a seal everything that is pending is there once.
func TestReadingAtEachStepOfASeal(t *testing.T) {
	r := newRig(t)
	r.o.Window = 50
	r.kill(false)
	var want []key
	for i := range 30 {
		in := int64(i%10) * 700
		want = append(want, key{rigNow + in, r.put(1, in, 20)[0]})
	}
	sortKeys(want)
	r.wantScan("before", want)
	want = want[r.settle(rigNow):]
	r.wantScan("some settled", want)
	m := r.midSeal()
	r.wantScan("the run is written", want)
	m.install()
	r.wantScan("the run is installed", want)
	want = want[r.settle(rigNow+700):]
	r.wantScan("more settled", want)
	m.retire()
	r.wantScan("the segment is gone", want)
	items, _, _, _ := r.s.due(rigNow + 1400)
	r.s.Settle(items[1])
	want = slices.Delete(want, 1, 2)
	r.wantScan("one in the middle settled", want)
	if len(want) != 30-2*3-1 {
		t.Fatalf("%d are left of 30", len(want))
	}
}

// A view that was taken before a seal is read after it.
func TestAViewOutlivesASeal(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		r := newRig(t)
		var want []key
		for i := range 30 {
			want = append(want, key{rigNow + int64(i)*1000, r.put(1, int64(i)*1000, 20)[0]})
		}
		v, err := r.s.openView(key{}, lastKey)
		if err != nil {
			t.Fatal(err)
		}
		m := r.midSeal()
		m.install()
		m.retire()
		// What is brought back from the run is not the same in RAM as what the view has seen.
		r.clock.Store(rigNow + 9000)
		settled := 0
		r.until("ten are settled", func() bool {
			r.s.wakeLoader()
			settled += r.settle(rigNow + 9000)
			return settled == 10
		})
		want = want[settled:]
		if dropped { // as a merge does
			r.s.mu.Lock()
			m.run.doomed = true
			r.s.mu.Unlock()
		}
		p := &scanPage{v: v}
		if err := p.fill(scanQuery{rows: 100, highest: maxLSN}, key{}, lastKey); err != nil {
			t.Fatal(err)
		}
		var got []key
		for i := range p.rows {
			got = append(got, p.rows[i].key)
			rec, err := p.rows[i].read(r.s)
			if err != nil || len(rec.body) != 20 || rec.lsn != p.rows[i].lsn {
				t.Errorf("dropped %v: row %d: %d bytes, %v", dropped, i, len(rec.body), err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("dropped %v: %v, want %v", dropped, got, want)
		}
		if slices.Contains(v.runs, m.run) == dropped {
			t.Errorf("dropped %v: a reference to a run that is gone, or none", dropped)
		}
		p.close()
		r.until("no reference to the run and the segment", func() bool { // the loader may have one for a moment
			r.s.mu.Lock()
			defer r.s.mu.Unlock()
			return m.run.refs == 0 && m.seg.refs == 0
		})
		r.s.mu.Lock()
		m.run.doomed = false
		r.s.mu.Unlock()
	}
}

func TestDamagedRecordsAreListedWithTheirError(t *testing.T) {
	r := newRig(t)
	lsns := r.put(3, 1000, 20)
	seg := r.segment()
	r.flip(fileName(segPrefix, seg.id), seg.entries[1].off+headBytes+2)
	for i, row := range r.all(Query{Keys: true}, nil) {
		if row.LSN != lsns[i] || errors.Is(row.Err, ErrCorrupt) != (i == 1) {
			t.Errorf("%+v", row)
		}
		if _, _, err := r.s.Get(row.Due, row.LSN); errors.Is(err, ErrCorrupt) != (i == 1) {
			t.Errorf("get %d: %v", row.LSN, err)
		}
	}
	if !seg.rotten {
		t.Error("the segment is not kept as evidence")
	}
	if items, _, _, _ := r.s.due(rigNow + 1000); len(items) != 3 {
		t.Fatal(items)
	}
	r.midSeal() // gives it up, but it is being sent
	for i, row := range r.all(Query{Keys: true}, nil) {
		if row.LSN != lsns[i] || row.State != StateSending || errors.Is(row.Err, ErrCorrupt) != (i == 1) {
			t.Errorf("%+v", row)
		}
	}
}

// The record of a settled entry may be given back to the disk before a scan comes to read it.
func TestRowsThatAreSettledBeforeTheyAreReadAreNoDamage(t *testing.T) {
	r := newRig(t)
	r.put(1, 0, 20)
	sc, err := r.s.scan(scanQuery{rows: 1, highest: maxLSN})
	if err != nil || len(sc.rows) != 1 {
		t.Fatal(err)
	}
	defer sc.close()
	seg := r.segment()
	r.flip(fileName(segPrefix, seg.id), seg.entries[0].off+headBytes+2)
	if r.settle(rigNow) != 1 {
		t.Fatal("not fired")
	}
	if _, err := sc.rows[0].read(r.s); !errors.Is(err, ErrNotPending) {
		t.Error(err)
	}
	if seg.rotten {
		t.Error("counted as damage")
	}
}
