package timer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/delaygate/delaygate/timer/vfs"
)

// scanModel is a store beside a plain map of what is pending in it, for tests of what only reads.
type scanModel struct {
	t       *rapid.T
	mem     *vfs.Mem
	clock   atomic.Int64
	o       Options
	s       *Store
	rng     *rand.Rand
	entries map[key]Entry // pending
	gone    map[key]bool  // settled or cancelled
	name    string        // what keys begin with
	n       int
	seals   int64
	merges  int64
	spread  int64 // ms between dues, about
	small   bool  // no bodies
}

func newScanModel(t *rapid.T) *scanModel {
	m := &scanModel{t: t, mem: vfs.NewMem(), entries: map[key]Entry{}, gone: map[key]bool{}, name: "key", spread: 3_000_000}
	m.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
	m.clock.Store(1_700_000_000_000)
	m.o = testOptions(m.mem, &m.clock)
	m.o.Window = rapid.SampledFrom([]int{1, 4, 50}).Draw(t, "window")
	m.o.punchBytes, m.o.lookEvery, m.o.mergeRest = 1<<10, time.Millisecond, 1
	m.o.MaxRuns = rapid.SampledFrom([]int{2, 3, 128}).Draw(t, "runs")
	m.s = m.open()
	return m
}

func (m *scanModel) open() *Store {
	m.o.FS = m.mem
	s, err := Open(m.o)
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	return s
}

func (m *scanModel) entry() Entry {
	m.n++
	r := m.rng
	e := Entry{
		Flow: Flow{fmt.Sprint("b", r.IntN(2)), fmt.Sprint("t", r.IntN(3)*r.IntN(3))}, Lane: uint16(r.IntN(9)),
		Due: m.clock.Load() - 1000 + r.Int64N(12)*r.Int64N(m.spread), Key: fmt.Sprint(m.name, m.n),
	}
	if !m.small {
		e.Body = body(m.n, r.IntN(700))
	}
	if r.IntN(3) == 0 {
		e.Keys = fmt.Sprintf("order%d shop%d", m.n, r.IntN(4))
	}
	return e
}

// put puts n entries one after the other.
func (m *scanModel) put(n int) {
	for range n {
		e := m.entry()
		lsn, err := putWait(m.s, &e)
		if err != nil {
			m.t.Fatalf("put: %v", err)
		}
		m.entries[key{e.Due, lsn}] = e
	}
}

// putMany puts n entries at once.
func (m *scanModel) putMany(n int) {
	done := make(chan error, n)
	for range n {
		e := m.entry()
		lsn, err := m.s.Put(&e, func(err error) { done <- err })
		if err != nil {
			m.t.Fatalf("put: %v", err)
		}
		m.entries[key{e.Due, lsn}] = e
	}
	for range n {
		if err := <-done; err != nil {
			m.t.Fatalf("put: %v", err)
		}
	}
}

// settle settles some, up to n, of what is due, after the clock has moved by ms.
func (m *scanModel) settle(ms int64, n int) {
	m.clock.Add(ms)
	items, _, _, _ := m.s.due(m.clock.Load())
	m.rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	for _, it := range items[:min(n, len(items))] {
		k := key{it.Due, it.LSN}
		if _, ok := m.entries[k]; !ok {
			m.t.Fatalf("%v fired and is not pending", k)
		}
		delete(m.entries, k)
		m.gone[k] = true
		m.s.Settle(it)
	}
	m.calm()
}

// cancel cancels n entries.
func (m *scanModel) cancel(n int) {
	keys := slices.Collect(maps.Keys(m.entries))
	sortKeys(keys)
	m.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, k := range keys[:min(n, len(keys))] {
		out, err := cancelWait(m.s, k.due, k.lsn)
		if err != nil || out != Cancelled && out != Fired {
			m.t.Fatalf("cancel %v: %v, %v", k, out, err)
		}
		if out == Cancelled {
			delete(m.entries, k)
			m.gone[k] = true
		}
	}
	m.calm()
}

