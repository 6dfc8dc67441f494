package timer

import (
	"fmt"
	"slices"
)

// Outcome is what Cancel found.
type Outcome int

const (
	// Cancelled: the entry was pending and will not fire.
	Cancelled Outcome = iota + 1
	// Fired: it was handed out before; it is being sent, or delivered.
	Fired
	// CancelledBefore: an earlier Cancel got it.
	CancelledBefore
	// Unknown: the store never held such an entry.
	Unknown
)

func (o Outcome) String() string {
	switch o {
	case Cancelled:
		return "cancelled"
	case Fired:
		return "fired"
	case CancelledBefore:
		return "cancelled before"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Cancel takes back the entry that Put gave that LSN for that due time (Unix ms), unless it has fired. It may read the disk
// and never waits for a write: done is called exactly once, from the writer's goroutine or before Cancel returns, when the outcome is as durable
// as an acknowledged Put. done must not block.
//
// After Cancelled or CancelledBefore the entry does not fire, nor after a crash. An entry that had fired before a crash, and was not
// settled, is pending again and can be cancelled although it may have been delivered.
//
// Of an entry whose record is gone from the disk only this is known: it was cancelled if its due time is still ahead of any moment at which
// this Store looked for due entries, since nothing fires before, and fired otherwise. So an entry that was cancelled long ago gives
// Fired once its due time has passed, and so does an LSN that was never acknowledged.
//
// Errors: ErrBusy, ErrFull, ErrFailed and ErrClosed as from Put; ErrCorrupt when the index page that would tell is damaged; or
// what the disk said. The cancel may or may not hold then: ask again.
func (s *Store) Cancel(due int64, lsn LSN, done func(Outcome, error)) {
	k := key{due, lsn}
	refused := s.log.refusesCancel(s.o.GroupBytes)
	out, write, err := s.cancel(k, refused)
	if err == nil && write {
		err = s.log.cancel(k, func(err error) { done(out.unless(err), err) })
		if err == nil {
			return
		}
	}
	if err != nil {
		err = fmt.Errorf("cancel lsn %d due %d: %w", lsn, due, err)
	}
	done(out.unless(err), err)
}

// mostByKey is how many entries with the same key CancelByKey looks at, and returns at most.
const mostByKey = 100

// CancelByKey takes back the one pending entry of a topic that has a key, be it its unique key or a business key, and calls done as Cancel
// does. If several are pending it cancels none: it returns them, at most 100, does not call done, and the caller decides. Without a pending one done
// gets what is known of the entries that had the key: Fired if one of them was, else CancelledBefore, else Unknown.
// It reads the disk: see Find, and Cancel for what is known of entries that are not pending, and for the errors.
func (s *Store) CancelByKey(topic, key string, done func(Outcome, error)) (several []Row) {
	rows, err := s.Find(Search{Topic: topic, Key: key, Limit: mostByKey})
	if err != nil {
		done(0, err)
		return nil
	}
	var waiting, cancelled []Row
	fired := false
	for _, r := range rows {
		switch r.State {
		case StateWaiting, StateArmed:
			waiting = append(waiting, r)
		case StateCancelled:
			cancelled = append(cancelled, r)
		default:
			fired = true
		}
	}
	switch {
	case len(waiting) > 1:
		return waiting
	case len(waiting) == 1:
		s.Cancel(waiting[0].Due, waiting[0].LSN, done)
	case fired:
		done(Fired, nil)
	case len(cancelled) > 0:
		s.Cancel(cancelled[0].Due, cancelled[0].LSN, done) // which makes sure that it is durable
	default:
		done(Unknown, nil)
	}
	return nil
}

func (o Outcome) unless(err error) Outcome {
	if err != nil {
		return 0
	}
	return o
}

// cancel marks an entry as cancelled if it is pending and nothing speaks against it: refused. write: the outcome holds once a record of it is
// durable. That an entry is marked already is no proof: its record may be on its way, or have failed.
func (s *Store) cancel(k key, refused error) (out Outcome, write bool, err error) {
	for {
		out, write, runs, err := s.cancelInRAM(k, refused)
		if runs == nil {
			return out, write, err
		}
		out, write, again, err := s.cancelOnDisk(runs, k, refused)
		if !again {
			return out, write, err
		}
	}
}

// cancelInRAM decides about an entry of an unsealed segment, and about one that is in no file. Else it returns the runs that may hold
// it, with a reference to each.
func (s *Store) cancelInRAM(k key, refused error) (out Outcome, write bool, runs []*run, err error) {
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false, nil, ErrClosed
	}
	for _, g := range s.segs {
		e := g.find(k.lsn)
		switch {
		case e == nil:
			continue
		case e.due != k.due:
			return Unknown, false, nil, nil
		case e.home == nil && !e.cancelled && e.flow.fired[e.lsn] != e: // lost
			out, write, err = s.gone(k, now, refused)
			return out, write, nil, err
		}
		out, write, err = s.cancelEntry(e, e.done, e.cancelled, refused)
		return out, write, nil, err
	}
	for _, r := range s.runs {
		if r.minLSN <= k.lsn && k.lsn <= r.maxLSN && r.minDue <= k.due && k.due <= r.maxDue {
			r.refs++
			runs = append(runs, r)
		}
	}
	if runs == nil {
		out, write, err = s.gone(k, now, refused)
		return out, write, nil, err
	}
	return 0, false, runs, nil
}

// gone says what became of an entry that is in no file. A merge may have left it out that is not in MANIFEST yet; then the record of the cancel
// must count. Store.mu is held.
func (s *Store) gone(k key, now int64, refused error) (out Outcome, write bool, err error) {
	switch {
	case k.lsn == 0 || k.lsn > s.admitted:
		return Unknown, false, nil
	case k.due <= max(now, s.latest):
		return Fired, false, nil
	case s.unnamed:
		return CancelledBefore, true, refused
	}
	return CancelledBefore, false, nil
}

// cancelOnDisk decides about an entry that is in one of runs, if anywhere, and releases them. again: the files have changed meanwhile.
func (s *Store) cancelOnDisk(runs []*run, k key, refused error) (out Outcome, write, again bool, err error) {
	var x found
	var failed error
	for _, r := range runs {
		ord, line, ok, err := r.find(k)
		switch {
		case err != nil:
			failed = err
		case ok && int(line.flow) < len(r.names):
			x = found{line, r, ord}
		}
	}
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range runs {
		s.release(&r.dataFile)
		again = again || (x.run == nil || x.run == r) && !slices.Contains(s.runs, r)
	}
	switch {
	case s.closed:
		return 0, false, false, ErrClosed
	case again:
		return 0, false, true, nil
	case x.run == nil && failed != nil:
		return 0, false, false, failed
	case x.run == nil:
		out, write, err = s.gone(k, now, refused)
		return out, write, false, err
	}
	f := x.run.names[x.flow]
	e := f.fired[k.lsn]
	if e == nil {
		e = f.armed.get(k)
	}
	if e == nil {
		e = x.entry(f)
	}
	out, write, err = s.cancelEntry(e, x.run.isDone(x.ord), x.run.isCancelled(x.ord), refused)
	return out, write, false, err
}

// cancelEntry decides about an entry whose record is there. Store.mu is held.
func (s *Store) cancelEntry(e *entry, isDone, isCancelled bool, refused error) (out Outcome, write bool, err error) {
	switch {
	case isCancelled:
		return CancelledBefore, true, refused
	case isDone || e.flow.fired[e.lsn] != nil:
		return Fired, false, nil
	case refused != nil:
		return 0, false, refused
	}
	s.wheel.remove(e)
	s.end(e, true)
	s.cancels++
	return Cancelled, true, nil
}
