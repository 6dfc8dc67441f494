package timer

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	segChunk  = 1 << 15 // entries of unsealed segments that one look for entries keeps at most
	hoursStep = 4       // batches between two looks at which hours are worth reading
)

// Filter selects pending entries. The zero Filter selects all.
type Filter struct {
	Broker string // only of this broker; "": of any
	Topic  string // only of this topic; "": of any
	From   int64  // due at this Unix ms or later; 0: no bound
	To     int64  // due before this Unix ms; 0: no bound
}

func (q *Filter) matches(name Flow) bool {
	return (q.Topic == "" || q.Topic == name.Topic) && (q.Broker == "" || q.Broker == name.Broker)
}

// all says whether every flow is selected.
func (q *Filter) all() bool { return q.Topic == "" && q.Broker == "" }

// span returns the keys that are selected: from the first up to, but not including, the second.
func (q *Filter) span() (from, to key) {
	from, to = key{due: math.MinInt64}, lastKey
	if q.From != 0 {
		from.due = q.From
	}
	if q.To != 0 {
		to = key{due: q.To}
	}
	return from, to
}

// view is the set of files that together held every pending entry once, at one moment. It holds a reference to each, so
// that they can be read without Store.mu: a file that is retired meanwhile stays until close.
type view struct {
	s    *Store
	segs []segView
	runs []*run
}

// segView is an unsealed segment. Entries are only ever appended, and what orders them never changes, so the
// slice may be read without Store.mu.
type segView struct {
	seg     *segment
	entries []*entry
	keys    *segKeys
}

// openView takes the runs that hold pending entries of the keys from..to. What it returns ends with close.
func (s *Store) openView(from, to key) (*view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	v := &view{s: s}
	for _, g := range s.segs {
		if len(g.entries) > 0 {
			g.refs++
			v.segs = append(v.segs, segView{g, g.entries, g.keys})
		}
	}
	for _, r := range s.runs {
		if r != s.arriving && r.pending > 0 && (key{due: r.minDue}).less(to) && r.maxDue >= from.due {
			r.refs++
			v.runs = append(v.runs, r)
		}
	}
	return v, nil
}

func (v *view) close() {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	for _, g := range v.segs {
		v.s.release(&g.seg.dataFile)
	}
	for _, r := range v.runs {
		v.s.release(&r.dataFile)
	}
}

// settledEntry says whether an entry that was found in an unsealed segment is settled or lost. Its segment may have been sealed since. Store.mu is held.
func settledEntry(e *entry) bool {
	return e.done || e.home != nil && e.home.run != nil && e.home.run.isDone(int(e.ord))
}

// met is an entry that a walk met; it may be settled.
type met struct {
	key
	flow   *flow
	length int32
	lane   uint16
	entry  *entry // of an unsealed segment, else nil
	run    *run   // of a run, else nil
	ord    int
	off    int64
}

// settled says whether the entry is settled. Store.mu is held.
func (c *met) settled() bool {
	if c.run != nil {
		return c.run.isDone(c.ord)
	}
	return settledEntry(c.entry)
}

// walk goes through the entries of a view in key order. It is used by one goroutine, without Store.mu.
type walk struct {
	v       *view
	q       Filter
	to      key
	highest LSN // entries with a higher number are left out
	at      key // everything before it was met
	segs    []*entry
	segMore bool // segs is not all there is
	cursors heap[*cursor]
	lines   int // index lines read
}

// newWalk begins at key from. size is how many entries are wanted about.
func (v *view) newWalk(q Filter, from, to key, highest LSN, size int) (*walk, error) {
	w := &walk{v: v, q: q, to: to, highest: highest, at: from}
	w.cursors.less = func(a, b *cursor) bool { return a.x.key().less(b.x.key()) }
	for _, r := range v.runs {
		if !q.all() && !slices.ContainsFunc(r.names, func(f *flow) bool { return q.matches(f.name) }) {
			continue
		}
		c := &cursor{run: r, s: v.s}
		if err := c.seek(from); err != nil {
			return nil, err
		}
		w.push(c)
	}
	w.pickSegs(size)
	return w, nil
}

