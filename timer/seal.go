package timer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	sealChunk    = 4096    // entries per hold of Store.mu
	runWriteSize = 1 << 20 // bytes per write
)

// seal turns a full segment into a run, or into nothing if all of it is settled, and gives the segment free. It runs beside
// intake and firing; only installing the run takes Store.mu, in small pieces.
func (s *Store) seal(seg *segment) error {
	pend := s.pendingOf(seg)
	r, err := s.writeRun(seg, pend)
	if err != nil {
		return err
	}
	ops := []manifestOp{{op: opDropSeg, id: seg.id}, {op: opFloor, id: uint64(seg.last)}}
	if r != nil {
		ops = append(ops, manifestOp{op: opAddRun, id: r.id, n: uint64(r.entries)})
	}
	if err := s.commit(ops); err != nil {
		return err
	}
	if r != nil {
		s.install(r, pend)
	}
	s.retire(seg)
	return nil
}

// sealed is a pending entry of a segment on its way into a run.
type sealed struct {
	*entry
	off  int64 // in the run
	lost bool  // its record is damaged
}

// pendingOf returns what is not settled in a full segment, in key order.
func (s *Store) pendingOf(seg *segment) []sealed {
	var pend []sealed
	for at := 0; at < len(seg.entries); at += sealChunk {
		s.mu.Lock()
		for _, e := range seg.entries[at:min(at+sealChunk, len(seg.entries))] {
			if !e.done {
				pend = append(pend, sealed{entry: e})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(pend, func(a, b sealed) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.lsn, b.lsn)) })
	return pend
}

// writeRun writes and syncs the run for pend and notes in pend where each record went. It returns nil if there is nothing to
// write. A damaged record is left out, and the segment is kept as evidence.
func (s *Store) writeRun(seg *segment, pend []sealed) (*run, error) {
	if len(pend) == 0 {
		return nil, nil
	}
	src, err := readAt(seg.f, 0, int(seg.size))
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", seg.path, err)
	}
	kept := s.checkRecords(seg, src, pend)
	if kept == 0 {
		return nil, nil
	}
	id := s.newFileID()
	path := s.path(fileName(runPrefix, id))
	f, err := s.o.FS.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	w := newRunWriter(f, id, newEpoch(), path)
	r, err := w.write(seg, src, pend, kept)
	if err == nil {
		err = f.Sync(false)
	}
	if err == nil {
		err = s.o.FS.SyncDir(s.o.Dir)
	}
	if err != nil {
		f.Close()
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), s.o.FS.Remove(path))
	}
	return r, nil
}

// checkRecords marks what cannot be read any more and returns how many records are sound.
func (s *Store) checkRecords(seg *segment, src []byte, pend []sealed) int {
	kept := 0
	for i := range pend {
		p := &pend[i]
		r, ok := parseRecord(src[p.entry.off:], seg.seed)
		if ok && r.lsn == p.lsn {
			kept++
			continue
		}
		p.lost = true
		s.mu.Lock()
		seg.rotten = true
		s.forget(p.entry)
		s.mu.Unlock()
		s.corrupt("a record is damaged and cannot be sealed", seg.path, "offset", p.entry.off, "lsn", p.lsn, "due", p.due)
	}
	return kept
}

// forget takes an entry whose record is damaged out of everything. If it was fired, its item remains until it
// is settled. Store.mu is held.
func (s *Store) forget(e *entry) {
	e.home = nil
	if e.done || e.flow.fired[e.lsn] == e {
		return
	}
	e.done = true
	s.wheel.count(e.flow, e.due, -1)
	if e.flow.armed.remove(e) {
		s.wheel.reorder(e.flow)
	}
	e.flow.far.filter(func(x *entry) bool { return x != e })
}

// runWriter writes a run file from front to end.
type runWriter struct {
	f     vfs.File
	r     *run
	buf   []byte
	at    int64 // file offset of the end of buf
	index []indexEntry
	ids   map[*flow]uint32
	hours []map[int64]uint32 // by flow
}

func newRunWriter(f vfs.File, id, epoch uint64, path string) *runWriter {
	w := &runWriter{f: f, ids: map[*flow]uint32{}}
	w.r = &run{dataFile: newDataFile(id, epoch, path, f, 0)}
	w.r.dataFile.run = w.r
	return w
}

