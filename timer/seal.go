package timer

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	sealChunk = 4096 // entries per hold of Store.mu
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
		ops = append(ops, addRun(r))
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
	src := s.sealBuffer(seg.size)
	if n, err := seg.f.ReadAt(src, 0); n < len(src) {
		return nil, fmt.Errorf("seal %s: read it: %w", seg.path, err)
	}
	kept := s.checkRecords(seg, src, pend)
	if kept == 0 {
		return nil, nil
	}
	w, err := s.newRun(s.newFileID(), runLayout{
		entries: kept, bodies: bodyBytes(pend), minLSN: seg.first, maxLSN: seg.last, firstSeg: seg.id, lastSeg: seg.id,
	})
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", seg.path, err)
	}
	for i := range pend {
		p := &pend[i]
		if p.lost {
			continue
		}
		at := p.entry.off
		if p.off, err = w.put(src[at:at+int64(p.length)], p.flow, p.lane); err != nil {
			return nil, w.giveUp(err)
		}
	}
	return w.finish()
}

// bodyBytes returns how much room the sound records of pend take.
func bodyBytes(pend []sealed) int64 {
	n := int64(0)
	for _, p := range pend {
		if !p.lost {
			n += int64(padded(int(p.length)))
		}
	}
	return n
}

// sealBuffer returns room for a whole segment; there is only one, so that RAM stays flat.
func (s *Store) sealBuffer(size int64) []byte {
	if int64(cap(s.sealing)) < size {
		s.sealing = make([]byte, size)
	}
	return s.sealing[:size]
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
	s.lost++
	s.wheel.count(e.flow, e.due, -1)
	s.wheel.remove(e)
}

// install makes a run that MANIFEST names take the place of its segment. The loader rests meanwhile: until the end an
// entry may be both in far and in the run.
func (s *Store) install(r *run, pend []sealed) {
	s.mu.Lock()
	s.installing = true
	s.generation++
	s.runs = append(s.runs, r)
	s.sealedBytes += r.size
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
				r.end(int(ord), p.cancelled)
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
