package timer

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// moved is an entry in RAM whose record lies in a source of a merge.
type moved struct {
	*entry
	from   *source
	newOrd uint32
	newOff int64
}

// endMerge takes the result of a merge over.
func (s *Store) endMerge(j *mergeJob) error {
	s.merging = nil
	if j.err == nil && j.out != nil {
		j.err = s.installMerge(j)
	}
	if j.err == nil {
		s.mergePause = 0
	}
	s.mu.Lock()
	for _, src := range j.sources {
		src.run.merging = false
		if src.run == j.unfit() {
			src.run.unfit, src.run.ill = j.renew, true
			s.spoil(&src.run.dataFile)
		}
	}
	s.mu.Unlock()
	switch {
	case j.err == nil || errors.Is(j.err, ErrClosed):
		return j.err
	case errors.Is(j.err, ErrCorrupt) && j.unfit() != nil:
		s.corrupt("a run is damaged and cannot be merged as it is", j.unfit().path, "offset", damageOffset(j.err), "err", j.err)
	default:
		s.mergePause = min(max(2*s.mergePause, mergeBackoff*s.o.backoff), mergeBackoff*maxBackoffFactor*s.o.backoff)
		s.mergeAfter = time.Now().Add(s.mergePause)
		s.o.Log.Warn("timer: merging runs failed, trying again later", "err", j.err, "after", s.mergePause)
	}
	return nil
}

// installMerge makes the merged run take the place of its sources, first in RAM, then in MANIFEST. What was done since the snapshot is
// carried over in the same edit. The loader rests while RAM changes: it must not bring entries of the sources.
func (s *Store) installMerge(j *mergeJob) error {
	if err := s.takeOver(j); err != nil {
		j.out.f.Close()
		return errors.Join(fmt.Errorf("merge: %w", err), s.o.FS.Remove(j.out.path))
	}
	ops := []manifestOp{addRun(j.out)}
	for _, src := range j.sources {
		ops = append(ops, manifestOp{op: opDropRun, id: src.run.id})
	}
	err := s.commit(ops)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unnamed = false
	for _, src := range j.sources {
		src.run.doomed, src.run.into = true, nil
		s.trash = append(s.trash, &src.run.dataFile)
	}
	if err == nil {
		s.merges++
		s.mergedBytes += j.out.size
	}
	return err
}

// takeOver does it in RAM. After an error nothing has changed.
func (s *Store) takeOver(j *mergeJob) error {
	s.mu.Lock()
	s.installing = true
	s.generation++
	for _, src := range j.sources {
		src.out = j.out
	}
	s.mu.Unlock()
	held, err := s.locate(j)
	if err == nil {
		s.carryMost(j)
		err = s.replace(j)
	}
	if err == nil {
		s.move(held, j.out)
	}
	s.mu.Lock()
	s.installing = false
	s.mu.Unlock()
	s.wakeLoader()
	return err
}

// locate finds the entries in RAM that lie in the sources, and where their records are now.
func (s *Store) locate(j *mergeJob) ([]moved, error) {
	from := map[*dataFile]*source{}
	flows := map[*flow]struct{}{}
	for _, src := range j.sources {
		from[&src.run.dataFile] = src
		for _, f := range src.run.names {
			flows[f] = struct{}{}
		}
	}
	var held []moved
	add := func(e *entry) {
		if src := from[e.home]; src != nil {
			held = append(held, moved{entry: e, from: src})
		}
	}
	for f := range flows {
		s.mu.Lock()
		for _, e := range f.armed.a[f.armed.head:] {
			add(e)
		}
		for _, e := range f.fired {
			add(e)
		}
		s.mu.Unlock()
	}
	for i := range held {
		m := &held[i]
		ord, ok := m.from.newOrd(m.ord)
		if !ok {
			return nil, fmt.Errorf("entries of %s are pending that were done before", m.from.run.path)
		}
		m.newOrd = ord
	}
	slices.SortFunc(held, func(a, b moved) int { return cmp.Compare(a.newOrd, b.newOrd) })
	pages := pageReader{run: j.out}
	for i := range held {
		m := &held[i]
		b, _, err := pages.page(int(m.newOrd) / pageEntries)
		if err != nil {
			return nil, err
		}
		x := pageEntry(b, int(m.newOrd)%pageEntries)
		if x.key() != m.key() {
			return nil, fmt.Errorf("%w: entry %d of %s is %v, not %v", ErrCorrupt, m.newOrd, j.out.path, x.key(), m.key())
		}
		m.newOff = x.off
	}
	return held, nil
}

// carryMost marks in the new run what was done in the sources since the snapshot, in small pieces.
func (s *Store) carryMost(j *mergeJob) {
	for _, src := range j.sources {
		for at := 0; at < len(src.left); at += sealChunk / 64 {
			s.mu.Lock()
			src.carry(at, min(at+sealChunk/64, len(src.left)))
			s.mu.Unlock()
		}
	}
}

// replace puts the new run in the place of its sources. From here on whoever ends an entry that has not moved yet marks it in both.
func (s *Store) replace(j *mergeJob) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, src := range j.sources {
		if src.revived() {
			return fmt.Errorf("entries of %s are pending that were done before", src.run.path)
		}
	}
	for _, src := range j.sources {
		src.carry(0, len(src.left))
		src.run.into = src
	}
	s.unnamed = true
	s.runs = slices.DeleteFunc(s.runs, func(r *run) bool { return r.into != nil })
	s.runs = append(s.runs, j.out)
	return nil
}

// move gives entries their places in the new run.
func (s *Store) move(held []moved, to *run) {
	for at := 0; at < len(held); at += sealChunk {
		s.mu.Lock()
		for _, m := range held[at:min(at+sealChunk, len(held))] {
			m.home, m.ord, m.off = &to.dataFile, m.newOrd, m.newOff
		}
		s.mu.Unlock()
	}
}

// revived says whether something is pending that was not copied. Store.mu is held.
func (src *source) revived() bool {
	for at, done := range src.run.done {
		if ^(done | src.left[at] | src.beyond(at)) != 0 {
			return true
		}
	}
	return false
}

// beyond returns the bits of word at that stand for no entry.
func (src *source) beyond(at int) uint64 {
	if rest := src.run.entries - at*64; rest < 64 {
		return ^(uint64(1)<<rest - 1)
	}
	return 0
}

// carry marks in the new run what was done in words [at, end) of the source since the snapshot. Store.mu is held.
func (src *source) carry(at, end int) {
	for ; at < end; at++ {
		fresh := src.run.done[at] & src.left[at] &^ src.seen[at]
		src.seen[at] |= fresh
		for ; fresh != 0; fresh &= fresh - 1 {
			src.carryOne(uint32(at*64 + bits.TrailingZeros64(fresh)))
		}
	}
}

// carryOne marks in the new run that an entry of the source is done. Store.mu is held.
func (src *source) carryOne(ord uint32) {
	if at, ok := src.newOrd(ord); ok {
		src.out.end(int(at), src.run.isCancelled(int(ord)))
	}
}
