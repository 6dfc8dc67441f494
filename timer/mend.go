package timer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// mending is what stands in for the damaged pages of a run's index: where the records of their entries lie. A page is
// built from them each time it is read, so that RAM does not grow with the damage but for about 50 bytes a page.
type mending struct {
	mu       sync.Mutex // held while the disk is read
	pages    map[int][]recSpan
	lost     map[int]indexEntry // lines of entries that have no sound record, by number
	unsure   map[int]indexEntry // lines of entries that may be numbered wrongly
	flows    map[Flow]uint32
	tolerant bool                    // what cannot be read counts as damaged
	nameless bool                    // the flow table is lost: flow numbers mean nothing
	report   func(*run, *mendReport) // is told what was found, once; nil: nobody
}

// recSpan is a row of adjacent records that belong to one page.
type recSpan struct {
	off    int64
	ord, n int // number of the first entry, and how many
}

// mendReport is what a survey found that none before it did.
type mendReport struct {
	pages  []int
	lost   []numbered // entries whose index page and record are damaged
	unsure []numbered // entries that may be numbered wrongly, so that it is not known whether they are done
}

// numbered is an index line with the number of its entry.
type numbered struct {
	ord int
	indexEntry
}

// lost says whether a line stands for an entry that is gone: its index page and its record were damaged. Its due time and flow are guesses.
func (x indexEntry) lost() bool { return x.length == 0 }

// readPage reads index page number page into b. A damaged page is built anew from the records between its neighbours; some
// lines in it may be lost then.
func (r *run) readPage(page int, b []byte) error {
	damage := r.readRawPage(page, b)
	if damage == nil {
		return nil
	}
	report, err := r.mendPage(page, b)
	if report != nil && r.mend.report != nil {
		r.mend.report(r, report)
	}
	if err != nil {
		return fmt.Errorf("%w; its records do not help: %w", damage, err)
	}
	return nil
}

func (r *run) mendPage(page int, b []byte) (*mendReport, error) {
	r.mend.mu.Lock()
	defer r.mend.mu.Unlock()
	if r.build(page, b, &r.mend) == nil {
		return nil, nil
	}
	report, err := r.survey()
	if err != nil {
		return nil, err
	}
	if _, bad := r.mend.pages[page]; !bad { // it can be read after all
		return report, r.readRawPage(page, b)
	}
	return report, r.build(page, b, &r.mend)
}

// build makes a damaged page from the records of its entries.
func (r *run) build(page int, b []byte, m *mending) error {
	spans, ok := m.pages[page]
	if !ok {
		return fmt.Errorf("%s: %w", r.path, damagedAt("an index page", r.pageOffset(page)))
	}
	clear(b[:pageBytes])
	first, n := page*pageEntries, r.pageLen(page)
	for i := range n {
		if x, gone := m.lost[first+i]; gone {
			x.put(b[pageHead+i*indexBytes:])
		}
	}
	for _, span := range spans {
		scan := r.scanBody(span.off, r.bodyEnd())
		for ord := span.ord; ord < span.ord+span.n; ord++ {
			p, _, err := scan.next()
			if err == nil && p.kind != placeRecord {
				err = fmt.Errorf("%s: %w", r.path, damagedAt("a record", p.off))
			}
			if err != nil {
				return err
			}
			x, _ := m.line(p)
			x.put(b[pageHead+(ord-first)*indexBytes:])
		}
	}
	signPage(b, page, n, r.seed)
	return nil
}

// bodyEnd is where the records of a run end at the latest.
func (r *run) bodyEnd() int64 { return min(r.indexOff, r.size) }

// line makes the index line of a sound record. False: its flow is not in the flow table.
func (m *mending) line(p place) (indexEntry, bool) {
	rec := putFields(p.rec)
	flow, ok := m.flows[Flow{string(rec.broker), string(rec.topic)}]
	return indexEntry{due: p.due, lsn: p.lsn, flow: flow, length: uint32(p.length), off: p.off, lane: p.lane}, ok || m.nameless
}

