package timer

import (
	"errors"
	"fmt"
	"slices"
)

const findBatch = 256 // entries that are looked at together

// Search says what Find looks for.
type Search struct {
	Topic string
	Key   string // the unique key of an entry, or one of its business keys
	Limit int    // most rows, 1 to 10000; 0: 100
	// First and Last bound the numbers that Put gave; 0: no bound. What was put at about the same time is found with few reads.
	First, Last LSN
}

// Find returns entries of a topic that have a key, those that are pending before all others, in (due, LSN) order each. Of entries that are not
// pending any more it tells those whose record happens to be still there. With Limit rows there may be more.
// Row.Key and Row.Keys are filled.
//
// It takes about two reads of the disk per run and two per row. Where a part of a run's key table is damaged, all pending records of
// that run are read instead, which is slow, counted in Stats.Corrupt and logged once.
//
// Any goroutine. Errors: ErrClosed, or what the disk said.
func (s *Store) Find(q Search) ([]Row, error) {
	limit, err := checkLimit(q.Limit)
	if err != nil || q.Key == "" {
		return nil, err
	}
	v, err := s.openView(everything())
	if err != nil {
		return nil, err
	}
	defer v.close()
	f := &finder{v: v, topic: []byte(q.Topic), key: []byte(q.Key), limit: limit, first: q.First, last: q.Last}
	if f.last == 0 {
		f.last = maxLSN
	}
	if err := f.find(); err != nil {
		return nil, s.failed("find key "+q.Key+" of topic "+q.Topic, err)
	}
	return f.result(), nil
}

// FindLSN returns the entry that Put gave that number: for one that is not pending any more see Find. An entry of a run is searched for in the whole
// index of each run that may hold it.
//
// Any goroutine. Errors: ErrNotPending when nothing is known of it, ErrClosed, or what the disk said.
func (s *Store) FindLSN(lsn LSN) (Row, error) {
	v, err := s.openView(everything())
	if err != nil {
		return Row{}, err
	}
	defer v.close()
	f := &finder{v: v, limit: 1, last: maxLSN}
	if err := f.findLSN(lsn); err != nil {
		return Row{}, s.failed(fmt.Sprintf("find lsn %d", lsn), err)
	}
	for _, row := range f.result() {
		return row, nil
	}
	return Row{}, fmt.Errorf("find lsn %d: %w", lsn, ErrNotPending)
}

func everything() (from, to key) { return (&Filter{}).span() }

// finder collects rows.
type finder struct {
	v          *view
	topic, key []byte // nil: any
	limit      int
	first      LSN // only entries with these numbers
	last       LSN
	pending    []Row
	over       []Row // settled or cancelled
	batch      []met
	buf        []byte // for a page of the key table and one of the index
}

func (f *finder) full() bool { return len(f.pending) >= f.limit }

func (f *finder) result() []Row {
	order := func(a, b Row) int { return key{a.Due, a.LSN}.compare(key{b.Due, b.LSN}) }
	slices.SortFunc(f.pending, order)
	slices.SortFunc(f.over, order)
	rows := append(f.pending, f.over...)
	return rows[:min(len(rows), f.limit)]
}

func (f *finder) find() error {
	hash := keyHash(f.topic, f.key, new([]byte))
	runs := f.v.runs // looking at entries of segments may add the runs that they were sealed into
	for _, g := range f.v.segs {
		if err := f.findInSegment(g, uint32(hash)); err != nil || f.full() {
			return err
		}
	}
	for _, r := range runs {
		if r.maxLSN < f.first || r.minLSN > f.last {
			continue
		}
		if err := f.findInRun(r, hash); err != nil || f.full() {
			return err
		}
	}
	return nil
}

// findInSegment adds what the keys of a segment say.
func (f *finder) findInSegment(g segView, hash uint32) error {
	mu := &f.v.s.mu
	mu.Lock()
	line := g.keys.first(hash)
	mu.Unlock()
	var places []uint32
	for line != 0 && !f.full() {
		mu.Lock()
		places, line = g.keys.next(line, hash, places[:0], findBatch)
		mu.Unlock()
		for _, at := range places {
			if int(at) < len(g.entries) { // else it came after the view was taken
				if err := f.add(g.entries[at].met()); err != nil {
					return err
				}
			}
		}
		if err := f.flush(); err != nil {
			return err
		}
	}
	return nil
}

// add takes an entry that may be one of those wanted.
func (f *finder) add(m met) error {
	if m.lsn < f.first || m.lsn > f.last {
		return nil
	}
	f.batch = append(f.batch, m)
	if len(f.batch) < findBatch {
		return nil
	}
	return f.flush()
}

// flush looks at the entries that were taken.
func (f *finder) flush() error {
	s := f.v.s
	var pending, over []scanRow
	s.mu.Lock()
	for _, m := range f.batch {
		r := scanRow{met: m, state: m.state()}
		if m.run != nil {
			r.home = &m.run.dataFile
		} else {
			f.v.place(&r)
		}
		if r.state.over() {
			over = append(over, r)
		} else {
			pending = append(pending, r)
		}
	}
	s.mu.Unlock()
	f.batch = f.batch[:0]
	var err error
	if f.pending, err = f.check(pending, f.pending); err != nil {
		return err
	}
	f.over, err = f.check(over, f.over)
	return err
}