func (w *walk) push(c *cursor) {
	if c.more && c.x.key().less(w.to) {
		w.cursors.push(c)
	}
}

// skip moves past entries of runs that are settled, and past the hours in which nothing of the filter is pending. hours has the
// others, ascending; nil: not known.
func (w *walk) skip(hours []int64) error {
	old := w.cursors.a
	next := make([]int, len(old))
	w.v.s.mu.Lock()
	for i, c := range old {
		next[i] = nextBit(c.run.done, c.run.entries, c.ord, false)
	}
	w.v.s.mu.Unlock()
	w.cursors.a = nil
	for i, c := range old {
		if next[i] != c.ord {
			if err := c.jump(next[i]); err != nil {
				return err
			}
		}
		w.push(c)
	}
	if hours == nil || w.cursors.len() == 0 {
		return nil
	}
	here := hourOf(w.cursors.min().x.due)
	if at, ok := slices.BinarySearch(hours, here); !ok {
		if at == len(hours) {
			w.cursors.a = nil
			return nil
		}
		return w.seek(key{due: hours[at] * hourMs})
	}
	return nil
}

// seek moves the runs to key k.
func (w *walk) seek(k key) error {
	old := w.cursors.a
	w.cursors.a = nil
	for _, c := range old {
		if c.x.key().less(k) {
			if err := c.seek(k); err != nil {
				return err
			}
		}
		w.push(c)
	}
	return nil
}

// pickSegs collects the first entries of unsealed segments at or past w.at, at most size of them and in key order.
func (w *walk) pickSegs(size int) {
	size = min(max(size, w.v.s.o.scanBatch), segChunk)
	worst := heap[*entry]{a: w.segs[:0], less: func(a, b *entry) bool { return b.key().less(a.key()) }}
	for _, g := range w.v.segs {
		for _, e := range g.entries {
			k := e.key()
			switch {
			case k.less(w.at) || !k.less(w.to) || e.lsn > w.highest || !w.q.matches(e.flow.name):
			case worst.len() < size:
				worst.push(e)
			case k.less(worst.min().key()):
				worst.a[0] = e
				worst.fix(0)
			}
		}
	}
	w.segs, w.segMore = worst.a, worst.len() == size // perhaps
	slices.SortFunc(w.segs, func(a, b *entry) int { return a.key().compare(b.key()) })
}

// next appends up to n entries, fewer at the end of the walk or when more than lines index lines were read. Everything before w.at was
// met then.
func (w *walk) next(to []met, n, lines int) ([]met, error) {
	for n > 0 && w.lines < lines {
		if len(w.segs) == 0 && w.segMore {
			w.pickSegs(0)
		}
		fromRun := w.cursors.len() > 0
		if len(w.segs) > 0 && (!fromRun || w.segs[0].key().less(w.cursors.min().x.key())) {
			e := w.segs[0]
			w.segs = w.segs[1:]
			to = append(to, e.met())
			w.at = e.key().next()
			n--
			continue
		}
		if !fromRun {
			w.at = w.to
			return to, nil
		}
		c := w.cursors.min()
		w.lines++
		w.at = c.x.key().next()
		if m, ok := c.run.met(c.x, c.ord); ok && m.lsn <= w.highest && w.q.matches(m.flow.name) {
			to = append(to, m)
			n--
		}
		if err := c.advance(); err != nil {
			return to, err
		}
		w.cursors.next(c.more && c.x.key().less(w.to))
	}
	return to, nil
}

// ended says that nothing is left.
func (w *walk) ended() bool { return w.at == w.to }

// failed names the error of a reader: files are closed under it when the store closes.
func (s *Store) failed(what string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && !errors.Is(err, ErrCorrupt) {
		return ErrClosed
	}
	return fmt.Errorf("timer: %s: %w", what, err)
}
