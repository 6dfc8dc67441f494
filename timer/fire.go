package timer

import (
	"errors"
	"fmt"
	"time"
)

// fireBatch is the most items that the sink gets in one call.
const fireBatch = 1024

// Start begins firing. The sink is called from one goroutine with entries whose due time has come by
// Options.Now, each entry once, per flow in (due, LSN) order. It must not block, and may keep the slice. Fired entries count against the
// window of their flow until they are settled; that is the back-pressure. Start must be called once.
func (s *Store) Start(sink func([]Item)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wg.Add(1)
	go s.firing(sink)
	s.wakeLoader()
}

// firing sleeps until the next entry is due, and looks at the wall clock often enough to notice when it is
// stepped.
func (s *Store) firing(sink func([]Item)) {
	defer s.wg.Done()
	timer := stoppedTimer()
	defer timer.Stop()
	clock := clockWatch{s: s}
	for {
		now := clock.now()
		items, next, armed, far := s.due(now)
		if far {
			s.wakeLoader()
		}
		if len(items) > 0 {
			sink(items)
			select {
			case <-s.stop:
				return
			default:
				continue
			}
		}
		wait := s.o.poll
		if armed {
			wait = min(wait, time.Duration(next-now)*time.Millisecond)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.firingWake:
		case <-s.stop:
			return
		}
	}
}

// due fires what is due at now. far: the loader should bring more of the future.
func (s *Store) due(now int64) (items []Item, next int64, armed, far bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = max(s.latest, now)
	items = s.wheel.fire(now, nil, fireBatch)
	next, armed = s.wheel.nextDue()
	return items, next, armed, now+s.o.Horizon.Milliseconds()/2 > s.wheel.horizon || s.wheel.ahead.wants(now)
}

// Load returns the body of an item that the sink got, in a fresh slice. It reads the disk and may be called from any
// goroutine, as often as needed until the item is settled. ErrCorrupt: the record is damaged. Its entry is lost then: it counts as
// settled, is logged, counted in Stats.Corrupt and Stats.Lost, and its file is kept. Other errors may pass: try again.
func (s *Store) Load(it Item) ([]byte, error) {
	e := it.entry
	if e == nil {
		return nil, errors.New("timer: Load of an item that did not come from the store")
	}
	body, err := s.load(e)
	if errors.Is(err, ErrCorrupt) {
		body, err = s.load(e) // it may have been sealed meanwhile, or only the way from the disk was bad
	}
	if errors.Is(err, ErrCorrupt) {
		s.lose(e)
	}
	return body, err
}

// load reads a body once.
func (s *Store) load(e *entry) ([]byte, error) {
	s.mu.Lock()
	home, off := e.home, e.off
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, ErrClosed
	case e.flow.fired[e.lsn] != e:
		s.mu.Unlock()
		return nil, ErrSettled
	case home == nil:
		s.mu.Unlock()
		return nil, ErrCorrupt
	}
	if body := s.takeBody(e); body != nil {
		s.loadsFromRuns++
		s.mu.Unlock()
		return body, nil
	}
	home.refs++
	s.mu.Unlock()
	r, err := home.readRecord(off, int(e.length))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(home)
	switch {
	case err != nil && e.flow.fired[e.lsn] != e: // settled meanwhile, so its record may have been punched
		return nil, ErrSettled
	case err != nil:
		return nil, fmt.Errorf("load lsn %d: %w", e.lsn, err)
	case home.run != nil:
		s.loadsFromRuns++
	default:
		s.loadsFromLog++
	}
	return append([]byte(nil), r.body...), nil
}

// lose settles a fired entry whose record is damaged: it cannot be delivered, and must not hold a place in its window for ever.
func (s *Store) lose(e *entry) {
	s.mu.Lock()
	home, off := e.home, e.off
	s.mu.Unlock()
	if !s.settle(e) {
		return
	}
	s.log.settle(settle{key: e.key()})
	s.mu.Lock()
	s.lost++
	if home != nil {
		s.spoil(home)
	}
	s.mu.Unlock()
	if home == nil { // found when its segment was sealed
		return
	}
	s.corrupt("an entry is lost: its record is damaged", home.path, "offset", off, "lsn", e.lsn, "due", e.due,
		"broker", e.flow.name.Broker, "topic", e.flow.name.Topic)
}

// Settle says that a fired item was delivered: it will not come back. It is written at once and durable within 50 ms
// (SyncInterval: Options.SyncEvery). Any goroutine; settling twice does nothing.
func (s *Store) Settle(it Item) { s.SettleThen(it, nil) }

// SettleThen is Settle, and calls written once, when a killed process would not forget it any more, or at once if that
// is so already or cannot be had: while the log fails, and when the store is closed. It is called from the
// writer's goroutine or before SettleThen returns, and must not block.
func (s *Store) SettleThen(it Item, written func()) {
	e := it.entry
	if e == nil || !s.settle(e) {
		settle{written: written}.isWritten()
		return
	}
	s.settling.Add(1)
	s.log.settle(settle{e.key(), written})
}

func (s *Store) settle(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := e.flow
	if f.fired[e.lsn] != e {
		return false
	}
	delete(f.fired, e.lsn)
	s.end(e, false)
	return true
}

// end marks a pending entry, which is in the wheel no more, as settled or cancelled. Store.mu is held.
func (s *Store) end(e *entry, cancelled bool) {
	e.done, e.cancelled = true, cancelled
	s.takeBody(e)
	s.wheel.count(e.flow, e.due, -1)
	if e.home != nil && e.home.run != nil {
		r := e.home.run
		r.end(int(e.ord), cancelled)
		if r.into != nil {
			r.into.carryOne(e.ord)
		}
		if r.pending == 0 {
			s.wakeJanitor()
		}
	}
	if s.wheel.thirsty(e.flow) {
		s.wakeLoader()
	}
}
