package timer

import (
	"fmt"
	"sync"
)

// intake is the open end of the intake log: what Put and Settle leave for the writer.
type intake struct {
	mu      sync.Mutex
	open    *group
	spare   *group
	settles []key // waiting to be written
	next    LSN   // the next number to give out
	err     error // why Put is refused, nil when it is not
	closing bool
	wake    chan struct{} // capacity 1
}

// group is what is written and synced together.
type group struct {
	buf  []byte // room for a group record, then records
	recs []groupRec
}

// groupRec is one record of a group; done is nil for a settle record.
type groupRec struct {
	off, size int // padded
	lsn       LSN
	flow      Flow
	entry     *entry
	done      func(error)
}

func newGroup() *group { return &group{buf: make([]byte, headBytes, 64<<10)} }

// reset empties g for another use; a buffer that grew past limit is let go.
func (g *group) reset(limit int) *group {
	if cap(g.buf) > 2*limit+headBytes {
		return newGroup()
	}
	clear(g.recs)
	g.buf, g.recs = g.buf[:headBytes], g.recs[:0]
	return g
}

// Put stores an entry. It never waits for the disk: it answers at once with the entry's LSN, and done is called
// exactly once, from the writer's goroutine, when the entry is durable (nil) or not (the outcome is unknown
// until then: an entry whose done got an error may still fire after a crash). done must not block. When Put itself returns an error, done is not called.
//
// Errors: ErrBusy (Options.GroupBytes are waiting), ErrFull, ErrFailed, ErrClosed, ErrTooLarge.
func (s *Store) Put(e *Entry, done func(error)) (LSN, error) {
	length, ok := putLength(e)
	if !ok || int64(padded(length)) > s.maxRecord() {
		return 0, fmt.Errorf("%w: %d bytes of body, a segment has %d", ErrTooLarge, len(e.Body), s.o.SegmentBytes)
	}
	size := padded(length)
	in := &s.log
	in.mu.Lock()
	if err := in.refuses(size, s.o.GroupBytes); err != nil {
		in.mu.Unlock()
		return 0, err
	}
	g := in.open
	lsn := in.next
	in.next++
	off := len(g.buf)
	g.buf = appendPut(g.buf, e, length, lsn)
	first := len(g.recs) == 0
	g.recs = append(g.recs, groupRec{
		off: off, size: size, lsn: lsn, flow: e.Flow, done: done,
		entry: &entry{due: e.Due, lsn: lsn, lane: e.Lane, length: int32(length)},
	})
	in.mu.Unlock()
	if first {
		in.poke()
	}
	return lsn, nil
}

func (s *Store) maxRecord() int64 { return s.o.SegmentBytes - segDataStart - headBytes }

func (in *intake) refuses(size, limit int) error {
	switch {
	case in.closing:
		return ErrClosed
	case in.err != nil:
		return in.err
	case len(in.open.recs) > 0 && len(in.open.buf)+size > limit:
		return ErrBusy
	}
	return nil
}

func (in *intake) poke() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// settle queues a settled entry for the writer.
func (in *intake) settle(k key) {
	in.mu.Lock()
	in.settles = append(in.settles, k)
	first := len(in.settles) == 1
	in.mu.Unlock()
	if first {
		in.poke()
	}
}

// take hands the open group to the writer, with the waiting settles as its last records if there are puts or
// always is set. waiting: settles were left.
func (in *intake) take(always bool) (g *group, settled []key, waiting, closing bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	closing = in.closing
	if len(in.open.recs) == 0 && (len(in.settles) == 0 || !always && !closing) {
		return nil, nil, len(in.settles) > 0, closing
	}
	g = in.open
	settled, in.settles = in.settles, nil
	for rest := settled; len(rest) > 0; {
		n := min(len(rest), settlesPerRecord)
		off := len(g.buf)
		g.buf = appendSettles(g.buf, rest[:n], in.next)
		g.recs = append(g.recs, groupRec{off: off, size: len(g.buf) - off, lsn: in.next})
		in.next++
		rest = rest[n:]
	}
	in.open, in.spare = in.spare, nil
	if in.open == nil {
		in.open = newGroup()
	}
	return g, settled, false, closing
}

// giveBack returns a written group for its buffers.
func (in *intake) giveBack(g *group, limit int) {
	g = g.reset(limit)
	in.mu.Lock()
	in.spare = g
	in.mu.Unlock()
}

// refuse makes Put answer err and takes the puts that wait. Settles go on waiting, those given first.
func (in *intake) refuse(err error, unsynced []key) *group {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.err = err
	in.settles = append(unsynced, in.settles...)
	g := in.open
	in.open = newGroup()
	return g
}

// accept lets Put through again.
func (in *intake) accept() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.err = nil
}
