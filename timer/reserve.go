package timer

import (
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// reserveRetry is the pause between two tries to make RESERVE.
const reserveRetry = 10 * time.Second

// reserveBytes is the size of RESERVE: one seal of a full segment.
func (s *Store) reserveBytes() int64 { return sealNeed(s.o.SegmentBytes, 0) }

// findReserve adopts RESERVE if it has the right size. Part of Open.
func (s *Store) findReserve() {
	path := s.path(reserveName)
	f, err := s.o.FS.Open(path)
	if err != nil {
		return
	}
	size, err := f.Size()
	f.Close()
	if err == nil && size == s.reserveBytes() {
		s.reserved.Store(true)
		return
	}
	if err := s.o.FS.Remove(path); err != nil {
		s.o.Log.Warn("timer: cannot remove a reserve of another size", "path", path, "err", err)
	}
}

// wantsReserve: RESERVE is missing and there is room for it. The janitor's.
func (s *Store) wantsReserve() bool {
	if s.reserved.Load() || s.o.Monotonic() < s.nextReserve {
		return false
	}
	free, _, err := s.o.FS.Free(s.o.Dir)
	return err == nil && free >= s.reserveBytes()+min(s.o.SegmentBytes, maxSlack)
}

// makeReserve takes the space for RESERVE. It needs no sync: Open measures it. The janitor's.
func (s *Store) makeReserve() {
	path := s.path(reserveName)
	f, err := s.o.FS.Create(path)
	if err == nil {
		err = f.Allocate(s.reserveBytes())
		f.Close()
		if err != nil {
			s.o.FS.Remove(path)
		}
	}
	if err != nil {
		s.nextReserve = s.o.Monotonic() + reserveRetry
		s.o.Log.Warn("timer: cannot set space aside for sealing, trying again later", "path", path, "bytes", s.reserveBytes(), "err", err)
		return
	}
	s.reserved.Store(true)
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
	if s.emptyTrash() > 0 {
		return true
	}
	if n := len(s.free); n > 0 {
		path := s.free[n-1]
		if err := s.o.FS.Remove(path); err == nil || vfs.IsNotExist(err) {
			s.setFree(s.free[:n-1])
			return true
		}
	}
	return s.giveUpReserve()
}

func (s *Store) giveUpReserve() bool {
	if !s.reserved.Load() {
		return false
	}
	path := s.path(reserveName)
	if err := s.o.FS.Remove(path); err != nil && !vfs.IsNotExist(err) {
		s.o.Log.Warn("timer: cannot give up the reserve", "path", path, "err", err)
		return false
	}
	s.reserved.Store(false)
	s.o.Log.Warn("timer: the data disk is full, the reserve is used to go on", "path", path, "bytes", s.reserveBytes())
	return true
}
