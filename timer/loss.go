package timer

import "slices"

// mended is told what was found when damaged index pages of r were built anew: what is lost is taken out of everything. Whether all
// of the lost entries were pending may not be known; then Stats.Pending may be too high, never too low, until the next Open.
func (s *Store) mended(r *run, m *mendReport) {
	s.loseLines(r, m)
	s.reviveLines(r, m)
	s.tellMended(r, m)
}

func (s *Store) tellMended(r *run, m *mendReport) {
	for _, page := range m.pages {
		s.corrupt("an index page is damaged, its entries are found by their records", r.path, "offset", r.pageOffset(page), "entries", r.pageLen(page))
	}
	s.tellLost(r.path, m.lost)
	if len(m.unsure) > 0 {
		s.o.Log.Warn("timer: some entries may fire again: damage has hidden whether they were delivered", "path", r.path, "entries", len(m.unsure))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoil(&r.dataFile)
	r.ill = true
}

// lostPlaces is how many places of a file in which entries were lost are logged one by one.
const lostPlaces = 100

// tellLost counts and reports lost entries of a file: those that cannot even be told apart together, one place after the other.
func (s *Store) tellLost(path string, lost []numbered) {
	s.mu.Lock()
	s.lost += int64(len(lost))
	s.mu.Unlock()
	places := 0
	for len(lost) > 0 {
		n := 1
		for n < len(lost) && lost[n].off == lost[0].off {
			n++
		}
		x := lost[0]
		if places++; places > lostPlaces {
			s.corrupt("more entries are lost in the same file", path, "offset", x.off, "entries", len(lost))
			return
		}
		args := []any{"offset", x.off, "number", x.ord, "entries", n}
		if !x.lost() {
			args = append(args, "lsn", x.lsn, "due", x.due)
		}
		s.corrupt("entries are lost: their records are damaged", path, args...)
		lost = lost[n:]
	}
}

// accept changes the bitmap of a run that nobody uses yet: what is lost is done, what is unsure is not. What was so already is taken
// out of m. It says whether anything changed or is lost.
func (r *run) accept(m *mendReport) bool {
	lines := len(m.lost)
	m.lost = slices.DeleteFunc(m.lost, func(x numbered) bool { return !r.setDone(x.ord) })
	m.unsure = slices.DeleteFunc(m.unsure, func(x numbered) bool { return !r.clearDone(x.ord) })
	return lines+len(m.unsure) > 0
}

// loseLines is accept for lost entries of a run in use. One that is in the wheel stays: Load finds out.
func (s *Store) loseLines(r *run, m *mendReport) {
	if len(m.lost) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[uint32]bool{}
	for _, e := range s.wheel.heldOf(r) {
		held[e.ord] = true
	}
	lost, uncounted := runCounts{}, map[int64]int64{} // by flow and hour; and how many of an hour were perhaps not counted as pending
	m.lost = slices.DeleteFunc(m.lost, func(x numbered) bool {
		hour := hourOf(x.due)
		lost[flowHour{hour, x.flow}]++
		fresh := !held[uint32(x.ord)] && r.setDone(x.ord)
		if !fresh || len(m.unsure) > 0 {
			uncounted[hour]++
		}
		return !fresh
	})
	for fh, n := range lost {
		if n -= uncounted[fh.hour]; n > 0 {
			s.wheel.countHour(r.names[fh.flow], fh.hour, -n)
		}
	}
	if r.pending == 0 {
		s.wakeJanitor()
	}
}

// reviveLines is accept for unsure entries of a run in use: a second delivery is better than none.
func (s *Store) reviveLines(r *run, m *mendReport) {
	if len(m.unsure) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, done := runCounts{}, map[int64]int64{} // by flow and hour; and how many of an hour were done
	held := map[int64]*entry{}                  // by offset
	for _, e := range s.wheel.heldOf(r) {
		held[e.off] = e
	}
	m.unsure = slices.DeleteFunc(m.unsure, func(x numbered) bool {
		fh := flowHour{hourOf(x.due), x.flow}
		all[fh]++
		fresh := r.clearDone(x.ord)
		if fresh {
			done[fh.hour]++
		}
		if e := held[x.off]; e != nil {
			e.ord = uint32(x.ord)
		} else if f := r.names[x.flow]; fresh && x.key().less(f.resume) {
			s.wheel.park((&found{x.indexEntry, r, x.ord}).entry(f))
		}
		return !fresh
	})
	for fh, n := range all {
		s.wheel.countHour(r.names[fh.flow], fh.hour, min(n, done[fh.hour]))
	}
	s.wakeFiring()
	s.wakeLoader()
}

// heldOf returns the entries of r that are in the wheel or fired.
func (w *wheel) heldOf(r *run) []*entry {
	var held []*entry
	for _, f := range w.flows {
		for _, e := range f.armed.a[f.armed.head:] {
			if e.home == &r.dataFile {
				held = append(held, e)
			}
		}
		for _, e := range f.fired {
			if e.home == &r.dataFile {
				held = append(held, e)
			}
		}
	}
	return held
}
