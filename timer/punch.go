package timer

import (
	"errors"
	"io"
	"iter"
	"math/bits"
	"slices"

	"github.com/delaygate/delaygate/timer/vfs"
)

// punchRound is how many times Options.punchBytes must have come together in all runs before punching costs an edit of MANIFEST.
const punchRound = 8

// span is a stretch of a file.
type span struct{ from, to int64 }

// holes are the stretches of a run that were punched since Open, ascending.
type holes []span

// overlap returns how many bytes of [from, to) are in holes.
func (h holes) overlap(from, to int64) (n int64) {
	for _, x := range h {
		n += max(0, min(x.to, to)-max(x.from, from))
	}
	return n
}

// with returns h with [from, to) in place of everything that it touches.
func (h holes) with(from, to int64) holes {
	at, _ := slices.BinarySearchFunc(h, from, func(x span, from int64) int { return int(min(x.to-from, 1)) })
	end := at
	for ; end < len(h) && h[end].from <= to; end++ {
		from, to = min(from, h[end].from), max(to, h[end].to)
	}
	return slices.Replace(h, at, end, span{from, to})
}

// punchJob is a run with what was done in it at one moment.
type punchJob struct {
	run   *run
	done  []uint64
	count int // of them
}

// punch gives the space of done entries back, once enough of them came together. MANIFEST has their bits before anything is punched:
// an entry that is pending after a crash has its body.
func (s *Store) punch() (did bool, err error) {
	jobs := s.punchable()
	if len(jobs) == 0 {
		return false, nil
	}
	if err := s.commit(nil); err != nil {
		return true, err
	}
	for _, j := range jobs {
		if !s.noPunch {
			s.punchRun(j)
		}
	}
	return true, nil
}

// punchable returns the runs in which much was done since they were last punched.
func (s *Store) punchable() []punchJob {
	if s.noPunch {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := int64(0)
	for _, r := range s.runs {
		if s.punchPays(r) {
			fresh += r.freshBytes()
		}
	}
	if fresh < punchRound*s.o.punchBytes {
		return nil
	}
	var jobs []punchJob
	for _, r := range s.runs {
		if s.punchPays(r) {
			jobs = append(jobs, punchJob{r, slices.Clone(r.done), r.entries - r.pending})
		}
	}
	return jobs
}

// punchPays says whether there may be something to punch. The merger must not meet holes that are made while it reads, and evidence is kept
// whole. Store.mu is held.
func (s *Store) punchPays(r *run) bool {
	return !r.merging && !r.rotten && r.freshBytes() >= s.o.punchBytes
}

// freshBytes estimates the bytes of records that were done since the last punching. Store.mu is held.
func (r *run) freshBytes() int64 { return int64(r.entries-r.pending-r.punched) * r.meanBytes() }

// meanBytes returns the mean size of a record with its padding.
func (r *run) meanBytes() int64 { return (r.indexOff - segHeadBytes) / int64(r.entries) }

// punchRun punches every done stretch in which Options.punchBytes are still on the disk. Whatever fails, the space merely stays.
func (s *Store) punchRun(j punchJob) {
	r := j.run
	failed := error(nil)
	for from, to := range doneStretches(j.done, r.entries) {
		// Many short stretches are not worth a look at the index.
		if from > 0 && int64(to-from)*r.meanBytes() < s.o.punchBytes/4 {
			continue
		}
		if failed = s.punchStretch(r, from, to); failed != nil {
			break
		}
	}
	occupied, err := r.f.Occupied()
	if errors.Is(failed, errors.ErrUnsupported) {
		s.noPunch = true
		s.o.Log.Info("timer: the file system cannot punch holes, the space of delivered messages is free only with their whole run", "path", r.path)
	} else if err = errors.Join(failed, err); err != nil {
		s.o.Log.Warn("timer: cannot give space back, it stays in use", "path", r.path, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.punched = j.count
	if err == nil {
		s.punchedBytes += r.occupied - occupied
		r.occupied = occupied
	}
}

func (s *Store) punchStretch(r *run, from, to int) error {
	first, err := r.offsets(from)
	if err != nil {
		return err
	}
	last, err := r.offsets(to - 1)
	if err != nil {
		return err
	}
	start, end := roundUp(first.from), last.to/pageBytes*pageBytes
	if end-start-r.holes.overlap(start, end) < s.o.punchBytes {
		return nil
	}
	if err := r.f.Punch(start, end-start); err != nil {
		return err
	}
	r.holes = r.holes.with(start, end)
	return nil
}

func roundUp(off int64) int64 { return (off + pageBytes - 1) / pageBytes * pageBytes }

// offsets returns where the record of an entry lies.
func (r *run) offsets(ord int) (span, error) {
	b := make([]byte, pageBytes)
	if err := r.readPage(ord/pageEntries, b); err != nil {
		return span{}, err
	}
	x := pageEntry(b, ord%pageEntries)
	return span{x.off, x.off + int64(padded(int(x.length)))}, nil
}

// doneStretches returns each longest stretch of ones among the first n bits.
func doneStretches(words []uint64, n int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from := nextBit(words, n, 0, true); from < n; {
			to := nextBit(words, n, from, false)
			if !yield(from, to) {
				return
			}
			from = nextBit(words, n, to, true)
		}
	}
}

// nextBit returns the first bit at or past from that is set (or is not), n if there is none.
func nextBit(words []uint64, n, from int, set bool) int {
	for from < n {
		w := words[from/64]
		if !set {
			w = ^w
		}
		if w >>= from % 64; w != 0 {
			return min(n, from+bits.TrailingZeros64(w))
		}
		from += 64 - from%64
	}
	return n
}

// findPunched marks what was punched in a run as done: MANIFEST, which said so, is lost. A record that a hole only cut into is
// recognized by its checksum, so that bytes which the file system made a hole of because they are zeros do no harm.
func (s *Store) findPunched(r *run) error {
	gaps, err := findHoles(r.f, r.indexOff)
	if err != nil || len(gaps) == 0 {
		return err
	}
	c := &cursor{run: r, s: s, ord: -1}
	for err = c.advance(); err == nil && c.more; err = c.advance() {
		end := c.x.off + int64(padded(int(c.x.length)))
		for len(gaps) > 0 && gaps[0].to <= c.x.off {
			gaps = gaps[1:]
		}
		if len(gaps) == 0 || gaps[0].from >= end {
			continue
		}
		if _, err := r.readRecord(c.x.off, int(c.x.length)); errors.Is(err, ErrCorrupt) {
			r.setDone(c.ord)
		} else if err != nil {
			return err
		}
	}
	return err
}

// findHoles returns the holes before end.
func findHoles(f vfs.File, end int64) ([]span, error) {
	var gaps []span
	for off := int64(0); off < end; {
		from, to, err := f.Data(off)
		if errors.Is(err, io.EOF) {
			from, to, err = end, end, nil
		}
		if err != nil {
			return nil, err
		}
		if from > off {
			gaps = append(gaps, span{off, min(from, end)})
		}
		off = to
	}
	return gaps, nil
}
