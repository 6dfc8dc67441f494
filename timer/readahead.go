package timer

import "slices"

const (
	aheadMs    = 5000     // bodies are read at most this long before they are due
	aheadBatch = 4096     // entries per round
	aheadGap   = 16 << 10 // bytes between two records that are read along
)

// ahead is what is read before it is due: the bodies of run entries in the wheel, in large reads, within a budget of bytes. A
// body leaves when it is loaded, or when its entry leaves the wheel. Guarded by Store.mu.
type ahead struct {
	queue   heap[*entry] // run entries in the wheel whose bodies were not read yet
	held    int64        // bytes
	starved bool         // the budget was used up: room wakes the loader
}

func newAhead() ahead {
	return ahead{queue: heap[*entry]{less: func(a, b *entry) bool { return a.key().less(b.key()) }}}
}

// wants says whether the loader should read bodies: the first that was not read is due soon.
func (a *ahead) wants(now int64) bool {
	return !a.starved && a.queue.len() > 0 && a.queue.min().due < now+aheadMs/2
}

// drop gives up the body of an entry and returns it; nil if it was not read ahead.
func (a *ahead) drop(e *entry) []byte {
	b := e.body
	e.body = nil
	a.held -= int64(len(b))
	return b
}

// takeBody is drop, and wakes the loader when there is room again.
func (s *Store) takeBody(e *entry) []byte {
	a := &s.wheel.ahead
	b := a.drop(e)
	if a.starved && a.held <= s.o.ReadAheadBytes/2 {
		a.starved = false
		s.wakeLoader()
	}
	return b
}

// aheadRecord is a record to be read.
type aheadRecord struct {
	recordPlace
	e    *entry
	body []byte
}

// readAhead reads the bodies of what is due soon. What cannot be read is left to Load.
func (s *Store) readAhead() {
	for {
		batch := s.nextAhead()
		if len(batch) == 0 {
			return
		}
		slices.SortFunc(batch, func(a, b aheadRecord) int { return a.compare(b.recordPlace) })
		var buf []byte
		space := func(size int) []byte {
			buf = slices.Grow(buf[:0], size)[:size]
			return buf
		}
		readRecords(len(batch), func(i int) recordPlace { return batch[i].recordPlace }, aheadGap, space, func(i int, r record) {
			if at := &batch[i]; r.lsn == at.e.lsn {
				at.body = append(make([]byte, 0, len(r.body)), r.body...)
			}
		})
		s.keepAhead(batch)
	}
}

// nextAhead takes records from the queue and holds their files.
func (s *Store) nextAhead() []aheadRecord {
	limit := s.o.Now() + aheadMs
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.wheel.ahead
	var batch []aheadRecord
	room := s.o.ReadAheadBytes - a.held
	for a.queue.len() > 0 && a.queue.min().due < limit && len(batch) < aheadBatch {
		e := a.queue.min()
		if !s.wheel.armed(e) {
			a.queue.pop()
			continue
		}
		if int64(e.length) > s.o.ReadAheadBytes {
			a.queue.pop()
			continue
		}
		if room -= int64(e.length); room < 0 {
			a.starved = true
			break
		}
		a.queue.pop()
		e.home.refs++
		batch = append(batch, aheadRecord{e: e, recordPlace: recordPlace{e.home, e.off, e.length}})
	}
	return batch
}

// keepAhead attaches what was read to entries that are still in the wheel.
func (s *Store) keepAhead(batch []aheadRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range batch {
		s.release(r.home)
		if r.body != nil && s.wheel.armed(r.e) {
			r.e.body = r.body
			s.wheel.ahead.held += int64(len(r.body))
		}
	}
}
