package timer

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// all reads a list to its end and returns its rows; between is called between two pages.
func (r *rig) all(q Query, between func(page int)) []Row {
	r.t.Helper()
	return listAll(r.t, func() *Store { return r.s }, q, between)
}

func listAll(t fataler, s func() *Store, q Query, between func(page int)) []Row {
	t.Helper()
	var rows []Row
	for n := 0; ; n++ {
		page, err := s().List(q)
		if err != nil {
			t.Fatalf("page %d: %v", n, err)
		}
		rows = append(rows, page.Rows...)
		if !page.More {
			return rows
		}
		if page.Next == q.After {
			t.Fatalf("page %d does not get on from %v", n, q.After)
		}
		q.After = page.Next
		if between != nil {
			between(n)
		}
	}
}

func keysOf(rows []Row) []key {
	keys := make([]key, len(rows))
	for i, r := range rows {
		keys[i] = key{r.Due, r.LSN}
	}
	return keys
}

func sortKeys(keys []key) {
	slices.SortFunc(keys, func(a, b key) int {
		switch {
		case a.less(b):
			return -1
		case b.less(a):
			return 1
		}
		return 0
	})
}

func TestListGivesEveryFieldAndState(t *testing.T) {
	r := newRig(t)
	entries := []Entry{
		{Flow: Flow{"b", "t1"}, Due: rigNow, Lane: 1, Key: "sent", Keys: "k1 k2", Body: body(1, 10)},
		{Flow: Flow{"b", "t2"}, Due: rigNow + 500, Lane: 2, Key: "near", Body: body(2, 20)},
		{Flow: Flow{"b2", "t1"}, Due: rigNow + 50_000, Lane: 3, Keys: "only", Body: body(3, 30)},
	}
	states := []State{StateSending, StateArmed, StateWaiting}
	var lsns []LSN
	for i := range entries {
		lsn, err := putWait(r.s, &entries[i])
		if err != nil {
			t.Fatal(err)
		}
		lsns = append(lsns, lsn)
	}
	if items, _, _, _ := r.s.due(rigNow); len(items) != 1 {
		t.Fatal(items)
	}
	check := func(where string) {
		t.Helper()
		rows := r.all(Query{Filter: Filter{To: rigNow + 60_000}, Keys: true, Limit: 2}, nil)
		if len(rows) != len(entries) {
			t.Fatalf("%s: %d rows", where, len(rows))
		}
		for i, row := range rows {
			e := entries[i]
			length, _ := putLength(&e)
			want := Row{e.Due, lsns[i], e.Flow, e.Lane, int32(length), states[i], e.Key, e.Keys, nil}
			if row != want {
				t.Errorf("%s: row %+v, want %+v", where, row, want)
			}
			got, state, err := r.s.Get(e.Due, lsns[i])
			if err != nil || state != states[i] || fmt.Sprint(got) != fmt.Sprint(e) {
				t.Errorf("%s: get %+v %v %v, want %+v", where, got, state, err, e)
			}
		}
	}
	missing := func(where string) {
		t.Helper()
		for _, k := range []key{{rigNow + 1, lsns[0]}, {rigNow, lsns[1]}, {rigNow, 7}, {rigNow + 900, 1 << 40}} {
			if _, _, err := r.s.Get(k.due, k.lsn); !errors.Is(err, ErrNotPending) {
				t.Errorf("%s: get %v: %v", where, k, err)
			}
		}
	}
	check("in the segment")
	missing("in the segment")
	for r.s.Stats().Seals == 0 {
		r.put(1, 70_000, 2000)
	}
	check("in the run")
	missing("in the run")
}

func TestListTellsArmedFromWaitingOfTheSameMillisecond(t *testing.T) {
	r := newRig(t)
	lsns := r.put(r.o.Window+2, 100, 10)
	rows := r.all(Query{}, nil)
	if len(rows) != len(lsns) {
		t.Fatal(rows)
	}
	for i, row := range rows {
		want := StateArmed
		if i >= r.o.Window {
			want = StateWaiting
		}
		if row.State != want || row.LSN != lsns[i] {
			t.Errorf("row %d: %+v, want %v", i, row, want)
		}
	}
}

