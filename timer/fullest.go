package timer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

const (
	// fullestPages bounds the index pages that one call of Fullest reads, but for those of the last second.
	fullestPages = 32 << 10
	maxFullest   = 10_000
	secondMs     = 1000
)

// SecondCount says how many entries are due within a second.
type SecondCount struct {
	Start   int64 // Unix ms
	Pending int64
}

// Fullest is the answer of Store.Fullest.
type Fullest struct {
	Seconds []SecondCount // the fullest first, of equal ones the earliest
	UpTo    int64         // Unix ms: what is due before it was looked at
	More    bool          // UpTo is not the end: ask again from there, and take the fullest of both answers
}

// Fullest returns the n seconds (1 to 10000) with the most pending entries among those due at from or later and before to, in
// Unix ms. It counts exactly, from the indexes of runs and what is not sealed yet: seconds are cut by from and to, what is settled does not
// count. A second costs two lookups in each run rather than a look at all its entries. After reading about 128 MiB of index a call
// ends early and says up to where it came, always at the end of a second.
//
// It reads the disk and may be called from any goroutine. Lost entries may count until they are noticed. Errors: ErrClosed, or what the disk said.
func (s *Store) Fullest(from, to int64, n int) (Fullest, error) {
	if n < 1 || n > maxFullest {
		return Fullest{}, fmt.Errorf("timer: the %d fullest seconds: ask for 1 to %d", n, maxFullest)
	}
	v, err := s.openView(key{due: from}, key{due: to})
	if err != nil {
		return Fullest{}, err
	}
	defer v.close()
	top, err := v.fullest(from, to, n, fullestPages)
	if err != nil {
		return Fullest{}, s.failed("count what is due in a second", err)
	}
	return top, nil
}

// fullest reads pages index pages at most, but finishes the second that it is at.
func (v *view) fullest(from, to int64, n, pages int) (Fullest, error) {
	t := tally{s: v.s, n: n, unsealed: v.unsealedSeconds(from, to)}
	t.top.less = func(a, b SecondCount) bool { return fuller(b, a) < 0 }
	cursors, err := v.cursorsFrom(from, to)
	if err != nil {
		return Fullest{}, err
	}
	read := 0
	for cursors.len() > 0 {
		c := cursors.min()
		second := secondOf(c.x.due)
		if read >= pages && second != t.present() {
			t.count(second)
			return t.answer(second*secondMs, true), nil
		}
		p := piece{run: c.run, second: second, from: c.ord}
		before := c.read
		end := to
		if second < secondOf(to) {
			end = (second + 1) * secondMs
		}
		if err := c.leave(end); err != nil {
			return Fullest{}, err
		}
		read += c.read - before
		p.to = c.ord
		t.add(p)
		cursors.next(c.more && c.x.due < to)
	}
	t.count(math.MaxInt64)
	return t.answer(to, false), nil
}

func (v *view) cursorsFrom(from, to int64) (*heap[*cursor], error) {
	h := &heap[*cursor]{less: func(a, b *cursor) bool { return a.x.due < b.x.due }}
	for _, r := range v.runs {
		c := &cursor{run: r, s: v.s}
		if err := c.seek(key{due: from}); err != nil {
			return nil, err
		}
		if c.more && c.x.due < to {
			h.push(c)
		}
	}
	return h, nil
}

// piece is what a run has in a second: the entries numbered from..to.
type piece struct {
	run      *run
	second   int64
	from, to int
}

// tally finds the fullest seconds.
type tally struct {
	s        *Store
	n        int
	unsealed []int64 // seconds of entries in no run, sorted
	pieces   []piece // ascending; not counted yet
	top      heap[SecondCount]
}

// fuller orders the fullest first, of equal ones the earliest.
func fuller(a, b SecondCount) int {
	return cmp.Or(cmp.Compare(b.Pending, a.Pending), cmp.Compare(a.Start, b.Start))
}

// present is the second of the last piece, if there was one.
func (t *tally) present() int64 {
	if len(t.pieces) == 0 {
		return math.MinInt64
	}
	return t.pieces[len(t.pieces)-1].second
}

