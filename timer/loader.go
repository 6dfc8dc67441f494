package timer

import (
	"time"
)

const (
	readPages  = 8 // index pages per read of a cursor
	retryAfter = time.Second
)

// loader is the goroutine that brings what is due before the horizon from runs and unsealed segments into the wheel.
func (s *Store) loader() {
	defer s.wg.Done()
	for {
		select {
		case <-s.loaderWake:
		case <-s.stop:
			return
		}
		for {
			more, err := s.loadPass()
			if err != nil {
				s.o.Log.Error("timer: cannot read what becomes due, retrying", "err", err)
				s.wakeLoaderAfter()
				break
			}
			s.readAhead()
			if !more {
				break
			}
			select {
			case <-s.stop:
				return
			default:
			}
		}
	}
}

// wakeLoaderAfter makes the loader try again in a while.
func (s *Store) wakeLoaderAfter() {
	t := time.NewTimer(retryAfter)
	defer t.Stop()
	select {
	case <-t.C:
		s.wakeLoader()
	case <-s.stop:
	}
}

// pass is one walk of the loader through the index of all runs, in key order, for the flows that were thirsty when it
// began.
type pass struct {
	s          *Store
	generation uint64
	flows      []*flow
	runs       []*run
	cursors    heap[*cursor]
	limit      key
}

// loadPass serves the thirsty flows. more: it ended early, and another is needed at once.
func (s *Store) loadPass() (more bool, err error) {
	p, start := s.beginPass()
	if p == nil {
		return false, nil
	}
	defer p.end()
	if len(p.runs) == 0 {
		return p.apply(nil, p.limit), nil
	}
	if err := p.open(start); err != nil {
		return false, err
	}
	for {
		batch, upTo, err := p.read()
		if err != nil {
			return false, err
		}
		stop := p.apply(batch, upTo)
		s.readAhead()
		s.wakeFiring()
		if stop || upTo == p.limit {
			return stop, nil
		}
	}
}

// beginPass moves the horizon and collects who is thirsty; nil when nobody is or a run is being installed.
func (s *Store) beginPass() (*pass, key) {
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.installing {
		return nil, key{} // install wakes the loader
	}
	w := s.wheel
	w.horizon = max(w.horizon, now+s.o.Horizon.Milliseconds())
	p := &pass{s: s, generation: s.generation, limit: key{due: w.horizon}}
	start := lastKey
	for _, f := range w.flows {
		w.settleResume(f)
		if !w.thirsty(f) {
			continue
		}
		f.loading = true
		p.flows = append(p.flows, f)
		if f.resume.less(start) {
			start = f.resume
		}
	}
	if len(p.flows) == 0 {
		return nil, key{}
	}
	for _, r := range s.runs {
		if r.pending > 0 && r.minDue < w.horizon && r.maxDue >= start.due {
			r.refs++
			p.runs = append(p.runs, r)
		}
	}
	return p, start
}

func (p *pass) end() {
	p.s.mu.Lock()
	for _, f := range p.flows {
		f.loading = false
	}
	for _, r := range p.runs {
		p.s.release(&r.dataFile)
	}
	p.s.mu.Unlock()
	p.s.wakeFiring()
}

func (p *pass) open(start key) error {
	p.cursors.less = func(a, b *cursor) bool { return a.x.key().less(b.x.key()) }
	for _, r := range p.runs {
		c := &cursor{run: r, s: p.s}
		if err := c.seek(start); err != nil {
			return err
		}
		if c.more {
			p.cursors.push(c)
		}
	}
	return nil
}

// found is an index entry of a run.
type found struct {
	indexEntry
	run *run
	ord int
}

// read returns the next entries of all runs, and the key that all that come later reach.
func (p *pass) read() ([]found, key, error) {
	var batch []found
	for p.cursors.len() > 0 && len(batch) < p.s.o.loadBatch {
		c := p.cursors.min()
		if !c.x.key().less(p.limit) {
			return batch, p.limit, nil
		}
		batch = append(batch, found{c.x, c.run, c.ord})
		if err := c.advance(); err != nil {
			return nil, key{}, err
		}
		p.cursors.next(c.more)
	}
	if p.cursors.len() == 0 {
		return batch, p.limit, nil
	}
	return batch, batch[len(batch)-1].key().next(), nil
}

