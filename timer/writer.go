package timer

import (
	"fmt"
	"slices"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	settleSyncDelay  = 40 * time.Millisecond // a settle is synced after at most this
	admitChunk       = 512                   // entries per hold of Store.mu
	maxUnsynced      = 1 << 19               // LSNs; half of what an Open skips
	lsnSkip          = 1 << 20
	maxBackoffFactor = 50
)

// writer is the one goroutine that appends to the intake log. It swaps the open group, writes it, has it synced, arms
// its puts and answers them. While a sync is under way puts gather for the next group, but settles are written at
// once, and what has gathered with them: until it is written, a killed process forgets it.
type writer struct {
	s       *Store
	seg     *segment
	off     int64 // where the next group goes
	safe    int64 // everything before it is synced
	written LSN   // highest LSN written, and synced
	synced  LSN
	first   LSN // the lowest that this Open gives out

	ready    []groupRec // puts and cancels that are written; no sync covers them yet
	unsynced []key      // settles that are written, in order
	durable  []groupRec // those that count as stored, to be armed and answered
	spare    []groupRec // empty, for reuse
	under    *syncing   // the sync under way, nil if there is none
	syncDue  bool       // what is written has waited long enough

	toSync chan vfs.File // to the syncer
	ended  chan error    // from it
}

// syncing is what a sync that is under way covers.
type syncing struct {
	end     int64 // of the segment
	lsn     LSN
	puts    []groupRec
	settles int // of writer.unsynced
}

func newWriter(s *Store) *writer {
	return &writer{s: s, first: s.log.next, toSync: make(chan vfs.File), ended: make(chan error, 1)}
}

// syncer is the goroutine that waits for the disk.
func (w *writer) syncer() {
	defer w.s.wg.Done()
	for f := range w.toSync {
		w.ended <- f.Sync(true)
	}
}