func (t *tally) add(p piece) {
	if len(t.pieces) >= t.s.o.scanBatch && p.second != t.present() {
		t.count(p.second)
	}
	t.pieces = append(t.pieces, p)
}

// count settles the account of all seconds before end.
func (t *tally) count(end int64) {
	pending := make([]int64, len(t.pieces))
	t.s.mu.Lock()
	for i, p := range t.pieces {
		pending[i] = int64(p.to - p.from - p.run.doneIn(p.from, p.to))
	}
	t.s.mu.Unlock()
	at := 0
	for {
		second := end
		if at < len(t.pieces) {
			second = t.pieces[at].second
		}
		if len(t.unsealed) > 0 {
			second = min(second, t.unsealed[0])
		}
		if second == end {
			break
		}
		n := int64(0)
		for ; at < len(t.pieces) && t.pieces[at].second == second; at++ {
			n += pending[at]
		}
		for ; len(t.unsealed) > 0 && t.unsealed[0] == second; t.unsealed = t.unsealed[1:] {
			n++
		}
		t.offer(SecondCount{second * secondMs, n})
	}
	t.pieces = t.pieces[:0]
}

func (t *tally) offer(c SecondCount) {
	switch {
	case c.Pending == 0:
	case t.top.len() < t.n:
		t.top.push(c)
	case fuller(c, t.top.min()) < 0:
		t.top.a[0] = c
		t.top.fix(0)
	}
}

func (t *tally) answer(upTo int64, more bool) Fullest {
	slices.SortFunc(t.top.a, fuller)
	return Fullest{Seconds: t.top.a, UpTo: upTo, More: more}
}

func secondOf(due int64) int64 { return unitOf(due, secondMs) }

// unsealedSeconds returns the second of each pending entry of the unsealed segments that is due within from..to, sorted.
func (v *view) unsealedSeconds(from, to int64) []int64 {
	var seconds []int64
	var batch []*entry
	flush := func() {
		v.s.mu.Lock()
		for _, e := range batch {
			if !settledEntry(e) {
				seconds = append(seconds, secondOf(e.due))
			}
		}
		v.s.mu.Unlock()
		batch = batch[:0]
	}
	for _, g := range v.segs {
		for _, e := range g.entries {
			if e.due < from || e.due >= to {
				continue
			}
			if batch = append(batch, e); len(batch) == v.s.o.scanBatch {
				flush()
			}
		}
	}
	flush()
	slices.Sort(seconds)
	return seconds
}

// leave moves to the first entry that is due at due or later. It leaps over pages that only hold earlier ones.
func (c *cursor) leave(due int64) error {
	for c.more && c.x.due < due {
		n := c.run.pageLen(c.no)
		if pageEntry(c.page, n-1).due >= due {
			at := sort.Search(n, func(i int) bool { return pageEntry(c.page, i).due >= due })
			return c.jump(c.no*pageEntries + at)
		}
		if err := c.jump((c.no + 1) * pageEntries); err != nil {
			return err
		}
		if c.more && pageEntry(c.page, c.run.pageLen(c.no)-1).due < due { // most often it is the next page
			if err := c.leap(due); err != nil {
				return err
			}
		}
	}
	return nil
}

// leap moves to the beginning of the last page that begins before due, if damaged pages do not hide it: then to an earlier one.
func (c *cursor) leap(due int64) error {
	b := make([]byte, pageBytes)
	var failed error
	begins := func(page int) bool { // at due or later
		err := c.run.readPage(page, b)
		c.read++
		if err != nil && !errors.Is(err, ErrCorrupt) {
			failed = err
		}
		return err != nil || pageEntry(b, 0).due >= due
	}
	step := 1
	for c.no+step < c.run.pages && !begins(c.no+step) {
		step *= 2
	}
	lo, hi := c.no+step/2, min(c.no+step, c.run.pages)
	page := lo + sort.Search(hi-lo-1, func(i int) bool { return begins(lo + 1 + i) })
	if failed != nil {
		return failed
	}
	return c.jump(page * pageEntries)
}
