package timer

import (
	"fmt"
	"slices"
)

const (
	sealChunk = 4096 // entries per hold of Store.mu
)

// seal turns a full segment into a run, or into nothing if all of it is settled, and gives the segment free. It runs beside
// intake and firing; only installing the run takes Store.mu, in small pieces.
func (s *Store) seal(seg *segment) error {
	r, content, err := s.writeRun(seg, s.pendingOf(seg))
	if err != nil {
		return err
	}
	ops := []manifestOp{{op: opDropSeg, id: seg.id}, {op: opFloor, id: uint64(seg.last)}}
	if r != nil {
		ops = append(ops, addRun(r))
	}
	if err := s.commit(ops); err != nil {
		return err
	}
	if r != nil {
		s.install(r, content)
	}
	s.retire(seg)
	return nil
}

// sealed is a pending entry of a segment on its way into a run.
type sealed struct {
	entry  *entry
	flow   *flow
	due    int64
	from   int64 // of its record in the segment
	off    int64 // in the run
	length int32 // of the record
	ord    uint32
}

// pendingOf returns what is not settled in a full segment, in the order of the segment.
func (s *Store) pendingOf(seg *segment) []sealed {
	pend := make([]sealed, 0, len(seg.entries))
	for at := 0; at < len(seg.entries); at += sealChunk {
		s.mu.Lock()
		for _, e := range seg.entries[at:min(at+sealChunk, len(seg.entries))] {
			if !e.done {
				pend = append(pend, sealed{entry: e, flow: e.flow, due: e.due, from: e.off, length: e.length})
			}
		}
		s.mu.Unlock()
	}
	return pend
}

// writeRun writes and syncs a run for pend, and returns what is in it, with the places there, in the order of the segment. It returns
// no run if there is nothing to write. A damaged record is left out, and the segment is kept as evidence.
func (s *Store) writeRun(seg *segment, pend []sealed) (*run, []sealed, error) {
	if len(pend) == 0 {
		return nil, nil, nil
	}
	src, free, err := readSegment(seg, 0, seg.size)
	if err != nil {
		return nil, nil, fmt.Errorf("seal: %w", err)
	}
	defer free()
	if pend = s.checkRecords(seg, src, pend); len(pend) == 0 {
		return nil, nil, nil
	}
	w, err := s.newRun(s.newFileID(), runLayout{
		entries: len(pend), bodies: bodyBytes(pend), minLSN: seg.first, maxLSN: seg.last, firstSeg: seg.id, lastSeg: seg.id,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("seal %s: %w", seg.path, err)
	}
	w.resign = newResigner(seg.seed, w.r.seed)
	for ord, i := range orderByDue(pend) {
		p := &pend[i]
		rec := src[p.from : p.from+int64(p.length)]
		p.ord = uint32(ord)
		if p.off, err = w.put(rec, p.flow, le.Uint16(rec[10:])); err != nil {
			return nil, nil, w.giveUp(err)
		}
	}
	r, err := w.finish()
	return r, pend, err
}

// bodyBytes returns how much room the records of pend take.
func bodyBytes(pend []sealed) int64 {
	n := int64(0)
	for i := range pend {
		n += int64(padded(int(pend[i].length)))
	}
	return n
}

// orderByDue returns the indexes of pend, which is in LSN order, in (due, LSN) order. It is a radix sort.
func orderByDue(pend []sealed) []uint32 {
	const radix = 11 // bits
	type place struct {
		after uint64 // the earliest due, ms
		index uint32
	}
	earliest, latest := pend[0].due, pend[0].due
	for i := range pend {
		earliest, latest = min(earliest, pend[i].due), max(latest, pend[i].due)
	}
	from, to := make([]place, len(pend)), make([]place, len(pend))
	for i := range pend {
		from[i] = place{uint64(pend[i].due - earliest), uint32(i)}
	}
	for shift := 0; uint64(latest-earliest)>>shift > 0; shift += radix {
		var ends [1<<radix + 1]int // of the places with less, later of those with as much
		for _, p := range from {
			ends[p.after>>shift%(1<<radix)+1]++
		}
		for i := 1; i < len(ends); i++ {
			ends[i] += ends[i-1]
		}
		for _, p := range from {
			end := &ends[p.after>>shift%(1<<radix)]
			to[*end] = p
			*end++
		}
		from, to = to, from
	}
	order := make([]uint32, len(from))
	for i, p := range from {
		order[i] = p.index
	}
	return order
}

// checkRecords returns those of pend whose records are sound.
func (s *Store) checkRecords(seg *segment, src []byte, pend []sealed) []sealed {
	sound := pend[:0]
	for _, p := range pend {
		r, ok := parseRecord(src[p.from:], seg.seed)
		if ok && r.lsn == p.entry.lsn {
			sound = append(sound, p)
			continue
		}
		s.mu.Lock()
		s.spoil(&seg.dataFile)
		s.forget(p.entry)
		s.mu.Unlock()
		s.corrupt("a record is damaged and cannot be sealed", seg.path, "offset", p.from, "lsn", p.entry.lsn, "due", p.due)
	}
	return sound
}

// forget takes an entry whose record is damaged out of everything. If it was fired, its item remains until it
// is settled. Store.mu is held.
func (s *Store) forget(e *entry) {
	e.home = nil
	if e.done || e.flow.fired[e.lsn] == e {
		return
	}
	e.done = true
	s.lost++
	s.wheel.count(e.flow, e.due, -1)
	s.wheel.remove(e)
}

// install makes a run that MANIFEST names take the place of its segment. The loader rests meanwhile: until the end an
// entry may be both in far and in the run.
func (s *Store) install(r *run, content []sealed) {
	s.mu.Lock()
	s.installing, s.arriving = true, r
	s.generation++
	s.runs = append(s.runs, r)
	s.sealedBytes += r.size
	s.mu.Unlock()
	for at := 0; at < len(content); at += sealChunk {
		s.mu.Lock()
		for _, p := range content[at:min(at+sealChunk, len(content))] {
			e := p.entry
			e.home, e.off, e.ord = &r.dataFile, p.off, p.ord
			if e.done {
				r.end(int(p.ord), e.cancelled)
			}
		}
		s.mu.Unlock()
	}
}

// retire lets go of a segment that MANIFEST names no more, and the loader go on.
func (s *Store) retire(seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range seg.far {
		f.far.drop(seg)
	}
	seg.far = nil
	s.installing, s.arriving = false, nil
	s.wakeLoader()
	s.segs = slices.DeleteFunc(s.segs, func(g *segment) bool { return g == seg })
	seg.entries, seg.keys = nil, new(segKeys)
	seg.doomed = true
	s.trash = append(s.trash, &seg.dataFile)
	s.seals++
}