// A topic with few entries among many of another is found without reading the lines between them.
func TestListOfARareTopicSkipsHours(t *testing.T) {
	r, run := sealedRun(t, 12_000, func(i int) *Entry {
		e := &Entry{Flow: Flow{"b", "bulk"}, Due: rigNow + int64(i)*10_000, Key: fmt.Sprint(i)}
		if i == 5000 || i == 5001 || i == 11_999 {
			e.Flow.Topic = "rare"
		}
		return e
	})
	r.s.o.scanLines = 3*360 + 3*hoursStep*r.s.o.scanBatch
	sc, err := r.s.scan(scanQuery{Filter: Filter{Topic: "rare"}, rows: 10, highest: maxLSN})
	if err != nil {
		t.Fatal(err)
	}
	defer sc.close()
	var got []int64
	for _, row := range sc.rows {
		got = append(got, (row.due-rigNow)/10_000)
	}
	if !slices.Equal(got, []int64{5000, 5001, 11_999}) || run.entries < 12_000 {
		t.Fatalf("%v in one page, %d entries in the run", got, run.entries)
	}
}

func TestListOfWhatIsNotThere(t *testing.T) {
	r := newRig(t)
	r.put(3, 1000, 10)
	for name, q := range map[string]Query{
		"other topic":   {Filter: Filter{Topic: "x"}},
		"other broker":  {Filter: Filter{Topic: "t", Broker: "x"}},
		"before":        {Filter: Filter{To: rigNow + 1000}},
		"after":         {Filter: Filter{From: rigNow + 1001}},
		"upside down":   {Filter: Filter{From: rigNow + 2000, To: rigNow}},
		"from wins":     {Filter: Filter{From: rigNow + 1001}, After: Cursor{rigNow, 1}},
		"behind cursor": {After: Cursor{rigNow + 1000, maxLSN}},
	} {
		if rows := r.all(q, nil); len(rows) != 0 {
			t.Errorf("%s: %v", name, rows)
		}
	}
	if rows := r.all(Query{Filter: Filter{Topic: "t", Broker: "b", From: rigNow + 1000, To: rigNow + 1001}}, nil); len(rows) != 3 {
		t.Errorf("%v", rows)
	}
	for _, limit := range []int{-1, maxRows + 1} {
		if _, err := r.s.List(Query{Limit: limit}); err == nil {
			t.Errorf("a limit of %d was taken", limit)
		}
	}
	r.s.Close()
	if _, err := r.s.List(Query{}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, _, err := r.s.Get(1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// Against a plain map: puts, settles, cancels, seals, merges and restarts between the pages. What is pending from the first page to the last is
// listed once, in order; nothing is listed twice, and nothing that was settled before.
func TestListWhileEntriesComeAndGo(t *testing.T) {
	pages, seals, merges := 0, int64(0), int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		m := newScanModel(rt)
		defer func() { m.s.Close() }()
		m.put(rapid.IntRange(0, 150).Draw(rt, "first"))
		q := Query{Limit: rapid.IntRange(1, 60).Draw(rt, "limit"), Keys: rapid.Bool().Draw(rt, "keys")}
		q.Filter = m.filter()
		before := m.snapshot()
		rows := listAll(rt, func() *Store { return m.s }, q, func(page int) {
			if pages++; page < 30 { // else a small page never catches up with the puts
				m.change()
			}
		})
		m.check(q, before, rows)
		m.count()
		seals, merges = seals+m.seals, merges+m.merges
	})
	t.Logf("%d pages, %d seals, %d merges", pages, seals, merges)
	if pages < 100 || seals < 20 || merges < 1 {
		t.Fatal("too few to say anything")
	}
}
