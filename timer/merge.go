package timer

import (
	"errors"
	"fmt"
	"math/bits"
)

const (
	mergePages  = 32      // index or key pages per read
	mergeSynced = 8 << 20 // bytes that are written between two syncs: the disk never has much to catch up with
)

// mergeJob is the merging of some runs into one. The janitor makes it and installs its result; in between it belongs to the merger.
type mergeJob struct {
	s       *Store
	id      uint64 // of the new run
	sources []*source
	renew   bool // there is one source, which is damaged: the key table is made from the records
	salvage bool // so are the flows; as fast as possible

	out *run  // nil: nothing is pending in the sources any more
	err error // why there is no out; *sourceError when a source cannot be read
}

// salvageJob writes what is sound and pending in a damaged run to a new one.
func (s *Store) salvageJob(r *run) *mergeJob {
	return &mergeJob{s: s, id: s.newFileID(), renew: true, salvage: true, sources: []*source{{run: r, tolerant: true}}}
}

// sourceError: a source is damaged or cannot be read. It is not merged again before the next Open.
type sourceError struct {
	run *run
	err error
}

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// merger is the goroutine that merges.
func (s *Store) merger() {
	defer s.wg.Done()
	for {
		select {
		case j := <-s.mergeJobs:
			j.out, j.err = j.run()
			s.merged <- j
			s.wakeJanitor()
		case <-s.stop:
			return
		}
	}
}

// run writes the new run. It reads the indexes of the sources twice: the first time to know how much there is to copy.
func (j *mergeJob) run() (*run, error) {
	p := &pacer{}
	if !j.salvage {
		p.s = j.s
	}
	l := runLayout{firstSeg: j.sources[0].run.firstSeg, minLSN: j.sources[0].run.minLSN}
	for _, src := range j.sources {
		src.snapshot(j.s)
		n, err := src.survey(p, !j.renew)
		if err != nil {
			return nil, err
		}
		r := src.run
		l.entries, l.bodies = l.entries+src.count, l.bodies+n
		l.firstSeg, l.lastSeg = min(l.firstSeg, r.firstSeg), max(l.lastSeg, r.lastSeg)
		l.minLSN, l.maxLSN = min(l.minLSN, r.minLSN), max(l.maxLSN, r.maxLSN)
		l.sources = append(l.sources, r.id)
	}
	if l.entries == 0 {
		return nil, nil
	}
	w, err := j.s.newRun(j.id, l)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	w.skipKeys = !j.renew
	if err := j.copyRecords(w, p); err != nil {
		return nil, w.giveUp(err)
	}
	if j.renew {
		return w.finish()
	}
	keys, err := j.keys(p)
	if err != nil {
		return nil, w.giveUp(err)
	}
	return w.finishWith(keys)
}

// copyRecords writes the records of all sources in key order.
func (j *mergeJob) copyRecords(w *runWriter, p *pacer) error {
	heads := heap[*source]{less: func(a, b *source) bool { return a.x.key().less(b.x.key()) }}
	for _, src := range j.sources {
		src.rewind()
		more, err := src.next()
		if err != nil {
			return err
		}
		if more {
			heads.push(src)
		}
	}
	written := 0
	for heads.len() > 0 {
		src := heads.min()
		if err := j.copyRecord(w, src); err != nil {
			return err
		}
		n := padded(int(src.x.length)) + indexBytes
		if err := p.spend(n); err != nil {
			return err
		}
		if written += n; written >= mergeSynced {
			written = 0
			if err := w.r.f.Sync(true); err != nil {
				return err
			}
		}
		more, err := src.next()
		if err != nil {
			return err
		}
		heads.next(more)
	}
	return nil
}

// copyRecord writes the record that src is at. A damaged one is copied as damaged: its entry fires, and Load reports it.
func (j *mergeJob) copyRecord(w *runWriter, src *source) error {
	x, r := src.x, src.run
	rec, err := src.record()
	if err != nil {
		return err
	}
	src.ords = append(src.ords, uint32(w.r.entries-w.left))
	if j.salvage {
		return j.copyNamed(w, rec)
	}
	flow := r.names[x.flow]
	if x.names(rec, r.seed) {
		_, err = w.put(rec, flow, x.lane)
		return err
	}
	j.s.mu.Lock()
	j.s.spoil(&r.dataFile)
	j.s.mu.Unlock()
	j.s.o.Log.Warn("timer: a record is damaged; it is copied as it is, and counted when it is due", "path", r.path, "offset", x.off, "lsn", x.lsn, "due", x.due)
	return w.putDamaged(rec, flow, x)
}