// change does something that a scan must bear.
func (m *scanModel) change() {
	switch rapid.IntRange(0, 6).Draw(m.t, "change") {
	case 0, 1:
		m.put(rapid.IntRange(1, 60).Draw(m.t, "n"))
	case 2, 3:
		m.settle(rapid.Int64Range(0, 2_000_000).Draw(m.t, "ms"), rapid.IntRange(1, 40).Draw(m.t, "n"))
	case 4:
		m.cancel(rapid.IntRange(1, 60).Draw(m.t, "n"))
	case 5:
		m.restart()
	case 6:
		m.waitSealed()
		m.until("there are few runs", func() bool { return m.s.Stats().Runs <= m.o.MaxRuns })
	}
}

// calm waits for the end of what the janitor is installing: for that moment what was just settled in a source of a merge may not be
// settled in its result.
func (m *scanModel) calm() {
	m.until("a run is installed", func() bool {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		return !m.s.installing
	})
}

func (m *scanModel) until(what string, ok func() bool) {
	for end := time.Now().Add(modelPatience); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			m.t.Fatalf("waited in vain: %s: %+v", what, m.s.Stats())
		}
	}
}

// restart kills the process in between, after everything was synced.
func (m *scanModel) restart() {
	m.count()
	if err := m.s.Close(); err != nil {
		m.t.Fatalf("close: %v", err)
	}
	m.mem.Kill()
	m.mem = m.mem.AfterPowerLoss(nil, 0)
	m.s = m.open()
}

// count notes what this life of the store did.
func (m *scanModel) count() {
	st := m.s.Stats()
	m.seals += st.Seals
	m.merges += st.Merges
}

// waitSealed waits until only the open segment is not sealed.
func (m *scanModel) waitSealed() {
	m.until("all are sealed", func() bool { return m.s.Stats().Segments <= 1 })
}

func (m *scanModel) filter() Filter {
	var q Filter
	if rapid.Bool().Draw(m.t, "by topic") {
		q.Topic = fmt.Sprint("t", m.rng.IntN(5))
		if rapid.Bool().Draw(m.t, "by broker") {
			q.Broker = fmt.Sprint("b", m.rng.IntN(2))
		}
	}
	if rapid.Bool().Draw(m.t, "by time") {
		q.From = m.clock.Load() + m.rng.Int64N(10_000_000)
		q.To = q.From + m.rng.Int64N(10_000_000)
	}
	return q
}

// snapshot is what a list is compared with.
type snapshot struct {
	pending map[key]Entry
	gone    map[key]bool
}

func (m *scanModel) snapshot() snapshot { return snapshot{maps.Clone(m.entries), maps.Clone(m.gone)} }

func (q *Filter) wants(e *Entry) bool {
	from, to := q.span()
	k := key{due: e.Due}
	return q.matches(e.Flow) && !k.less(from) && k.less(to)
}

// check compares the rows of a list with what there was before it; m has what there is after it.
func (m *scanModel) check(q Query, before snapshot, rows []Row) {
	seen := map[key]bool{}
	keys := keysOf(rows)
	if !slices.IsSortedFunc(keys, func(a, b key) int {
		if a.less(b) {
			return -1
		}
		return 1
	}) {
		m.t.Fatalf("the list is not sorted: %v", keys)
	}
	for i, k := range keys {
		e, was := before.pending[k]
		now, is := m.entries[k]
		if is {
			e = now
		}
		switch {
		case seen[k]:
			m.t.Fatalf("%v is listed twice", k)
		case !was && !is && !m.gone[k]:
			m.t.Fatalf("%v was never put", k)
		case before.gone[k]:
			m.t.Fatalf("%v was settled and is listed", k)
		case m.gone[k] && !was && !is: // put and settled in between
		case !q.wants(&e) || rows[i].Flow != e.Flow || rows[i].Lane != e.Lane:
			m.t.Fatalf("%+v for %+v with %+v", rows[i], e, q)
		case q.Keys && (rows[i].Key != e.Key || rows[i].Keys != e.Keys || rows[i].Err != nil):
			m.t.Fatalf("%+v for %+v", rows[i], e)
		}
		seen[k] = true
	}
	for k, e := range before.pending {
		if _, still := m.entries[k]; still && q.wants(&e) && !seen[k] {
			m.t.Fatalf("%v was pending all the time and is not listed", k)
		}
	}
}