// check appends those of rows whose records have the key, until there are enough.
func (f *finder) check(rows []scanRow, to []Row) ([]Row, error) {
	for i := range rows {
		if len(to) >= f.limit {
			break
		}
		rec, err := rows[i].read(f.v.s)
		switch {
		case errors.Is(err, ErrNotPending), errors.Is(err, ErrCorrupt): // its space was given back, or it is damaged
			continue
		case err != nil:
			return to, err
		case f.key != nil && !rec.hasKey(f.topic, f.key):
			continue
		}
		row := rows[i].row()
		row.Key, row.Keys = string(rec.key), string(rec.keys)
		to = append(to, row)
	}
	return to, nil
}

// findInRun adds what the key table of a run says. Where it is damaged, all records are read instead.
func (f *finder) findInRun(r *run, hash uint64) error {
	if f.buf == nil {
		f.buf = make([]byte, 2*pageBytes)
	}
	b, page := f.buf[pageBytes:], -1
	var failed error
	err := r.eachOrd(hash, f.buf[:pageBytes], func(ord uint32) (bool, error) {
		if int64(ord) >= int64(r.entries) {
			return false, fmt.Errorf("%w: the key table of %s names entry %d of %d", ErrCorrupt, r.path, ord, r.entries)
		}
		if at := int(ord) / pageEntries; at != page {
			page = at
			failed = r.readPage(at, b)
		}
		if m, ok := r.met(pageEntry(b, int(ord)%pageEntries), int(ord)); ok && failed == nil {
			failed = f.add(m)
		}
		return failed == nil && !f.full(), nil
	})
	if failed == nil {
		failed = f.flush()
	}
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, ErrCorrupt):
		f.v.s.damagedKeys(r, err)
		return f.readAll(r)
	}
	return err
}

// readAll adds what is pending in a run, found by its records, and not known yet.
func (f *finder) readAll(r *run) error {
	known := map[LSN]bool{}
	for _, row := range append(slices.Clone(f.pending), f.over...) {
		known[row.LSN] = true
	}
	src := &source{run: r}
	src.snapshot(f.v.s)
	for src.rewind(); ; {
		more, err := src.next()
		if err != nil || !more {
			return errors.Join(err, f.flush())
		}
		b, err := src.record()
		if err != nil {
			return err
		}
		rec, ok := parseRecord(b, r.seed)
		if !ok || known[src.x.lsn] || !rec.hasKey(f.topic, f.key) {
			continue
		}
		if m, ok := r.met(src.x, src.ord); ok {
			if err := f.add(m); err != nil || f.full() {
				return err
			}
		}
	}
}

// damagedKeys counts and reports a damaged key table once.
func (s *Store) damagedKeys(r *run, err error) {
	s.mu.Lock()
	known := r.badKeys
	r.badKeys, r.rotten = true, true
	s.mu.Unlock()
	if !known {
		s.corrupt("the key table of a run is damaged, searches read all its records instead", r.path, "err", err)
	}
}

func (f *finder) findLSN(lsn LSN) error {
	for _, g := range f.v.segs {
		if e := findEntry(g.entries, lsn); e != nil {
			f.batch = append(f.batch, e.met())
			return f.flush()
		}
	}
	for _, r := range f.v.runs {
		if lsn < r.minLSN || lsn > r.maxLSN {
			continue
		}
		pages := pageReader{run: r}
		for ord := range r.entries {
			b, _, err := pages.page(ord / pageEntries)
			if err != nil {
				return err
			}
			if x := pageEntry(b, ord%pageEntries); x.lsn == lsn {
				if m, ok := r.met(x, ord); ok {
					f.batch = append(f.batch, m)
					return f.flush()
				}
			}
		}
	}
	return nil
}

func (e *entry) met() met {
	return met{key: e.key(), flow: e.flow, length: e.length, lane: e.lane, entry: e}
}

// met returns the entry of an index line; false: it is lost.
func (r *run) met(x indexEntry, ord int) (met, bool) {
	if x.lost() || int(x.flow) >= len(r.names) {
		return met{}, false
	}
	return met{key: x.key(), flow: r.names[x.flow], length: int32(x.length), lane: x.lane, run: r, ord: ord, off: x.off}, true
}

// state says how far an entry is. Store.mu is held.
func (m *met) state() State {
	r, ord := m.run, m.ord
	if e := m.entry; e != nil {
		switch {
		case e.cancelled:
			return StateCancelled
		case e.done:
			return StateSettled
		case e.home == nil || e.home.run == nil:
			return m.flow.state(m.key)
		}
		r, ord = e.home.run, int(e.ord)
	}
	switch {
	case r.isCancelled(ord):
		return StateCancelled
	case r.isDone(ord):
		return StateSettled
	}
	return m.flow.state(m.key)
}
