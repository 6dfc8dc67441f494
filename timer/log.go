package timer

import (
	"fmt"
	"math"
	"sync"
)

// intake is the open end of the intake log: what Put and Settle leave for the writer.
type intake struct {
	mu      sync.Mutex
	open    *group
	spare   *group
	settles []settle // waiting to be written
	written []settle // empty, for reuse
	next    LSN      // the next number to give out
	err     error    // why Put is refused, nil when it is not
	closing bool
	over    bool          // nothing will be written any more
	wake    chan struct{} // capacity 1
}

// group is what is written and synced together.
type group struct {
	buf  []byte // room for a group record, then records
	recs []groupRec
}

// groupRec is one record of a group; done is nil for a settle record, entry for all but a put.
type groupRec struct {
	off, size int // padded
	lsn       LSN
	flow      Flow
	entry     *entry
	hashes    []uint32 // of its keys
	done      func(error)
}

// settle is a settled entry on its way into the log.
type settle struct {
	key
	written func() // nil: nobody waits for it
}

func (x settle) isWritten() {
	if x.written != nil {
		x.written()
	}
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
	if err := s.shortOfSpace(e.Due); err != nil {
		return 0, err
	}
	size, hashes := padded(length), keyHashes(e)
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
		off: off, size: size, lsn: lsn, flow: e.Flow, hashes: hashes, done: done,
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

// settle queues a settled entry for the writer. While the log is failing, or when the store is closed, nobody has to
// wait for that.
func (in *intake) settle(x settle) {
	in.mu.Lock()
	waits := in.err == nil && !in.over
	if !in.over {
		in.settles = append(in.settles, settle{key: x.key})
	}
	if waits {
		in.settles[len(in.settles)-1].written = x.written
	}
	first := len(in.settles) == 1
	in.mu.Unlock()
	if first {
		in.poke()
	}
	if !waits {
		x.isWritten()
	}
}

// refusesCancel returns why a cancel that would be logged now is refused, nil if it is not. Cancels go on beyond the limit for puts.
func (in *intake) refusesCancel(limit int) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.refuses(headBytes+settleBytes, 2*limit)
}

// cancel queues a cancelled entry for the writer; done is called when that is durable or failed. When cancel itself
// returns an error, done is not called.
func (in *intake) cancel(k key, done func(error)) error {
	in.mu.Lock()
	if err := in.refuses(0, math.MaxInt); err != nil {
		in.mu.Unlock()
		return err
	}
	g := in.open
	off := len(g.buf)
	g.buf = appendCancel(g.buf, k, in.next)
	first := len(g.recs) == 0
	g.recs = append(g.recs, groupRec{off: off, size: len(g.buf) - off, lsn: in.next, done: done})
	in.next++
	in.mu.Unlock()
	if first {
		in.poke()
	}
	return nil
}

// take hands the open group to the writer, with the waiting settles as its last records. Puts alone are left where
// they are unless the writer wants them.
func (in *intake) take(puts bool) (g *group, settles []settle, closing bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.settles) == 0 && (len(in.open.recs) == 0 || !puts) {
		return nil, nil, in.closing
	}
	g = in.open
	settles, in.settles, in.written = in.settles, in.written, nil
	for rest := settles; len(rest) > 0; {
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
	return g, settles, in.closing
}

// giveBack returns a written group and its settles for their buffers.
func (in *intake) giveBack(g *group, limit int, settles []settle) {
	g = g.reset(limit)
	clear(settles)
	in.mu.Lock()
	in.spare, in.written = g, settles[:0]
	in.mu.Unlock()
}

// refuse makes Put answer err and takes the puts that wait. Settles are to be written when the log is open again: those that
// may be lost with the segment, those of a group that failed, and those that wait. Nobody waits for that.
func (in *intake) refuse(err error, unsynced []key, failed []settle) *group {
	in.mu.Lock()
	in.err = err
	var all []settle
	for _, k := range unsynced {
		all = append(all, settle{key: k})
	}
	free := append(failed, in.settles...)
	for _, x := range free {
		all = append(all, settle{key: x.key})
	}
	in.settles, in.written = all, nil
	g := in.open
	in.open = newGroup()
	in.mu.Unlock()
	for _, x := range free {
		x.isWritten()
	}
	return g
}

// end says that the writer is gone.
func (in *intake) end() {
	in.mu.Lock()
	left := in.settles
	in.settles, in.over = nil, true
	in.mu.Unlock()
	for _, x := range left {
		x.isWritten()
	}
}

// accept lets Put through again.
func (in *intake) accept() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.err = nil
}