// apply puts a batch into the wheel; everything before upTo has now been offered. stop: the pass is over
// early, because a run was installed or because nobody left needs anything near.
func (p *pass) apply(batch []found, upTo key) (stop bool) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != p.generation {
		return true
	}
	for _, x := range batch {
		f := x.run.names[x.flow]
		if !f.loading || x.key().less(f.resume) || x.run.isDone(x.ord) || f.fired[x.lsn] != nil {
			continue
		}
		s.wheel.load(f, x.key(), func() *entry { return x.entry(f) })
	}
	nearest := lastKey
	for _, f := range p.flows {
		if !f.loading {
			continue
		}
		s.wheel.passed(f, maxKey(upTo, f.resume))
		if f.loading && f.resume.less(nearest) {
			nearest = f.resume
		}
	}
	return upTo != p.limit && upTo.less(nearest)
}

func maxKey(a, b key) key {
	if a.less(b) {
		return b
	}
	return a
}

func (x *found) entry(f *flow) *entry {
	e := &entry{
		due: x.due, lsn: x.lsn, flow: f, home: &x.run.dataFile, off: x.off,
		length: int32(x.length), ord: uint32(x.ord), lane: x.lane,
	}
	return e
}

// settleResume moves the resume point of a flow to the horizon if there is nothing that the loader could bring.
func (w *wheel) settleResume(f *flow) {
	if f.pending == int64(f.inRAM()) {
		f.resume = maxKey(f.resume, key{due: w.horizon})
	}
}

// cursor walks through the index of one run, several pages per read.
type cursor struct {
	s    *Store
	run  *run
	x    indexEntry
	ord  int
	more bool
	buf  []byte
	from int // first page in buf, and how many
	n    int
	page []byte // the page of x, checked; nil: none
	no   int    // its number
	read int    // pages read
}

// seek moves to the first entry at or past k.
func (c *cursor) seek(k key) error {
	page, err := c.run.seek(k, make([]byte, pageBytes))
	if err != nil {
		return err
	}
	c.ord = page*pageEntries - 1
	for {
		if err := c.advance(); err != nil || !c.more || !c.x.key().less(k) {
			return err
		}
	}
}

// advance moves to the next entry; lost ones are left out.
func (c *cursor) advance() error { return c.jump(c.ord + 1) }

// jump moves to the first entry numbered ord or higher that is not lost. At the end ord is the number of entries.
func (c *cursor) jump(ord int) error {
	for c.ord = ord; c.ord < c.run.entries; c.ord++ {
		if page := c.ord / pageEntries; c.page == nil || page != c.no {
			if err := c.enter(page); err != nil {
				return err
			}
		}
		if c.x = pageEntry(c.page, c.ord%pageEntries); !c.x.lost() {
			c.more = true
			return nil
		}
	}
	c.ord, c.more = c.run.entries, false
	return nil
}

// enter makes page the present one.
func (c *cursor) enter(page int) error {
	if page < c.from || page >= c.from+c.n {
		if err := c.fill(page); err != nil {
			return err
		}
	}
	b := c.buf[(page-c.from)*pageBytes:][:pageBytes]
	if !c.run.pageOK(page, b) {
		if err := c.run.readPage(page, b); err != nil {
			return err
		}
	}
	c.page, c.no = b, page
	return nil
}

// fill reads ahead from page on: more each time that it is the page behind the last ones.
func (c *cursor) fill(page int) error {
	n := 1
	if c.n > 0 && page == c.from+c.n {
		n = min(2*c.n, readPages)
	}
	n = min(n, c.run.pages-page)
	if len(c.buf) < n*pageBytes {
		c.buf = make([]byte, n*pageBytes)
	}
	off := c.run.indexOff + int64(page)*pageBytes
	if got, err := c.run.f.ReadAt(c.buf[:n*pageBytes], off); err != nil && got < n*pageBytes {
		clear(c.buf[got : n*pageBytes]) // page by page then, as they are needed
	}
	c.from, c.n = page, n
	c.read += n
	return nil
}
