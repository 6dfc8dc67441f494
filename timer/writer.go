package timer

import (
	"fmt"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	settleWriteDelay = 4 * time.Millisecond  // a settle is written after at most this
	settleSyncDelay  = 40 * time.Millisecond // and synced after at most this
	admitChunk       = 512                   // entries per hold of Store.mu
	maxUnsynced      = 1 << 19               // LSNs; half of what an Open skips
	maxBackoffFactor = 50
	lsnSkip          = 1 << 20
)

// writer is the one goroutine that appends to the intake log. It swaps the open group, writes it, syncs, arms its
// puts and answers them; while it does, the next group fills.
type writer struct {
	s       *Store
	seg     *segment
	off     int64 // where the next group goes
	safe    int64 // everything before it is synced
	written LSN   // highest LSN written, and synced
	synced  LSN

	ready    []groupRec // puts that are written but not answered
	unsynced []key      // settles that are written but not synced
}

func (w *writer) run() {
	defer w.s.wg.Done()
	defer w.s.written.Done()
	write, sync := stoppedTimer(), stoppedTimer()
	writeSet, syncSet := false, false
	for {
		writeDue, syncDue := false, false
		select {
		case <-w.s.log.wake:
		case <-write.C:
			writeDue, writeSet = true, false
		case <-sync.C:
			syncDue, syncSet = true, false
		}
		g, settled, waiting, closing := w.s.log.take(writeDue)
		if waiting && !writeSet {
			write.Reset(settleWriteDelay)
			writeSet = true
		}
		ok := true
		if g != nil {
			ok = w.write(g, settled)
		}
		if ok && (syncDue || closing) {
			ok = w.syncNow()
		}
		if g == nil && closing || !ok && !w.reopen() {
			return
		}
		if closing {
			w.s.log.poke() // once more round, for what came in between
		}
		if w.written != w.synced && !syncSet {
			sync.Reset(w.syncDelay())
			syncSet = true
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

// write appends a group, in several parts where it crosses into the next segment, and answers its puts. False: it
// failed, and every put that was not durable has its error.
func (w *writer) write(g *group, settled []key) bool {
	for at := 0; at < len(g.recs); {
		n, size := w.fits(g.recs[at:])
		if n == 0 {
			if err := w.rotate(); err != nil {
				w.fail(err, g.recs[at:], settled)
				return false
			}
			continue
		}
		if err := w.append(g, at, n, size); err != nil {
			w.fail(err, g.recs[at:], settled)
			return false
		}
		at += n
	}
	w.unsynced = append(w.unsynced, settled...)
	mustSync := w.s.o.Sync == SyncAlways && len(w.ready) > 0 || w.written-w.synced > maxUnsynced
	if err := w.commit(mustSync); err != nil {
		w.fail(err, nil, nil)
		return false
	}
	w.s.log.giveBack(g, w.s.o.GroupBytes)
	return true
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
		r.entry.home = &w.seg.dataFile
		r.entry.off = w.off + headBytes + int64(r.off-start)
		w.ready = append(w.ready, r)
	}
	w.off += headBytes + int64(size)
	w.written = recs[n-1].lsn
	return nil
}

// commit syncs if asked to, arms the written puts and answers them.
func (w *writer) commit(sync bool) error {
	if sync {
		if err := w.sync(); err != nil {
			return err
		}
	}
	w.s.admit(w.seg, w.ready, w.written)
	for _, r := range w.ready {
		r.done(nil)
	}
	clear(w.ready)
	w.ready = w.ready[:0]
	return nil
}

func (w *writer) sync() error {
	if w.written == w.synced {
		return nil
	}
	if err := w.seg.f.Sync(true); err != nil {
		return fmt.Errorf("sync %s: %w", w.seg.path, err)
	}
	w.safe, w.synced, w.unsynced = w.off, w.written, nil
	return nil
}

func (w *writer) syncNow() bool {
	if err := w.sync(); err != nil {
		w.fail(err, nil, nil)
		return false
	}
	return true
}

// rotate finishes the segment and goes on in the next. A full segment is always synced.
func (w *writer) rotate() error {
	if err := w.commit(true); err != nil {
		return err
	}
	next, err := w.s.waitSpare()
	if err != nil {
		return &noSpareError{err}
	}
	w.use(next)
	return nil
}

func (w *writer) use(next *segment) {
	w.s.mu.Lock()
	if w.seg != nil {
		w.seg.full = true
	}
	w.s.segs = append(w.s.segs, next)
	w.s.mu.Unlock()
	w.seg, w.off, w.safe = next, segDataStart, segDataStart
	w.s.wakeJanitor()
}

// noSpareError: there is no next segment; the present one is sound.
type noSpareError struct{ err error }

func (e *noSpareError) Error() string { return "no next segment: " + e.err.Error() }
func (e *noSpareError) Unwrap() error { return e.err }

// fail answers every put that is not durable with err and makes Put refuse. Settles wait until the log is
// open again.
func (w *writer) fail(err error, rest []groupRec, settled []key) {
	cause := ErrFailed
	if vfs.IsFull(err) {
		cause = ErrFull
	}
	_, sound := err.(*noSpareError)
	err = fmt.Errorf("%w: %w", cause, err)
	w.s.o.Log.Error("timer: the intake log stopped, retrying", "err", err)
	waiting := w.s.log.refuse(err, append(w.unsynced, settled...))
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
	w.seg.full = true
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
func (s *Store) waitSpare() (*segment, error) {
	select {
	case g := <-s.spares:
		return g, nil
	case <-s.troubles: // an old one
	default:
	}
	s.wakeJanitor()
	select {
	case g := <-s.spares:
		return g, nil
	case err := <-s.troubles:
		return nil, err
	}
}

// admit makes durable puts visible to firing.
func (s *Store) admit(seg *segment, recs []groupRec, last LSN) {
	wake := false
	for rest := recs; ; {
		n := min(len(rest), admitChunk)
		s.mu.Lock()
		before, had := s.wheel.nextDue()
		for _, r := range rest[:n] {
			e := r.entry
			e.flow = s.wheel.flow(r.flow)
			seg.entries = append(seg.entries, e)
			seg.saw(e.lsn)
			s.wheel.admit(e)
		}
		rest = rest[n:]
		if len(rest) == 0 && last > 0 {
			seg.saw(last)
		}
		after, armed := s.wheel.nextDue()
		wake = wake || armed && (!had || after < before)
		s.mu.Unlock()
		if len(rest) == 0 {
			break
		}
	}
	if wake {
		s.wakeFiring()
	}
}
