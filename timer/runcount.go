package timer

import "slices"

// runCounts are pending entries of a run.
type runCounts map[flowHour]int64

// flowHour is what entries are counted by.
type flowHour struct {
	hour int64
	flow uint32 // number in the flow table
}

// countRun adds what is pending in a run to the counts of its flows. found collects what is reported of damaged index pages.
func (s *Store) countRun(r *run, found *[]*mendReport) {
	n := s.countPending(r)
	again := false
	for _, m := range *found {
		again = r.accept(m) || again
	}
	if again {
		n = s.countLines(r)
	}
	for fh, count := range n {
		s.wheel.countHour(r.names[fh.flow], fh.hour, count)
	}
	for _, m := range *found {
		s.tellMended(r, m)
	}
}

// countPending counts what is pending in a run. An hour that is wholly pending or wholly done needs only the flow table; the pages of the
// others are read.
func (s *Store) countPending(r *run) runCounts {
	_, table, err := r.flowTable()
	if err != nil { // it was read a moment ago
		return s.countLines(r)
	}
	n, total := runCounts{}, map[int64]int{}
	for i, f := range table {
		for _, h := range f.hours {
			total[h.hour] += int(h.count)
			n[flowHour{h.hour, uint32(i)}] = int64(h.count)
		}
	}
	hours := make([]int64, 0, len(total))
	for h := range total {
		hours = append(hours, h)
	}
	slices.Sort(hours)
	from := 0
	for _, h := range hours {
		to := min(from+total[h], r.entries)
		switch r.doneIn(from, to) {
		case 0:
		case to - from:
			for i := range r.flows {
				delete(n, flowHour{h, uint32(i)})
			}
		default:
			s.eachLine(r, from, to, func(ord int, x indexEntry) {
				if r.isDone(ord) {
					n[flowHour{h, x.flow}]--
				}
			})
		}
		from = to
	}
	return n
}

// countLines counts what is pending line by line.
func (s *Store) countLines(r *run) runCounts {
	n := runCounts{}
	s.eachLine(r, 0, r.entries, func(ord int, x indexEntry) {
		if !x.lost() && !r.isDone(ord) {
			n[flowHour{hourOf(x.due), x.flow}]++
		}
	})
	return n
}

// eachLine calls do with the index lines of the entries numbered [from, to).
func (s *Store) eachLine(r *run, from, to int, do func(ord int, x indexEntry)) {
	b := make([]byte, pageBytes)
	for page := from / pageEntries; page*pageEntries < to; page++ {
		if err := r.readPage(page, b); err != nil {
			s.corrupt("entries cannot be counted: neither an index page nor its records can be read", r.path, "offset", r.pageOffset(page), "err", err)
			continue
		}
		for ord := max(from, page*pageEntries); ord < min(to, (page+1)*pageEntries); ord++ {
			if x := pageEntry(b, ord%pageEntries); int(x.flow) < len(r.flows) {
				do(ord, x)
			}
		}
	}
}
