package timer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// maxUnsealed is how many full segments may wait for their seal while the next is made ahead. Intake that is faster than the
// seals waits then: RAM and the time that an Open takes depend on what is not sealed.
const maxUnsealed = 1

// spareFiles is how many retired segments are kept for recycling.
const spareFiles = 2

// janitor is the one goroutine that makes segments, seals them, writes MANIFEST and unlinks.
func (s *Store) janitor() {
	defer s.wg.Done()
	if s.man.f == nil && !s.lateManifest() {
		return
	}
	look := time.NewTicker(s.o.lookEvery)
	defer look.Stop()
	for {
		did, err := s.chore()
		if did {
			poke(s.spaceWake)
		}
		switch {
		case errors.Is(err, ErrClosed):
			return
		case err != nil:
			s.trouble(err)
			if !s.pause() {
				return
			}
		case did:
			s.calm()
		default:
			select {
			case <-s.janitorWake:
			case <-look.C:
				s.looks = true
			case <-s.stop:
				return
			}
		}
		select {
		case <-s.stop:
			return
		default:
		}
	}
}

// chore does the most urgent piece of work, if there is any.
func (s *Store) chore() (did bool, err error) {
	s.mu.Lock()
	cut := s.cut
	dead := s.deadRun()
	full := s.oldestFull()
	evidence := s.newEvidence
	open := s.hasOpenSegment()
	behind := s.fullSegments() > maxUnsealed && !s.sealFails
	s.mu.Unlock()
	s.emptyTrash()
	if cut != nil {
		return true, s.noteCut(cut)
	}
	if evidence {
		return true, s.noteEvidence()
	}
	// Without room for the next segment, what follows may give some back: a store that has filled its disk goes on
	// as soon as enough is delivered.
	var noSpare error
	if len(s.spares) == 0 && !behind {
		if noSpare = s.nextSpare(); noSpare == nil || errors.Is(noSpare, ErrClosed) {
			return true, noSpare
		}
	}
	switch {
	case dead != nil:
		return true, s.dropRun(dead)
	case full != nil:
		return true, s.sealFull(full, noSpare, open, behind)
	}
	select {
	case j := <-s.merged:
		s.looks = true // for the next one
		return true, s.endMerge(j)
	default:
	}
	if did, err := s.look(noSpare); did || err != nil {
		return did, err
	}
	switch {
	case noSpare != nil && !open:
		return true, s.spend(s.makeSpare)
	case s.wantsReserve():
		s.makeReserve()
		return true, nil
	case errors.Is(noSpare, errNoRoom): // nobody waits for it, and the watermarks see to it
		return false, nil
	}
	return false, noSpare
}

// sealFull seals a segment, out of the reserve if need be. If even that does not do while the writer has no open segment, it gets
// one first: what is delivered and settled meanwhile need not be sealed.
//
// Intake does not wait for a seal that fails: behind says that the next segment was not made for that reason.
func (s *Store) sealFull(full *segment, noSpare error, open, behind bool) error {
	err := s.spend(func() error { return s.seal(full) })
	s.sealFails = err != nil
	if err != nil && behind {
		noSpare = s.nextSpare()
	}
	if vfs.IsFull(err) && noSpare != nil && !open {
		noSpare = s.spend(s.makeSpare)
	}
	if err != nil {
		return errors.Join(noSpare, err)
	}
	return nil
}

// look does what pays but is not urgent, from time to time; always when there is no room for the next segment.
func (s *Store) look(noSpare error) (did bool, err error) {
	if !s.looks && noSpare == nil {
		return false, nil
	}
	s.looks = false
	did, err = s.punch()
	if noSpare == nil || errors.Is(noSpare, errNoRoom) {
		s.startMerge()
	}
	return did, err
}

func (s *Store) deadRun() *run {
	for _, r := range s.runs {
		if r.pending == 0 && !r.merging {
			return r
		}
	}
	return nil
}

// oldestFull returns the segment to seal next: always the oldest, so that settles never overtake their puts.
func (s *Store) oldestFull() *segment {
	if len(s.segs) > 0 && s.segs[0].full {
		return s.segs[0]
	}
	return nil
}