func (w *writer) run() {
	defer w.s.wg.Done()
	defer w.s.written.Done()
	defer close(w.toSync)
	defer w.s.log.end()
	delay, waiting := stoppedTimer(), false
	defer delay.Stop()
	if w.seg == nil && !w.reopen() {
		return
	}
	for {
		var err error
		select {
		case <-w.s.log.wake:
		case err = <-w.ended:
			err = w.endSync(err)
		case <-delay.C:
			w.syncDue, waiting = true, false
		}
		over := false
		if err != nil {
			w.fail(err, nil, nil)
		} else {
			over, err = w.advance()
		}
		if over {
			w.s.logEnd = &cutRequest{seg: w.seg, end: w.safe}
		}
		if over || err != nil && !w.reopen() {
			return
		}
		if !waiting && w.uncovered() {
			delay.Reset(w.syncDelay())
			waiting = true
		}
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (w *writer) syncDelay() time.Duration {
	if w.s.o.Sync == SyncInterval {
		return w.s.o.SyncEvery
	}
	return settleSyncDelay
}

// uncovered says whether something is written that no sync covers.
func (w *writer) uncovered() bool {
	if w.under != nil {
		return w.written != w.under.lsn
	}
	return w.written != w.synced
}

// advance writes what waits, starts the next sync if one is wanted, and answers what the last one covered. over: the
// store closes and everything is done.
func (w *writer) advance() (over bool, err error) {
	g, settles, closing := w.s.log.take(w.under == nil || w.s.o.Sync == SyncInterval)
	if g != nil {
		if err := w.write(g, settles); err != nil {
			return false, err
		}
	}
	if w.under == nil && w.uncovered() && (len(w.ready) > 0 || w.syncDue || closing) {
		w.startSync()
	}
	w.answer()
	if closing && g != nil {
		w.s.log.poke() // once more round, for what came in between
	}
	return closing && g == nil && w.under == nil, nil
}

func (w *writer) startSync() {
	w.under = &syncing{end: w.off, lsn: w.written, puts: w.ready, settles: len(w.unsynced)}
	w.ready, w.spare, w.syncDue = w.spare, nil, false
	w.toSync <- w.seg.f
}

// endSync takes note of how the sync under way ended. When it failed, nothing that it covered counts.
func (w *writer) endSync(err error) error {
	u := w.under
	w.under = nil
	if err != nil {
		w.ready = append(u.puts, w.ready...)
		return fmt.Errorf("sync %s: %w", w.seg.path, err)
	}
	w.safe, w.synced, w.durable = u.end, u.lsn, u.puts
	w.s.settling.Add(-int64(u.settles))
	w.unsynced = slices.Delete(w.unsynced, 0, u.settles)
	return nil
}

// flush syncs all that is written, and waits for that.
func (w *writer) flush() error {
	w.answer()
	for w.under != nil || w.uncovered() {
		if w.under == nil {
			w.startSync()
		}
		if err := w.endSync(<-w.ended); err != nil {
			return err
		}
		w.answer()
	}
	return nil
}

// answer arms the puts that are stored, and answers them.
func (w *writer) answer() {
	if len(w.durable) == 0 {
		return
	}
	w.s.admit(w.seg, w.durable)
	for _, r := range w.durable {
		r.done(nil)
	}
	clear(w.durable)
	w.durable, w.spare = nil, w.durable[:0]
}

// write appends a group, in several parts where it crosses into the next segment. When it fails, every put that is
// not durable has its error.
func (w *writer) write(g *group, settles []settle) error {
	for at := 0; at < len(g.recs); {
		n, size := w.fits(g.recs[at:])
		err := error(nil)
		if n == 0 {
			err = w.rotate()
		} else {
			err = w.append(g, at, n, size)
		}
		if err != nil {
			w.fail(err, g.recs[at:], settles)
			return err
		}
		at += n
	}
	for _, x := range settles {
		w.unsynced = append(w.unsynced, x.key)
		x.isWritten()
	}
	w.s.log.giveBack(g, w.s.o.GroupBytes, settles)
	if w.s.o.Sync == SyncInterval {
		w.durable, w.ready, w.spare = w.ready, w.spare, nil
		w.answer()
	}
	if w.written-max(w.synced, w.first) <= maxUnsynced {
		return nil
	}
	err := w.flush()
	if err != nil {
		w.fail(err, nil, nil)
	}
	return err
}

// fits says how many records, and bytes of them, go behind a group record into what is left of the segment.
func (w *writer) fits(recs []groupRec) (n, size int) {
	room := w.seg.size - w.off - headBytes
	for n < len(recs) && int64(size+recs[n].size) <= room {
		size += recs[n].size
		n++
	}
	return n, size
}

// append writes n records of g, from the one numbered at, as a group of their own.
func (w *writer) append(g *group, at, n, size int) error {
	recs := g.recs[at : at+n]
	start := recs[0].off
	for _, r := range recs {
		signRecord(g.buf[r.off:], w.seg.seed)
	}
	// The group record goes right before the first record: over the room left at the start of the buffer, or
	// over the end of a record that is in the previous segment already.
	head := g.buf[start-headBytes : start]
	putGroupHead(head, recs[0].lsn, w.synced, size)
	signRecord(head, w.seg.seed)
	if _, err := w.seg.f.WriteAt(g.buf[start-headBytes:start+size], w.off); err != nil {
		return fmt.Errorf("write %d bytes at %d of %s: %w", headBytes+size, w.off, w.seg.path, err)
	}
	for _, r := range recs {
		if r.done == nil {
			continue
		}
		if r.entry != nil {
			r.entry.home = &w.seg.dataFile
			r.entry.off = w.off + headBytes + int64(r.off-start)
		}
		w.ready = append(w.ready, r)
	}
	w.off += headBytes + int64(size)
	w.written = recs[n-1].lsn
	return nil
}

// rotate finishes the segment and goes on in the next. A full segment is always synced.
func (w *writer) rotate() error {
	if err := w.flush(); err != nil {
		return err
	}
	next, err := w.waitSpare()
	if err != nil {
		return &noSpareError{err}
	}
	w.use(next)
	return nil
}

func (w *writer) use(next *segment) {
	w.s.mu.Lock()
	w.finishSegment()
	w.s.segs = append(w.s.segs, next)
	w.s.mu.Unlock()
	w.seg, w.off, w.safe = next, segDataStart, segDataStart
	w.s.wakeJanitor()
}

// finishSegment says that nothing will be appended to the segment. Store.mu is held.
func (w *writer) finishSegment() {
	if w.seg == nil || w.seg.full {
		return
	}
	w.seg.full = true
	if w.off > segDataStart {
		w.seg.saw(w.written)
	}
}

// noSpareError: there is no next segment; the present one is sound.
type noSpareError struct{ err error }

func (e *noSpareError) Error() string { return "no next segment: " + e.err.Error() }
func (e *noSpareError) Unwrap() error { return e.err }

// fail answers every put that is not durable with err and makes Put refuse. Settles wait until the log is
// open again. rest and settles are of the group that was being written.
func (w *writer) fail(err error, rest []groupRec, settles []settle) {
	if w.under != nil {
		_ = w.endSync(<-w.ended) // if it failed too, err says enough
	}
	w.answer()
	cause := ErrFailed
	if vfs.IsFull(err) {
		cause = ErrFull
	}
	_, sound := err.(*noSpareError)
	err = fmt.Errorf("%w: %w", cause, err)
	w.s.o.Log.Error("timer: the intake log stopped, retrying", "err", err)
	waiting := w.s.log.refuse(err, w.unsynced, settles)
	w.unsynced = nil
	if !sound {
		w.condemn()
	}
	for _, recs := range [][]groupRec{w.ready, rest, waiting.recs} {
		for _, r := range recs {
			if r.done != nil {
				r.done(err)
			}
		}
	}
	w.ready = nil
}

// condemn gives up the segment: nothing behind what was acknowledged counts.
func (w *writer) condemn() {
	end := w.safe
	if w.s.o.Sync == SyncInterval {
		end = w.off // acknowledged, if only written
	}
	w.synced = w.written
	w.s.mu.Lock()
	w.finishSegment()
	w.s.cut = &cutRequest{seg: w.seg, end: end, done: make(chan struct{})}
	w.s.mu.Unlock()
	w.s.wakeJanitor()
}

// cutRequest asks the janitor to note in MANIFEST where a condemned segment ends.
type cutRequest struct {
	seg  *segment
	end  int64
	done chan struct{} // closed when that is durable
}

// reopen waits until the log can go on in a fresh segment. False: the store closes.
func (w *writer) reopen() bool {
	w.s.mu.Lock()
	cut := w.s.cut
	w.s.mu.Unlock()
	if cut != nil {
		select {
		case <-cut.done:
		case <-w.s.closing:
			return false
		}
	}
	select {
	case next := <-w.s.spares:
		w.use(next)
	case <-w.s.closing:
		return false
	}
	w.s.o.Log.Info("timer: the intake log goes on", "segment", w.seg.path)
	w.s.log.accept()
	w.s.log.poke()
	return true
}

// waitSpare returns the next segment, or why the janitor could not make one.
func (w *writer) waitSpare() (*segment, error) {
	s := w.s
	select {
	case g := <-s.spares:
		return g, nil
	default:
	}
	select {
	case <-s.troubles: // an old one
	default:
	}
	s.mu.Lock()
	w.finishSegment() // it may be sealed now: on a full disk that is how the next one comes
	s.mu.Unlock()
	s.wakeJanitor()
	select {
	case g := <-s.spares:
		return g, nil
	case err := <-s.troubles:
		select {
		case g := <-s.spares: // the trouble was with something else
			return g, nil
		default:
			return nil, err
		}
	}
}

// admit makes durable puts visible to firing.
func (s *Store) admit(seg *segment, recs []groupRec) {
	wake := false
	for rest := recs; len(rest) > 0; {
		n := min(len(rest), admitChunk)
		s.mu.Lock()
		before, had := s.wheel.nextDue()
		for _, r := range rest[:n] {
			e := r.entry
			if e == nil {
				continue
			}
			s.admitted = e.lsn
			e.flow = s.wheel.flow(r.flow)
			seg.add(e, r.hashes)
			seg.saw(e.lsn)
			s.wheel.admit(e)
		}
		rest = rest[n:]
		after, armed := s.wheel.nextDue()
		wake = wake || armed && (!had || after < before)
		s.mu.Unlock()
	}
	if wake {
		s.wakeFiring()
	}
}
