package timer

import (
	"cmp"
	"slices"
	"time"
)

const (
	mergeBackoff = 10 // pauses after a failed merge are that much longer than those after a failed seal
	mergeWays    = 8  // runs that are merged because there are too many
	smallRun     = 16 // a run is small when that many fit into a segment
	smallShare   = 4  // this part of MaxRuns may be small

	// In hundredths. Runs are merged for their dead bytes while all runs together occupy more than mergeFrom of what is alive in them,
	// and until it is less than mergeTo; only those of which mergeDead is dead, or mergeSome while merges wrote less than mergeCredit
	// of what was sealed.
	mergeFrom   = 120
	mergeTo     = 115
	mergeDead   = 45
	mergeSome   = 25
	mergeCredit = 40

	restShare = 64 // a run rests while less than this part of it is done in mergeRest
)

// candidate is a run that may be merged.
type candidate struct {
	run     *run
	id      uint64
	pending int
	live    int64 // bytes that it would take without what is done in it
	dead    int64 // bytes that it takes beyond that
	fit     bool  // it can be merged
	ill     bool  // its index or key table is damaged
	rest    bool  // little was done in it lately
}

// share returns the dead part of the run in hundredths.
func (c *candidate) share() int64 { return 100 * c.dead / max(1, c.live+c.dead) }

// startMerge hands the runs that should be merged, if there are any, to the merger.
func (s *Store) startMerge() {
	if s.merging != nil || time.Now().Before(s.mergeAfter) {
		return
	}
	all := s.candidates(time.Now())
	pick := s.pickMerge(all)
	if len(pick) == 0 || !s.roomToMerge(pick) {
		return
	}
	j := &mergeJob{s: s, id: s.newFileID(), renew: pick[0].ill}
	s.mu.Lock()
	for _, c := range pick {
		c.run.merging = true
		j.sources = append(j.sources, &source{run: c.run})
	}
	s.mu.Unlock()
	s.merging = j
	s.mergeJobs <- j
}

// candidates describes all runs, none while sources of the last merge are still there: without MANIFEST, a merged run counts if one of its
// sources is gone, so two generations must not be on the disk together.
func (s *Store) candidates(now time.Time) []candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.trash, func(d *dataFile) bool { return d.run != nil }) {
		return nil
	}
	all := make([]candidate, 0, len(s.runs))
	for _, r := range s.runs {
		if done := r.entries - r.pending; done-r.restDone > r.entries/restShare || r.restFrom.IsZero() {
			r.restDone, r.restFrom = done, now
		}
		live := int64(float64(r.size) * float64(r.pending) / float64(r.entries))
		all = append(all, candidate{
			run: r, id: r.id, pending: r.pending, live: live, dead: max(0, r.occupied-live),
			fit: !r.unfit && r.pending > 0, ill: r.ill, rest: now.Sub(r.restFrom) >= s.o.mergeRest,
		})
	}
	return all
}

// pickMerge returns the runs to merge next.
func (s *Store) pickMerge(all []candidate) []candidate {
	fit := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !c.fit })
	if i := slices.IndexFunc(fit, func(c candidate) bool { return c.ill }); i >= 0 {
		return fit[i : i+1] // a damaged run is written anew, alone
	}
	slices.SortFunc(fit, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.live, b.live), cmp.Compare(a.id, b.id)) })
	if len(all) > s.o.MaxRuns {
		if pick := s.capped(fit, mergeWays); len(pick) > 1 {
			return pick
		}
	}
	small, _ := slices.BinarySearchFunc(fit, s.o.SegmentBytes/smallRun, func(c candidate, n int64) int { return cmp.Compare(c.live, n) })
	if most := max(2, s.o.MaxRuns/smallShare); small >= most {
		return s.capped(fit[:small], most)
	}
	return s.pickDead(all, fit)
}

// capped returns as many of the first as one merge may have, at most n.
func (s *Store) capped(from []candidate, n int) []candidate {
	bytes, entries := int64(0), 0
	for i, c := range from[:min(n, len(from))] {
		bytes, entries = bytes+c.live, entries+c.pending
		if bytes > s.o.mergeBytes || entries > s.o.mergeEntries {
			return from[:i]
		}
	}
	return from[:min(n, len(from))]
}

// pickDead returns the runs with the largest dead part, as many as it takes to bring all down to mergeTo.
func (s *Store) pickDead(all, fit []candidate) []candidate {
	live, dead := int64(0), int64(0)
	for _, c := range all {
		live, dead = live+c.live, dead+c.dead
	}
	if dead < s.o.SegmentBytes/2 || live+dead <= live*mergeFrom/100 {
		return nil
	}
	worst := slices.DeleteFunc(fit, func(c candidate) bool { return !c.rest || c.share() < mergeSome })
	slices.SortFunc(worst, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.share(), a.share()), cmp.Compare(a.id, b.id)) })
	n, spare, credit := 0, live*(mergeTo-100)/100, s.sealedBytes*mergeCredit/100-s.mergedBytes
	for ; n < len(worst) && (dead > spare || n == 1); n++ { // two together, where one would do
		c := worst[n]
		if credit -= c.live; c.share() < mergeDead && credit < 0 {
			break
		}
		dead -= c.dead
	}
	return s.capped(worst, n)
}

// roomToMerge says whether the disk has room for the runs that come in addition until their sources are gone.
func (s *Store) roomToMerge(pick []candidate) bool {
	need := s.o.SegmentBytes
	for _, c := range pick {
		need += c.live
	}
	return s.roomFor(need) == nil
}
