package timer

import (
	"errors"
	"fmt"
)

// opened is a segment that recovery found.
type opened struct {
	seg       *segment
	cut       int64 // where MANIFEST says its records end, 0: unknown
	stretches []stretch
	keep      int // how many stretches count
}

// segments replays what is not sealed.
func (rc *recovery) segments() error {
	var segs []*opened
	for _, id := range sortedKeys(rc.state.segs) {
		o, err := rc.openSegment(id)
		if err != nil {
			return err
		}
		if o == nil {
			delete(rc.state.segs, id)
			continue
		}
		rc.s.segs = append(rc.s.segs, o.seg)
		if o.stretches, err = o.scan(nil); err != nil {
			return err
		}
		segs = append(segs, o)
	}
	rc.judge(segs)
	for _, o := range segs {
		if err := rc.replay(o); err != nil {
			return err
		}
	}
	rc.dropEmpty()
	for _, g := range rc.s.segs {
		for _, e := range g.entries {
			if !e.done {
				rc.s.wheel.admit(e)
			}
		}
	}
	return nil
}

// openSegment opens a segment and makes what is in it durable; nil when it is not there.
func (rc *recovery) openSegment(id uint64) (*opened, error) {
	s, meta := rc.s, rc.state.segs[id]
	name := rc.locate(segPrefix, id, meta.epoch)
	if name == "" {
		if !rc.sealed(id) {
			s.corrupt("a segment is missing, what is pending in it is lost", s.path(fileName(segPrefix, id)))
		}
		return nil, nil
	}
	path := s.path(name)
	f, err := s.o.FS.Open(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err == nil {
		err = f.Sync(false)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	seg := newSegment(id, meta.epoch, path, f, size)
	seg.full = true
	seg.rotten = rc.state.damaged[id]
	seg.noted = seg.rotten
	rc.place(&seg.dataFile, fileName(segPrefix, id))
	if h := rc.heads[name]; h.err != nil || h.id != id || h.epoch != meta.epoch {
		seg.rotten = true
		s.corrupt("the head of a segment is damaged, MANIFEST has what is needed", path, "offset", 0, "err", h.err)
	}
	if size < meta.size {
		seg.rotten = true
		s.corrupt("a segment is cut off, what was in its end is lost", path, "offset", size, "size", meta.size)
	}
	return &opened{seg: seg, cut: meta.cut}, nil
}

// sealed says whether a run was made from segment id.
func (rc *recovery) sealed(id uint64) bool {
	for _, r := range rc.s.runs {
		if r.firstSeg <= id && id <= r.lastSeg {
			return true
		}
	}
	return false
}

// scan reads the segment; see scanRecords. Records are valid while each runs.
func (o *opened) scan(each func(nth int, off int64, r *record)) ([]stretch, error) {
	end := o.seg.size
	if o.cut > 0 {
		end = min(end, o.cut)
	}
	if end <= segDataStart {
		return []stretch{{from: segDataStart, end: segDataStart}}, nil
	}
	b, free, err := readSegment(o.seg, segDataStart, end)
	if err != nil {
		return nil, err
	}
	defer free()
	return scanRecords(b, segDataStart, o.seg.seed, each), nil
}

// judge tells rot from torn tails. A damaged place that a later group knew to be synced, or that lies before the end
// that MANIFEST knows, is rot: it is skipped, reported, and the file is kept. Anything else is what a crash left
// behind: the segment ends there.
func (rc *recovery) judge(segs []*opened) {
	synced := LSN(0) // by what comes later
	for i := len(segs) - 1; i >= 0; i-- {
		sums := segs[i].stretches
		for j := len(sums) - 1; j >= 0; j-- {
			synced = max(synced, sums[j].synced)
			sums[j].synced = synced
		}
	}
	last := LSN(0)
	for i, o := range segs {
		follows := LSN(0) // what the first group of the next segment knew
		if i+1 < len(segs) {
			follows = segs[i+1].stretches[0].opens
		}
		last = rc.judgeSegment(o, last, follows)
	}
}

// judgeSegment decides how many stretches of a segment count, and returns the highest LSN up to its end.
func (rc *recovery) judgeSegment(o *opened, last, follows LSN) LSN {
	for j, t := range o.stretches {
		last = max(last, t.last)
		o.keep = j + 1
		final := o.keep == len(o.stretches)
		rotten := false
		switch {
		case o.cut > 0:
			rotten = !final || t.end < o.cut
		case final:
			rotten = follows > last
		default:
			rotten = o.stretches[j+1].synced > last
		}
		if rotten {
			o.seg.rotten = true
			rc.s.corrupt("records of a segment are damaged and skipped", o.seg.path, "offset", t.end, "after lsn", last)
			if !rc.sealed(o.seg.id) {
				rc.lost = append(rc.lost, lostIn{o.seg.path, t.lost})
			}
		} else if !final {
			break
		}
	}
	return last
}

// replay applies the records of a segment that count.
func (rc *recovery) replay(o *opened) error {
	skip, failed := rc.sealed(o.seg.id), error(nil)
	_, err := o.scan(func(nth int, off int64, r *record) {
		if nth < o.keep && failed == nil {
			failed = rc.apply(o.seg, off, r, skip)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	end := int64(segDataStart)
	for _, t := range o.stretches[:o.keep] {
		end = max(end, t.end)
	}
	if o.cut > 0 {
		end = o.cut
	}
	rc.highest = max(rc.highest, o.seg.last)
	meta := rc.state.segs[o.seg.id]
	meta.cut = end
	rc.state.segs[o.seg.id] = meta
	return nil
}

// apply applies one record. skip: the puts of this segment are in a run.
func (rc *recovery) apply(seg *segment, off int64, r *record, skip bool) error {
	switch r.kind {
	case kindGroup:
		return nil
	case kindPut:
		seg.saw(r.lsn)
		if skip {
			return nil
		}
		name := Flow{string(r.broker), string(r.topic)}
		seg.add(&entry{
			due: r.due, lsn: r.lsn, lane: r.lane, length: int32(r.length), off: off,
			home: &seg.dataFile, flow: rc.s.wheel.flow(name),
		}, keyHashes(&Entry{Flow: name, Key: string(r.key), Keys: string(r.keys)}))
	case kindSettle, kindCancel:
		seg.saw(r.lsn)
		for _, k := range r.ended() {
			rc.end(k, r.kind == kindCancel)
		}
	default:
		return fmt.Errorf("%w: %s holds a record of kind %d", ErrVersion, seg.path, r.kind)
	}
	return nil
}

// end marks an entry as settled or cancelled wherever it is now. It may be nowhere: ended before its segment was sealed. The first
// record counts, others for the same entry change nothing.
func (rc *recovery) end(k key, cancelled bool) {
	for _, g := range rc.s.segs {
		if e := g.find(k.lsn); e != nil {
			e.cancelled = cancelled && !e.done || e.cancelled
			e.done = true
			return
		}
	}
	if len(rc.lost) > 0 {
		rc.settled[k] = true
	}
	for _, r := range rc.s.runs {
		if k.lsn < r.minLSN || k.lsn > r.maxLSN {
			continue
		}
		ord, x, ok, err := r.find(k)
		if err != nil && !errors.Is(err, errLost) {
			rc.s.corrupt("cannot look up a settled or cancelled entry, it may come back", r.path, "lsn", k.lsn, "err", err)
		}
		if ok && r.end(ord, cancelled) && int(x.flow) < len(r.names) {
			rc.s.wheel.count(r.names[x.flow], k.due, -1)
		}
	}
}

// dropEmpty gives segments free in which there is nothing at all.
func (rc *recovery) dropEmpty() {
	s := rc.s
	kept := s.segs[:0]
	for _, g := range s.segs {
		if g.last > 0 || g.rotten {
			kept = append(kept, g)
			continue
		}
		delete(rc.state.segs, g.id)
		g.doomed = true
		s.trash = append(s.trash, &g.dataFile)
	}
	s.segs = kept
}