// survey looks for damaged pages in the whole index and for the records of their entries.
func (r *run) survey() (*mendReport, error) {
	next := &mending{nameless: r.mend.nameless, pages: map[int][]recSpan{}, lost: map[int]indexEntry{}, unsure: map[int]indexEntry{}, flows: map[Flow]uint32{}}
	for i, f := range r.flows {
		next.flows[f] = uint32(i)
	}
	bad, off := -1, int64(segHeadBytes) // first of the damaged pages in a row; where the records of the entries so far end
	err := r.walkIndex(func(page int, b []byte) error {
		if b == nil {
			if bad < 0 {
				bad = page
			}
			return nil
		}
		if bad >= 0 {
			if err := r.surveyRow(next, bad, page, off, pageEntry(b, 0).off); err != nil {
				return err
			}
			bad = -1
		}
		last := pageEntry(b, r.pageLen(page)-1)
		off = last.off + int64(padded(int(last.length)))
		return nil
	})
	if err == nil && bad >= 0 {
		err = r.surveyRow(next, bad, r.pages, off, r.bodyEnd())
	}
	if err == nil {
		err = r.guessLost(next)
	}
	if err != nil {
		return nil, err
	}
	report := &mendReport{lost: news(next.lost, r.mend.lost), unsure: news(next.unsure, r.mend.unsure)}
	for page := range next.pages {
		if _, known := r.mend.pages[page]; !known {
			report.pages = append(report.pages, page)
		}
	}
	slices.Sort(report.pages)
	r.mend.pages, r.mend.lost, r.mend.unsure, r.mend.flows = next.pages, next.lost, next.unsure, next.flows
	return report, nil
}

// news returns the lines that are not in old, by number.
func news(lines, old map[int]indexEntry) []numbered {
	var out []numbered
	for ord, x := range lines {
		if _, known := old[ord]; !known {
			out = append(out, numbered{ord, x})
		}
	}
	slices.SortFunc(out, func(a, b numbered) int { return cmp.Compare(a.ord, b.ord) })
	return out
}

// walkIndex calls visit with each page of the index in order, nil for a damaged one.
func (r *run) walkIndex(visit func(page int, b []byte) error) error {
	buf := make([]byte, walkPages*pageBytes)
	for page := 0; page < r.pages; page += walkPages {
		n := min(walkPages, r.pages-page)
		got, err := r.f.ReadAt(buf[:n*pageBytes], r.indexOff+int64(page)*pageBytes)
		for i := range n {
			b := buf[i*pageBytes:][:pageBytes]
			sound := (err == nil || got >= (i+1)*pageBytes) && r.pageOK(page+i, b)
			if !sound && r.readRawPage(page+i, b) != nil {
				b = nil
			}
			if err := visit(page+i, b); err != nil {
				return err
			}
		}
	}
	return nil
}

const walkPages = 64

// recGroup is a row of records without a gap.
type recGroup struct {
	off, end int64
	n        int
	ord      int // number of the first
	unsure   bool
}

// surveyRow finds the records of the entries on the damaged pages [from, to): they lie in the bytes [off, end).
func (r *run) surveyRow(m *mending, from, to int, off, end int64) error {
	first, last := from*pageEntries, min(to*pageEntries, r.entries)
	groups, err := r.findGroups(off, end)
	if err != nil {
		return err
	}
	if err := number(groups, first, last, r.cutOff && to == r.pages); err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	for page := from; page < to; page++ {
		m.pages[page] = nil
	}
	at := first
	for _, g := range groups {
		for ; at < g.ord; at++ {
			m.lost[at] = indexEntry{off: g.off}
		}
		if err := r.addSpans(m, g); err != nil {
			return err
		}
		at = g.ord + g.n
	}
	for ; at < last; at++ {
		m.lost[at] = indexEntry{off: end}
	}
	return nil
}

// findGroups returns the groups in [off, end). Between two of them is a gap; the first and the last may be empty.
func (r *run) findGroups(off, end int64) ([]recGroup, error) {
	groups := []recGroup{{off: off, end: off}}
	for scan := r.scanBody(off, end); ; {
		p, more, err := scan.next()
		if err != nil {
			return nil, err
		}
		g := &groups[len(groups)-1]
		switch {
		case !more:
			return groups, nil
		case p.kind != placeGap:
			g.end = p.end
			g.n++
		case p.end == r.indexOff && roundUp(p.off) == p.end && scan.zeros(p.off, p.end): // the padding behind the last record
		default:
			groups = append(groups, recGroup{off: p.end, end: p.end})
		}
	}
}

