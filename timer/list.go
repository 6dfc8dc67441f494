package timer

import (
	"errors"
	"fmt"
	"slices"
)

// State says how far an entry is: only Find and FindLSN return one that is settled or cancelled.
type State int

const (
	StateWaiting   State = iota // on disk only
	StateArmed                  // in the wheel: it is due within Options.Horizon, or overdue
	StateSending                // handed out, not settled yet
	StateSettled                // not pending any more: delivered, or lost to damage
	StateCancelled              // not pending any more
)

// over says that the entry is not pending.
func (s State) over() bool { return s >= StateSettled }

func (s State) String() string {
	switch s {
	case StateWaiting:
		return "waiting"
	case StateArmed:
		return "armed"
	case StateSending:
		return "sending"
	case StateSettled:
		return "settled"
	case StateCancelled:
		return "cancelled"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Cursor is a place between two entries in (due, LSN) order: behind this one. It stays good while entries come and go. The
// zero Cursor is before all entries.
type Cursor struct {
	Due int64
	LSN LSN
}

// Query asks for a page of pending entries.
type Query struct {
	Filter
	After Cursor // Page.Next of the page before
	Limit int    // most rows, 1 to 10000; 0: 100
	Keys  bool   // read the record of each row for its keys
}

// Row is an entry in a list.
type Row struct {
	Due   int64 // Unix ms
	LSN   LSN
	Flow  Flow
	Lane  uint16
	Len   int32 // bytes of its record: the body, the keys, the flow's names and 40 more
	State State

	Key  string // by List with Query.Keys only: its unique key
	Keys string // and its business keys
	Err  error  // and why these could not be read
}

// Page is a part of a list.
type Page struct {
	Rows []Row  // in (due, LSN) order
	Next Cursor // where the next page goes on
	More bool   // there may be more rows; false: this was the last page
}

const (
	defaultRows = 100
	maxRows     = 10_000
)

// List returns pending entries in (due, LSN) order, page by page. An entry that is pending all the time while the pages are read is
// in exactly one of them; what comes or goes meanwhile may be in one. Each call does a bounded amount of work, so a page may
// have fewer rows than the limit, even none, and not be the last.
//
// It reads the disk and may be called from any goroutine. Errors: ErrClosed, or what the disk said.
func (s *Store) List(q Query) (Page, error) {
	var err error
	if q.Limit, err = checkLimit(q.Limit); err != nil {
		return Page{}, err
	}
	sc, err := s.scan(scanQuery{Filter: q.Filter, after: q.After, rows: q.Limit, highest: maxLSN})
	if err != nil {
		return Page{}, err
	}
	defer sc.close()
	page := Page{Next: sc.next, More: sc.more}
	for i := range sc.rows {
		r := &sc.rows[i]
		row := r.row()
		if q.Keys {
			rec, err := r.read(s)
			if errors.Is(err, ErrNotPending) {
				continue
			}
			row.Key, row.Keys, row.Err = string(rec.key), string(rec.keys), err
		}
		page.Rows = append(page.Rows, row)
	}
	return page, nil
}

// checkLimit puts the default in for 0.
func checkLimit(rows int) (int, error) {
	if rows == 0 {
		return defaultRows, nil
	}
	if rows < 0 || rows > maxRows {
		return 0, fmt.Errorf("timer: a page of %d rows: the limit is %d", rows, maxRows)
	}
	return rows, nil
}

// scanQuery asks for a part of a scan.
type scanQuery struct {
	Filter
	after   Cursor
	rows    int   // most of them
	bytes   int64 // of records, about; 0: any
	highest LSN   // leave out what has a higher number
}

const maxLSN = ^LSN(0)

// scanPage is a part of a scan, with the references that reading the records needs.
type scanPage struct {
	v    *view
	rows []scanRow
	next Cursor
	more bool
}

func (p *scanPage) close() { p.v.close() }

// scanRow is an entry that was pending when it was looked at.
type scanRow struct {
	met
	state State
	home  *dataFile // where its record is, in the view; nil: not there any more, look it up anew
	lost  bool      // its record was found damaged
}

// place is where the record lies; home is set.
func (r *scanRow) place() recordPlace { return recordPlace{r.home, r.off, r.length} }

func (r *scanRow) row() Row {
	return Row{Due: r.due, LSN: r.lsn, Flow: r.flow.name, Lane: r.lane, Len: r.length, State: r.state}
}

// scan returns a part of what is pending. What it returns ends with close.
func (s *Store) scan(q scanQuery) (*scanPage, error) {
	from, to := q.span()
	if q.after != (Cursor{}) {
		from = maxKey(from, key{q.after.Due, q.after.LSN}.next())
	}
	v, err := s.openView(from, to)
	if err != nil {
		return nil, err
	}
	p := &scanPage{v: v}
	if err := p.fill(q, from, to); err != nil {
		p.close()
		return nil, s.failed("list what is pending", err)
	}
	return p, nil
}

func (p *scanPage) fill(q scanQuery, from, to key) error {
	s := p.v.s
	var hours []int64
	if !q.all() {
		hours = s.pendingHours(q.Filter)
	}
	w, err := p.v.newWalk(q.Filter, from, to, q.highest, q.rows)
	if err != nil {
		return err
	}
	size := int64(0)
	var batch []met
	for !w.ended() && len(p.rows) < q.rows && w.lines < s.o.scanLines && (q.bytes == 0 || size < q.bytes) {
		if err := w.skip(hours); err != nil {
			return err
		}
		if batch, err = w.next(batch[:0], min(s.o.scanBatch, q.rows-len(p.rows)), w.lines+hoursStep*s.o.scanBatch); err != nil {
			return err
		}
		size += p.keep(batch)
	}
	p.next, p.more = before(w.at), !w.ended()
	return nil
}

// keep appends those of batch that are pending, and returns the bytes of their records.
func (p *scanPage) keep(batch []met) int64 {
	s := p.v.s
	size := int64(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range batch {
		if c.settled() {
			continue
		}
		r := scanRow{met: c, state: c.flow.state(c.key)}
		if c.run != nil {
			r.home = &c.run.dataFile
		} else {
			p.v.place(&r)
		}
		p.rows = append(p.rows, r)
		size += int64(c.length)
	}
	return size
}

// place notes where the record of an entry of a segment is now. The segment may have been sealed since the view was taken, even its
// run merged into another. Store.mu is held.
func (v *view) place(r *scanRow) {
	home := r.entry.home
	switch {
	case home == nil:
		r.lost = true
	case home.doomed && home.run != nil:
		return
	case home.run != nil && !slices.Contains(v.runs, home.run):
		home.refs++
		v.runs = append(v.runs, home.run)
	}
	r.home, r.off = home, r.entry.off
}

// state says where a pending entry of f is. Store.mu is held.
func (f *flow) state(k key) State {
	if f.fired[k.lsn] != nil {
		return StateSending
	}
	if f.armed.get(k) != nil {
		return StateArmed
	}
	return StateWaiting
}

// before is the cursor behind all keys less than k.
func before(k key) Cursor {
	if k.lsn == 0 {
		return Cursor{k.due - 1, maxLSN}
	}
	return Cursor{k.due, k.lsn - 1}
}

// read returns the record of a row, ErrNotPending if it was settled meanwhile.
func (r *scanRow) read(s *Store) (record, error) {
	switch {
	case r.lost:
		return record{}, ErrCorrupt
	case r.home == nil:
		rec, _, err := s.find(r.key)
		return rec, err
	}
	rec, err := r.home.readRecord(r.off, int(r.length))
	if err != nil {
		return record{}, s.unreadable(r, err)
	}
	return rec, nil
}

// unreadable says why the record of a row could not be read: settled records may be gone from the disk.
func (s *Store) unreadable(r *scanRow, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.settled():
		return ErrNotPending
	case errors.Is(err, ErrCorrupt):
		r.home.rotten = true
	case s.closed:
		return ErrClosed
	}
	return err
}