// copyNamed writes a record whose flow is known by its names only.
func (j *mergeJob) copyNamed(w *runWriter, rec []byte) error {
	r, ok := parseRecord(rec, j.sources[0].run.seed)
	if !ok {
		return fmt.Errorf("%w: a record that was sound a moment ago", ErrCorrupt)
	}
	j.s.mu.Lock()
	flow := j.s.wheel.flow(Flow{string(r.broker), string(r.topic)})
	j.s.mu.Unlock()
	_, err := w.put(rec, flow, r.lane)
	return err
}

// source is a run that is merged.
type source struct {
	run    *run
	out    *run     // the new run, once it is written
	left   []uint64 // the entries that are copied: those that were pending at the snapshot
	before []uint32 // by word of left: how many of them come before it
	count  int      // of them
	ords   []uint32 // the number in the new run of each that was copied
	seen   []uint64 // by word: what was carried over of what was done since the snapshot

	ord   int // the present entry
	x     indexEntry
	pages pageReader

	records  window
	tolerant bool // what cannot be read counts as damaged

	keyAt, keyN, keyPage int // the present line of the key table, how many lines its page has, and the next page
	key                  keyLine
}

// snapshot notes what is pending.
func (src *source) snapshot(s *Store) {
	r := src.run
	src.left = make([]uint64, len(r.done))
	src.seen = make([]uint64, len(r.done))
	src.before = make([]uint32, len(r.done))
	s.mu.Lock()
	for i, w := range r.done {
		src.left[i] = ^(w | src.beyond(i))
	}
	s.mu.Unlock()
}

// number counts what is left.
func (src *source) number() {
	src.count = 0
	for i, w := range src.left {
		src.before[i] = uint32(src.count)
		src.count += bits.OnesCount64(w)
	}
	src.ords = make([]uint32, 0, src.count)
}

// newOrd returns the number in the new run of an entry of the source, if it was copied.
func (src *source) newOrd(ord uint32) (uint32, bool) {
	w, bit := src.left[ord/64], uint64(1)<<(ord%64)
	if w&bit == 0 {
		return 0, false
	}
	return src.ords[int(src.before[ord/64])+bits.OnesCount64(w&(bit-1))], true
}

// survey returns how many bytes of records there are to copy, and checks every page that the merge will need.
func (src *source) survey(p *pacer, keys bool) (bodies int64, err error) {
	r := src.run
	for src.rewind(); ; {
		more, err := src.next()
		if err != nil {
			return 0, err
		}
		if !more {
			break
		}
		if len(r.names) > 0 && int(src.x.flow) >= len(r.names) || src.x.off+int64(src.x.length) > r.indexOff || src.x.length < headBytes {
			return 0, src.damaged(fmt.Errorf("%w: entry %d of %s", ErrCorrupt, src.ord, r.path))
		}
		bodies += int64(padded(int(src.x.length)))
		if err := p.spend(indexBytes); err != nil {
			return 0, err
		}
	}
	src.number()
	if !keys {
		return bodies, nil
	}
	table := pageReader{run: r, key: true}
	for page := range r.keyPages() {
		if _, _, err := table.page(page); err != nil {
			return 0, src.damaged(err)
		}
		if err := p.spend(pageBytes); err != nil {
			return 0, err
		}
	}
	return bodies, nil
}

// damaged says that the source is at fault.
func (src *source) damaged(err error) error { return &sourceError{src.run, err} }

func (src *source) rewind() {
	src.ord, src.pages = -1, pageReader{run: src.run, buf: src.pages.buf}
	src.records = window{f: src.run.f, end: src.run.bodyEnd(), tolerant: src.tolerant, buf: src.records.buf[:0]}
}

// next moves to the next entry that is copied: not to lost ones.
func (src *source) next() (bool, error) {
	r := src.run
	for {
		src.ord = nextBit(src.left, r.entries, src.ord+1, true)
		if src.ord == r.entries {
			return false, nil
		}
		b, _, err := src.pages.page(src.ord / pageEntries)
		if err != nil {
			return false, src.damaged(err)
		}
		if src.x = pageEntry(b, src.ord%pageEntries); !src.x.lost() {
			return true, nil
		}
		src.left[src.ord/64] &^= 1 << (src.ord % 64)
	}
}

