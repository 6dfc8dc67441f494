package timer

import (
	"errors"
	"fmt"
)

// ErrNotPending is what Get returns for an entry that was never put, or is settled or cancelled.
var ErrNotPending = errors.New("timer: no such entry is pending")

// Get returns a pending entry with all its fields, in fresh memory. It reads the disk and may be called from any goroutine.
//
// Errors: ErrNotPending; ErrCorrupt when its record is damaged; ErrClosed; or what the disk said.
func (s *Store) Get(due int64, lsn LSN) (Entry, State, error) {
	rec, state, err := s.find(key{due, lsn})
	if err != nil {
		return Entry{}, 0, fmt.Errorf("get lsn %d due %d: %w", lsn, due, err)
	}
	return rec.entry(), state, nil
}

// entry returns what was put. The body aliases the record.
func (r *record) entry() Entry {
	return Entry{
		Flow: Flow{string(r.broker), string(r.topic)}, Lane: r.lane, Due: r.due,
		Key: string(r.key), Keys: string(r.keys), Body: r.body,
	}
}

// find returns the record of the pending entry with key k, in fresh memory.
func (s *Store) find(k key) (record, State, error) {
	v, err := s.openView(k, k.next())
	if err != nil {
		return record{}, 0, err
	}
	defer v.close()
	c, err := v.lookUp(k)
	if err != nil {
		return record{}, 0, err
	}
	p := scanPage{v: v}
	p.keep([]met{c})
	if len(p.rows) == 0 {
		return record{}, 0, ErrNotPending
	}
	r := &p.rows[0]
	rec, err := r.read(s)
	return rec, r.state, err
}

// lookUp returns the entry with key k, settled or not.
func (v *view) lookUp(k key) (met, error) {
	for _, g := range v.segs {
		if e := findEntry(g.entries, k.lsn); e != nil && e.due == k.due {
			return e.met(), nil
		}
	}
	for _, r := range v.runs {
		if k.lsn < r.minLSN || k.lsn > r.maxLSN {
			continue
		}
		ord, x, ok, err := r.find(k)
		if err != nil {
			return met{}, v.s.failed("look up an entry", err)
		}
		if m, sound := r.met(x, ord); ok && sound {
			return m, nil
		}
	}
	return met{}, ErrNotPending
}
