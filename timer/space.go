package timer

import (
	"fmt"
	"syscall"
	"time"
)

const (
	farSegments = 4       // the far mark lies this many segments above the other
	maxSlack    = 1 << 20 // bytes for MANIFEST and flow tables
)

// refusal is why Put does not take everything; its fields never change.
type refusal struct {
	all bool // else only what is due further ahead than Options.FarAfter
	err error
}

// shortOfSpace returns the error for an entry that the free space is not meant for, nil for one that may come in.
func (s *Store) shortOfSpace(due int64) error {
	r := s.refusal.Load()
	if r == nil || !r.all && due-s.o.Now() <= s.o.FarAfter.Milliseconds() {
		return nil
	}
	return r.err
}

// sealNeed is how much room the run of a segment may take, at least 1.25 times the segment: entries need a line in the index and
// two in the key table each.
func sealNeed(segment int64, entries int) int64 {
	const linesOfEntry = indexBytes + 2*keyBytes + 8
	return segment + max(segment/4, int64(entries)*linesOfEntry) + min(segment, maxSlack)
}

// demand is what the store may still need of the disk without taking another message in.
type demand struct {
	seals   int64 // runs of all segments that are not sealed, as if the open one were full
	segment int64 // the next segment, 0 if it is there
	reserve int64 // what RESERVE lacks
	spent   int64 // what blank segments would give back
}

func (s *Store) demand() demand {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := demand{spent: int64(len(s.free)) * s.o.SegmentBytes}
	for _, g := range s.segs {
		d.seals += sealNeed(g.size, len(g.entries))
	}
	if !s.hasOpenSegment() {
		d.seals += sealNeed(s.o.SegmentBytes, 0)
	}
	if len(s.spares) == 0 {
		d.segment = s.o.SegmentBytes
	}
	d.reserve = s.reserveBytes() - s.reserved.Load()
	return d
}

// hasOpenSegment: Store.mu is held.
func (s *Store) hasOpenSegment() bool { return len(s.segs) > 0 && !s.segs[len(s.segs)-1].full }

// marks are the bytes below which Put refuses far messages, and all.
func (s *Store) marks(d demand) (far, all int64) {
	need := d.seals + d.segment + d.reserve
	all = max(need, s.o.MinFree)
	return max(need+farSegments*s.o.SegmentBytes, s.o.FarFree, all), all
}

// watchSpace is the goroutine that looks at the free space and decides what Put takes. It is not the janitor, because that
// is held up just when the disk is full.
func (s *Store) watchSpace() {
	defer s.wg.Done()
	tick := time.NewTicker(s.o.spacePoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.spaceWake:
		case <-s.stop:
			s.refusal.Store(nil) // from here on it is ErrClosed
			return
		}
		s.lookAtSpace()
	}
}

// lookAtSpace compares the free space with the marks. After a refusal it wants a quarter of a segment more than they say, so
// that Put does not change its mind at every look.
func (s *Store) lookAtSpace() {
	free, _, err := s.o.FS.Free(s.o.Dir)
	if err != nil {
		s.blind(err)
		return
	}
	s.spaceUnknown = false
	d := s.demand()
	if s.filling.Load() { // what is being made is missing twice: it is looked at again when that is done
		return
	}
	free += d.spent
	far, all := s.marks(d)
	old := s.refusal.Load()
	farMore, allMore := int64(0), int64(0)
	if old != nil {
		farMore = s.o.SegmentBytes / 4
	}
	if old != nil && old.all {
		allMore = farMore
	}
	switch {
	case free < all+allMore:
		s.refuse(old, &refusal{true, fullError("every message is refused", "min", free, all+allMore)})
	case free < far+farMore:
		what := fmt.Sprintf("a message due more than %v ahead is refused", s.o.FarAfter)
		s.refuse(old, &refusal{false, fullError(what, "far", free, far+farMore)})
	case old != nil:
		s.refusal.Store(nil)
		s.o.Log.Info("timer: the data disk has room again, every message is taken", "free", free, "far_mark", far, "min_mark", all)
	}
	s.freeBytes.Store(free)
	if d.segment+d.reserve > 0 {
		s.wakeJanitor()
	}
}

func fullError(what, mark string, free, need int64) error {
	return fmt.Errorf("%w: %s: %d bytes are free, below the %s mark of %d", ErrFull, what, free, mark, need)
}

// refuse makes Put refuse, and tells the log when that changes anything.
func (s *Store) refuse(old, now *refusal) {
	s.refusal.Store(now)
	if old == nil || old.all != now.all {
		s.o.Log.Warn("timer: the data disk is short of space", "err", now.err)
	}
}

// blind lets Put take everything: the disk's errors decide.
func (s *Store) blind(err error) {
	s.refusal.Store(nil)
	if !s.spaceUnknown {
		s.o.Log.Warn("timer: cannot tell how much space the data disk has, going by its errors alone", "err", err)
	}
	s.spaceUnknown = true
}

// errNoRoom: there is space, but it is kept for sealing.
var errNoRoom = fmt.Errorf("%w but what is kept for sealing", syscall.ENOSPC)

// roomFor returns nil if n more bytes, for something that can wait, leave enough for all seals ahead, else an error that wraps errNoRoom.
// The janitor's.
func (s *Store) roomFor(n int64) error {
	free, _, err := s.o.FS.Free(s.o.Dir)
	if err != nil {
		return nil // the disk will say
	}
	d := s.demand()
	free += d.spent + s.reserved.Load()
	if free-n < d.seals {
		return fmt.Errorf("%w: %d bytes of %d, %d more are needed", errNoRoom, d.seals, free, n)
	}
	return nil
}