func (w *runWriter) write(seg *segment, src []byte, pend []sealed, kept int) (*run, error) {
	r := w.r
	r.entries, r.pages = kept, (kept+pageEntries-1)/pageEntries
	r.minLSN, r.maxLSN, r.firstSeg, r.lastSeg = seg.first, seg.last, seg.id, seg.id
	w.index = make([]indexEntry, 0, kept)
	if err := w.add(encodeHead(runMagic, r.id, r.epoch)); err != nil {
		return nil, err
	}
	if err := w.bodies(src, pend); err != nil {
		return nil, err
	}
	if err := w.pages(); err != nil {
		return nil, err
	}
	table := encodeFlows(r.flows)
	r.flowOff, r.flowLen, r.flowCRC = w.at, int64(len(table)), checksum(r.seed, table)
	r.minDue, r.maxDue = w.index[0].due, w.index[kept-1].due
	if err := w.add(table); err != nil {
		return nil, err
	}
	if err := w.add(r.encode(r.id, r.epoch)); err != nil {
		return nil, err
	}
	r.size = w.at
	r.prepare()
	return r, w.flush()
}

func (w *runWriter) add(b []byte) error {
	w.buf = append(w.buf, b...)
	w.at += int64(len(b))
	if len(w.buf) < runWriteSize {
		return nil
	}
	return w.flush()
}

func (w *runWriter) flush() error {
	_, err := w.f.WriteAt(w.buf, w.at-int64(len(w.buf)))
	w.buf = w.buf[:0]
	return err
}

func (w *runWriter) bodies(src []byte, pend []sealed) error {
	for i := range pend {
		p := &pend[i]
		if p.lost {
			continue
		}
		p.off = w.at
		rec := src[p.entry.off : p.entry.off+int64(padded(int(p.length)))]
		signRecord(rec, w.r.seed)
		w.index = append(w.index, indexEntry{
			due: p.due, lsn: p.lsn, flow: w.flow(p.flow, p.due), length: uint32(p.length), off: p.off, lane: p.lane,
		})
		if err := w.add(rec); err != nil {
			return err
		}
	}
	for h, n := range w.hours {
		for _, hour := range sortedHours(n) {
			w.r.flows[h].hours = append(w.r.flows[h].hours, hourCount{hour, n[hour]})
		}
	}
	return nil
}

func sortedHours(m map[int64]uint32) []int64 {
	hours := make([]int64, 0, len(m))
	for h := range m {
		hours = append(hours, h)
	}
	slices.Sort(hours)
	return hours
}

// flow counts an entry and returns the number of its flow in the flow table.
func (w *runWriter) flow(f *flow, due int64) uint32 {
	id, ok := w.ids[f]
	if !ok {
		id = uint32(len(w.r.names))
		w.ids[f] = id
		w.r.names = append(w.r.names, f)
		w.r.flows = append(w.r.flows, runFlow{name: f.name})
		w.hours = append(w.hours, map[int64]uint32{})
	}
	w.hours[id][hourOf(due)]++
	return id
}

func (w *runWriter) pages() error {
	if err := w.add(make([]byte, (pageBytes-w.at%pageBytes)%pageBytes)); err != nil {
		return err
	}
	w.r.indexOff = w.at
	for page := 0; page < w.r.pages; page++ {
		rest := w.index[page*pageEntries:]
		n := min(len(rest), pageEntries)
		b := make([]byte, pageBytes)
		for i, x := range rest[:n] {
			x.put(b[pageHead+i*indexBytes:])
		}
		signPage(b, page, n, w.r.seed)
		if err := w.add(b); err != nil {
			return err
		}
	}
	return nil
}

// install makes a run that MANIFEST names take the place of its segment. The loader rests meanwhile: until the end an
// entry may be both in far and in the run.
func (s *Store) install(r *run, pend []sealed) {
	s.mu.Lock()
	s.installing = true
	s.generation++
	s.runs = append(s.runs, r)
	s.mu.Unlock()
	ord := uint32(0)
	for at := 0; at < len(pend); at += sealChunk {
		s.mu.Lock()
		for _, p := range pend[at:min(at+sealChunk, len(pend))] {
			if p.lost {
				continue
			}
			p.entry.home, p.entry.off, p.entry.ord = &r.dataFile, p.off, ord
			if p.done {
				r.setDone(int(ord))
			}
			ord++
		}
		s.mu.Unlock()
	}
	for _, f := range r.names {
		s.mu.Lock()
		f.far.filter(func(e *entry) bool { return e.home.seg != nil })
		s.mu.Unlock()
	}
}

// retire lets go of a segment that MANIFEST names no more, and the loader go on.
func (s *Store) retire(seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.installing = false
	s.wakeLoader()
	s.segs = slices.DeleteFunc(s.segs, func(g *segment) bool { return g == seg })
	seg.entries = nil
	seg.doomed = true
	s.trash = append(s.trash, &seg.dataFile)
	s.seals++
}