// number numbers the records of groups with the entries [first, last). A group is known to be right if it can be counted from
// the front or from the back; cut: not from the back, the file is cut off.
func number(groups []recGroup, first, last int, cut bool) error {
	n := 0
	for _, g := range groups {
		n += g.n
	}
	missing := last - first - n
	if missing < 0 {
		return fmt.Errorf("%w: %d records belong to %d entries", ErrCorrupt, n, last-first)
	}
	at := first
	for i := range groups {
		g := &groups[i]
		final := i > 0 && i == len(groups)-1
		if final && !cut {
			at = last - g.n
		}
		g.ord = at
		g.unsure = missing > 0 && i > 0 && (!final || cut)
		at += g.n
	}
	return nil
}

// addSpans adds the records of a group page by page; those that are damaged are lost.
func (r *run) addSpans(m *mending, g recGroup) error {
	scan := r.scanBody(g.off, g.end)
	adjacent := false
	for ord := g.ord; ord < g.ord+g.n; ord++ {
		p, _, err := scan.next()
		if err != nil {
			return err
		}
		x, sound := indexEntry{}, p.kind == placeRecord
		if sound {
			x, sound = m.line(p)
		}
		if !sound {
			m.lost[ord] = indexEntry{due: p.due, lsn: p.lsn, off: p.off, lane: p.lane}
			adjacent = false
			continue
		}
		page := ord / pageEntries
		if !adjacent || ord%pageEntries == 0 {
			m.pages[page] = append(m.pages[page], recSpan{off: p.off, ord: ord})
		}
		spans := m.pages[page]
		spans[len(spans)-1].n++
		adjacent = true
		if g.unsure {
			m.unsure[ord] = x
		}
	}
	return nil
}

// guessLost gives lost entries a flow and a due time: those that the flow table counts and no line has. What was guessed before
// stays.
func (r *run) guessLost(m *mending) error {
	if len(m.lost) == 0 {
		return nil
	}
	for ord, x := range r.mend.lost {
		if _, lost := m.lost[ord]; lost {
			m.lost[ord] = x
		}
	}
	_, table, err := r.flowTable()
	if err != nil && !errors.Is(err, ErrCorrupt) { // a table that is damaged too tells nothing
		return err
	}
	missing := map[flowHour]int{}
	for i, f := range table {
		for _, h := range f.hours {
			missing[flowHour{h.hour, uint32(i)}] = int(h.count)
		}
	}
	before, err := r.countLines(m, missing)
	if err != nil {
		return err
	}
	var guesses []flowHour
	for fh, n := range missing {
		for range n {
			guesses = append(guesses, fh)
		}
	}
	slices.SortFunc(guesses, func(a, b flowHour) int {
		return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.flow, b.flow))
	})
	for i, ord := range slices.Sorted(maps.Keys(before)) {
		x, guess := m.lost[ord], flowHour{hour: hourOf(before[ord].due)}
		if i < len(guesses) {
			guess = guesses[i]
		}
		x.flow = guess.flow
		if x.lsn == 0 { // nothing is known of it: its key is one that sorts where it was
			k := maxKey(before[ord].next(), key{due: guess.hour * hourMs})
			x.due, x.lsn = k.due, k.lsn
		}
		m.lost[ord] = x
	}
	return nil
}

// countLines takes every line but those of newly lost entries out of missing. It returns what the last line before each of
// these is.
func (r *run) countLines(m *mending, missing map[flowHour]int) (before map[int]key, err error) {
	before = map[int]key{}
	last, built := key{}, make([]byte, pageBytes)
	return before, r.walkIndex(func(page int, b []byte) error {
		if b == nil {
			b = built
			if err := r.build(page, b, m); err != nil {
				return err
			}
		}
		for i := range r.pageLen(page) {
			ord, x := page*pageEntries+i, pageEntry(b, i)
			if _, old := r.mend.lost[ord]; x.lost() && !old {
				before[ord] = last
				continue
			}
			missing[flowHour{hourOf(x.due), x.flow}]--
			last = x.key()
		}
		return nil
	})
}