// record returns the bytes of the present entry's record. They are valid, and may be changed, until the next call.
func (src *source) record() ([]byte, error) {
	rec, err := src.records.bytes(src.x.off, int(src.x.length))
	if err == nil && len(rec) < int(src.x.length) {
		err = fmt.Errorf("%w: entry %d of %s", ErrCorrupt, src.ord, src.run.path)
	}
	if err != nil {
		return nil, src.damaged(fmt.Errorf("%s: %w", src.run.path, err))
	}
	return rec, nil
}

// keys returns the lines of the new run's key table, sorted.
func (j *mergeJob) keys(p *pacer) (func() (keyLine, bool, error), error) {
	heads := heap[*source]{less: func(a, b *source) bool { return a.key.compare(b.key) < 0 }}
	for _, src := range j.sources {
		src.pages, src.keyAt, src.keyN, src.keyPage = pageReader{run: src.run, key: true, buf: src.pages.buf}, 0, 0, 0
		more, err := src.nextKey()
		if err != nil {
			return nil, err
		}
		if more {
			heads.push(src)
		}
	}
	return func() (keyLine, bool, error) {
		if heads.len() == 0 {
			return keyLine{}, false, nil
		}
		src := heads.min()
		l := src.key
		more, err := src.nextKey()
		if err != nil {
			return l, false, err
		}
		heads.next(more)
		return l, true, p.spend(keyBytes)
	}, nil
}

// nextKey moves to the next line of the key table whose entry was copied. key has its number in the new run.
func (src *source) nextKey() (bool, error) {
	for {
		for src.keyAt == src.keyN {
			if src.keyPage == src.run.keyPages() {
				return false, nil
			}
			_, n, err := src.pages.page(src.keyPage)
			if err != nil {
				return false, src.damaged(err)
			}
			src.keyAt, src.keyN = 0, n
			src.keyPage++
		}
		b, _, err := src.pages.page(src.keyPage - 1)
		if err != nil {
			return false, src.damaged(err)
		}
		l := keyAt(b, src.keyAt)
		src.keyAt++
		if int64(l.ord) >= int64(src.run.entries) {
			continue
		}
		if ord, ok := src.newOrd(l.ord); ok {
			src.key = keyLine{l.hash, ord}
			return true, nil
		}
	}
}

// pageReader reads the pages of a run's index, or of its key table, in order and many at a time.
type pageReader struct {
	run  *run
	key  bool
	buf  []byte
	from int // first page in buf, and how many
	n    int
	at   int // the last page that was checked, one more
	len  int // how many lines it has
}

// page returns a page and how many lines it has. The bytes are valid until the next call.
func (p *pageReader) page(at int) ([]byte, int, error) {
	if at < p.from || at >= p.from+p.n {
		if err := p.fill(at); err != nil {
			return nil, 0, err
		}
	}
	b := p.buf[(at-p.from)*pageBytes:][:pageBytes]
	if p.at == at+1 {
		return b, p.len, nil
	}
	n, ok := p.run.pageLen(at), false
	if p.key {
		n, ok = p.run.keyPageOK(at, b)
	} else {
		ok = p.run.pageOK(at, b)
	}
	switch {
	case ok:
	case p.key:
		return nil, 0, fmt.Errorf("%s: %w", p.run.path, damagedAt("a key page", p.run.keysOff+int64(at)*pageBytes))
	default:
		if err := p.run.readPage(at, b); err != nil {
			return nil, 0, err
		}
	}
	p.at, p.len = at+1, n
	return b, n, nil
}

func (p *pageReader) fill(at int) error {
	off, pages := p.run.indexOff, p.run.pages
	if p.key {
		off, pages = p.run.keysOff, p.run.keyPages()
	}
	n := min(mergePages, pages-at)
	if len(p.buf) < n*pageBytes {
		p.buf = make([]byte, n*pageBytes)
	}
	off += int64(at) * pageBytes
	if got, err := p.run.f.ReadAt(p.buf[:n*pageBytes], off); err != nil && got < n*pageBytes {
		if p.key {
			p.n = 0
			return fmt.Errorf("read %d pages at %d of %s: %w", n, off, p.run.path, err)
		}
		clear(p.buf[got : n*pageBytes]) // they are read one by one then
	}
	p.from, p.n = at, n
	return nil
}

// unfit says which source is at fault, nil if none is.
func (j *mergeJob) unfit() *run {
	if e := (*sourceError)(nil); errors.As(j.err, &e) {
		return e.run
	}
	return nil
}