func (s *Store) fullSegments() int {
	n := 0
	for _, g := range s.segs {
		if g.full {
			n++
		}
	}
	return n
}

// noteEvidence makes MANIFEST remember which files are evidence.
func (s *Store) noteEvidence() error {
	s.mu.Lock()
	s.newEvidence = false
	s.mu.Unlock()
	return s.commit(nil)
}

// spoil makes a file evidence. Store.mu is held.
func (s *Store) spoil(d *dataFile) {
	if !d.rotten {
		d.rotten, s.newEvidence = true, true
		s.wakeJanitor()
	}
}

func (s *Store) noteCut(c *cutRequest) error {
	err := s.commit([]manifestOp{cutSeg(c)})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.cut = nil
	s.mu.Unlock()
	close(c.done)
	return nil
}

func (s *Store) dropRun(r *run) error {
	if err := s.commit([]manifestOp{{op: opDropRun, id: r.id}}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = slices.DeleteFunc(s.runs, func(x *run) bool { return x == r })
	r.doomed = true
	s.trash = append(s.trash, &r.dataFile)
	return nil
}

// nextSpare makes the next segment unless that takes space which is kept for seals.
func (s *Store) nextSpare() error {
	if len(s.free) == 0 {
		if err := s.roomFor(s.o.SegmentBytes); err != nil {
			return err
		}
	}
	return s.makeSpare()
}

// makeSpare prepares the next segment: it is on the disk and in MANIFEST before anything is written to it.
func (s *Store) makeSpare() error {
	s.filling.Store(true)
	defer s.filling.Store(false)
	seg, err := s.makeSegment()
	if err != nil {
		return err
	}
	if err := s.commit([]manifestOp{addSeg(seg)}); err != nil {
		seg.f.Close()
		return err
	}
	s.spares <- seg
	return nil
}

func (s *Store) makeSegment() (*segment, error) {
	id, epoch := s.newFileID(), newEpoch()
	path := s.path(fileName(segPrefix, id))
	f, err := s.blankFile(path)
	if err != nil {
		return nil, err
	}
	head := make([]byte, segDataStart)
	copy(head, encodeHead(segMagic, id, epoch))
	_, err = f.WriteAt(head, 0)
	if err == nil {
		err = f.Sync(false)
	}
	if err == nil {
		err = s.o.FS.SyncDir(s.o.Dir)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(fmt.Errorf("prepare %s: %w", path, err), s.o.FS.Remove(path))
	}
	return newSegment(id, epoch, path, f, s.o.SegmentBytes), nil
}

// blankFile returns a file of the size of a segment: a recycled one or a new one full of zeros.
func (s *Store) blankFile(path string) (vfs.File, error) {
	if n := len(s.free); n > 0 {
		f, err := s.recycle(s.free[n-1], path)
		if err == nil {
			return f, nil
		}
		s.o.Log.Warn("timer: cannot recycle a segment", "path", path, "err", err)
		if s.roomFor(s.o.SegmentBytes) != nil {
			return nil, err
		}
	}
	f, err := s.o.FS.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	if err := vfs.ZeroFill(f, 0, s.o.SegmentBytes); err != nil {
		f.Close()
		return nil, errors.Join(fmt.Errorf("fill %s: %w", path, err), s.o.FS.Remove(path))
	}
	return f, nil
}

// recycle takes a blank segment into use under another name. When that fails it stays, behind the others.
func (s *Store) recycle(old, path string) (vfs.File, error) {
	rest := s.free[:len(s.free)-1]
	err := s.o.FS.Rename(old, path)
	if err == nil {
		var f vfs.File
		if f, err = s.o.FS.Open(path); err == nil {
			s.setFree(rest)
			return f, nil
		}
		err = errors.Join(err, s.o.FS.Rename(path, old))
	}
	if !vfs.IsNotExist(err) {
		rest = append([]string{old}, rest...)
	}
	s.setFree(rest)
	return nil, fmt.Errorf("recycle %s: %w", old, err)
}

func (s *Store) setFree(free []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = free
}

// emptyTrash recycles or unlinks retired files that nobody reads any more, and returns how many.
func (s *Store) emptyTrash() (n int) {
	s.mu.Lock()
	var out []*dataFile
	s.trash = slices.DeleteFunc(s.trash, func(d *dataFile) bool {
		if d.refs == 0 {
			out = append(out, d)
		}
		return d.refs == 0
	})
	s.mu.Unlock()
	for _, d := range out {
		d.f.Close()
		if err := s.dispose(d); err != nil {
			s.o.Log.Warn("timer: a file that is not needed any more stays until the next start", "path", d.path, "err", err)
			continue
		}
		n++
	}
	return n
}

func (s *Store) dispose(d *dataFile) error {
	switch {
	case d.rotten:
		return s.o.FS.Rename(d.path, d.path+brokenSuffix)
	case d.seg == nil || d.size != s.o.SegmentBytes || len(s.free) >= spareFiles:
		return s.o.FS.Remove(d.path)
	}
	free := s.path(fileName(freePrefix, d.id))
	if s.o.FS.Rename(d.path, free) != nil { // no room in the folder, perhaps
		return s.o.FS.Remove(d.path)
	}
	s.setFree(append(s.free, free))
	return nil
}

// commit makes ops durable in MANIFEST, with all bitmap changes that it does not have yet. It does not give up before the store
// closes (ErrClosed), because after a failure nothing is known about what MANIFEST says.
func (s *Store) commit(ops []manifestOp) error {
	s.mu.Lock()
	var all []manifestOp
	for _, r := range s.runs {
		all = append(all, r.takeDirty()...)
	}
	all = append(all, s.takeRotten()...)
	s.mu.Unlock()
	all = append(append(all, ops...), manifestOp{op: opNextFile, id: s.man.state.nextFile})
	err := s.man.commit(all, s.bitsOf)
	for err != nil {
		s.filling.Store(false) // this may take long
		if vfs.IsFull(err) && (s.shrinkReserve() || s.relinquish()) {
			err = s.man.rewrite(s.bitsOf)
			continue
		}
		s.trouble(err)
		if !s.pause() {
			return ErrClosed
		}
		err = s.man.rewrite(s.bitsOf)
	}
	s.calm()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifestSize = s.man.size
	return nil
}

// takeRotten returns what MANIFEST does not have of files that are evidence, and takes it for granted from now on. Store.mu is held.
func (s *Store) takeRotten() (ops []manifestOp) {
	take := func(d *dataFile) {
		if d.rotten && !d.noted {
			d.noted = true
			ops = append(ops, manifestOp{op: opDamaged, id: d.id})
		}
	}
	for _, g := range s.segs {
		take(&g.dataFile)
	}
	for _, r := range s.runs {
		take(&r.dataFile)
	}
	return ops
}

// bitsOf returns the bitmaps of a run, nothing for one that is not installed yet.
func (s *Store) bitsOf(id uint64) []manifestOp {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if r.id == id {
			return r.bits()
		}
	}
	return s.aside[id]
}

func (s *Store) newFileID() uint64 {
	id := s.man.state.nextFile
	s.man.state.nextFile++
	return id
}

func (s *Store) path(name string) string { return s.o.Dir + "/" + name }

// trouble tells the log, and a writer that waits for a segment.
func (s *Store) trouble(err error) {
	s.o.Log.Error("timer: background work failed, retrying", "err", err)
	select {
	case <-s.troubles:
	default:
	}
	s.troubles <- err
}

func (s *Store) calm() { s.pauseNow = 0 }

// pause waits, longer each time until calm. False: the store closes.
func (s *Store) pause() bool {
	s.pauseNow = min(max(2*s.pauseNow, s.o.backoff), maxBackoffFactor*s.o.backoff)
	t := time.NewTimer(s.pauseNow)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

func (s *Store) wakeJanitor() { poke(s.janitorWake) }
func (s *Store) wakeLoader()  { poke(s.loaderWake) }
func (s *Store) wakeFiring()  { poke(s.firingWake) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
