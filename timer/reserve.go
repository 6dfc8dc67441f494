package timer

import (
	"errors"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// reserveRetry is the pause between two tries to make RESERVE.
const reserveRetry = 10 * time.Second

// reserveBytes is the size of RESERVE when it is whole: one seal of a full segment.
func (s *Store) reserveBytes() int64 { return sealNeed(s.o.SegmentBytes, 0) }

// slack is the part of RESERVE that is meant for MANIFEST, and what is left free beside it.
func (s *Store) slack() int64 { return min(s.o.SegmentBytes, maxSlack) }

// findReserve adopts RESERVE, as much of it as is there. Part of Open.
func (s *Store) findReserve() {
	path := s.path(reserveName)
	f, err := s.o.FS.Open(path)
	if err != nil {
		return
	}
	size, err := f.Size()
	occupied, err2 := f.Occupied() // less in a copy, where a hole takes the place of zeros
	f.Close()
	if err = errors.Join(err, err2); err == nil && size <= s.reserveBytes() {
		s.reserved.Store(min(size, occupied))
		return
	}
	if err = errors.Join(err, s.o.FS.Remove(path)); err != nil {
		s.o.Log.Warn("timer: the reserve cannot be measured, or a larger one removed", "path", path, "err", err)
	}
}

// wantsReserve: RESERVE is not whole and there is room to make it so. The janitor's.
func (s *Store) wantsReserve() bool {
	missing := s.reserveBytes() - s.reserved.Load()
	if missing == 0 || s.o.Monotonic() < s.nextReserve {
		return false
	}
	free, _, err := s.o.FS.Free(s.o.Dir)
	return err == nil && free >= missing+s.slack()
}

// makeReserve takes the space for RESERVE. It needs no sync: Open measures it. The janitor's.
func (s *Store) makeReserve() {
	s.filling.Store(true)
	defer s.filling.Store(false)
	path := s.path(reserveName)
	f, err := s.o.FS.Open(path)
	if vfs.IsNotExist(err) {
		f, err = s.o.FS.Create(path)
	}
	if err == nil {
		if err = f.Allocate(s.reserveBytes()); err != nil {
			err = errors.Join(err, f.Truncate(s.reserved.Load()))
		}
		f.Close()
	}
	if err != nil {
		s.nextReserve = s.o.Monotonic() + reserveRetry
		s.o.Log.Warn("timer: cannot set space aside for sealing, trying again later", "path", path, "bytes", s.reserveBytes(), "err", err)
		return
	}
	s.reserved.Store(s.reserveBytes())
}

// spend does what cannot wait for space: as long as the disk is full it gives something up and tries again. The janitor's.
func (s *Store) spend(job func() error) error {
	for {
		err := job()
		if !vfs.IsFull(err) || !s.relinquish() {
			return err
		}
	}
}

// relinquish gives space back, the most dispensable first. False: nothing is left to give. The janitor's.
func (s *Store) relinquish() bool {
	return s.emptyTrash() > 0 || s.giveUpBlank() || s.giveUpReserve()
}

func (s *Store) giveUpBlank() bool {
	n := len(s.free)
	if n == 0 {
		return false
	}
	if err := s.o.FS.Remove(s.free[n-1]); err != nil && !vfs.IsNotExist(err) {
		return false
	}
	s.setFree(s.free[:n-1])
	return true
}

func (s *Store) giveUpReserve() bool {
	have := s.reserved.Load()
	if have == 0 {
		return false
	}
	path := s.path(reserveName)
	if err := s.o.FS.Remove(path); err != nil && !vfs.IsNotExist(err) {
		s.o.Log.Warn("timer: cannot give up the reserve", "path", path, "err", err)
		return false
	}
	s.reserved.Store(0)
	s.o.Log.Warn("timer: the data disk is full, the reserve is used to go on", "path", path, "bytes", have)
	return true
}

// shrinkReserve gives up the part of RESERVE that is meant for MANIFEST.
func (s *Store) shrinkReserve() bool {
	have, rest := s.reserved.Load(), s.reserveBytes()-s.slack()
	if have <= rest {
		return false
	}
	f, err := s.o.FS.Open(s.path(reserveName))
	if err == nil {
		err = f.Truncate(rest)
		f.Close()
	}
	if err != nil {
		return false // it can still be given up
	}
	s.reserved.Store(rest)
	s.o.Log.Warn("timer: the data disk is full, a part of the reserve is used for MANIFEST", "bytes", have-rest)
	return true
}
