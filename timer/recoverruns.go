package timer

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"path"
	"slices"

	"github.com/delaygate/delaygate/timer/vfs"
)

// runSet is what recovery knows of runs while it decides which of them count.
type runSet struct {
	found   map[uint64]*run
	gone    map[uint64]error // named by MANIFEST, but not there
	damaged map[uint64]error // cannot be used as they are
}

// runs opens the runs that count: those that MANIFEST names, and what took the place of any that are gone. What is damaged is copied as far as
// it is sound.
func (rc *recovery) runs() error {
	set := &runSet{found: map[uint64]*run{}, gone: map[uint64]error{}, damaged: map[uint64]error{}}
	err := rc.namedRuns(set)
	if err == nil && !rc.rebuilt {
		err = rc.unnamedRuns(set)
	}
	if err == nil {
		rc.supersede(set.found)
		err = rc.salvageRuns(set)
	}
	for _, id := range sortedKeys(set.gone) {
		rc.s.missingRun(fileName(runPrefix, id), rc.pendingIn(id))
		delete(rc.state.runs, id)
	}
	for _, id := range sortedKeys(set.found) {
		r := set.found[id]
		if err == nil {
			err = rc.adopt(r)
		} else {
			r.f.Close()
		}
	}
	return err
}

// pendingIn returns how many entries of a run are not done by what MANIFEST says, -1 if it does not say how many there are.
func (rc *recovery) pendingIn(id uint64) int {
	n := rc.state.runs[id].entries
	if n == 0 {
		return -1
	}
	for _, w := range rc.state.done[id] {
		n -= bits.OnesCount64(w)
	}
	return n
}

func (s *Store) missingRun(name string, pending int) {
	s.corrupt("a run is missing, its entries are lost unless their segment is still there", s.path(name), "entries", pending)
	s.lost += int64(max(0, pending))
}

// namedRuns opens the runs that MANIFEST names.
func (rc *recovery) namedRuns(set *runSet) error {
	s := rc.s
	for _, id := range sortedKeys(rc.state.runs) {
		name := rc.locate(runPrefix, id, rc.state.runs[id].epoch)
		if name == "" {
			set.gone[id] = fs.ErrNotExist
			continue
		}
		r, err := openRun(s.o.FS, s.path(name), id)
		switch {
		case errors.Is(err, ErrVersion) || errors.Is(err, fs.ErrPermission):
			return err
		case err != nil:
			set.damaged[id] = err
		default:
			set.found[id] = r
			rc.place(&r.dataFile, fileName(runPrefix, id))
		}
	}
	return nil
}

// place notes that a file does not have the name want, if it has not.
func (rc *recovery) place(d *dataFile, want string) {
	if path.Base(d.path) == want {
		return
	}
	rc.s.corrupt("a file has the name of another and gets its own again", d.path, "offset", 0, "name", want)
	rc.misplaced = append(rc.misplaced, misplaced{d, want})
}

// unnamedRuns: a run that MANIFEST does not name is superseded by what it was made from, or was dropped; but if MANIFEST names a segment
// or run that is gone, the run made from it is what is left.
func (rc *recovery) unnamedRuns(set *runSet) error {
	s := rc.s
	for _, name := range sortedNames(rc.heads) {
		id, ok := parseName(name, runPrefix)
		if !ok || rc.used[name] {
			continue
		}
		r, err := openRun(s.o.FS, s.path(name), id)
		damaged := err
		if errors.Is(err, ErrCorrupt) {
			r, err = openDamagedRun(s.o.FS, s.path(name), id, runMeta{})
		}
		switch {
		case errors.Is(err, ErrVersion):
			return err
		case err != nil:
			continue
		case !rc.replaces(r, set.gone):
			r.f.Close()
			continue
		}
		s.o.Log.Warn("timer: adopting a run that MANIFEST does not name: what it was made from is gone", "path", r.path)
		rc.used[name] = true
		for _, id := range r.sources {
			delete(set.gone, id)
			delete(rc.state.runs, id)
		}
		if damaged == nil {
			set.found[id] = r
			continue
		}
		r.f.Close()
		set.damaged[id] = damaged
	}
	return nil
}

// replaces says whether a segment or run that r was made from is named but not there. A run that is there and damaged proves
// nothing: r may be half of a merge.
func (rc *recovery) replaces(r *run, gone map[uint64]error) bool {
	if len(r.sources) > 0 {
		return slices.ContainsFunc(r.sources, func(id uint64) bool { return vfs.IsNotExist(gone[id]) })
	}
	for id := range rc.state.segs {
		if r.firstSeg <= id && id <= r.lastSeg && !rc.have[fileName(segPrefix, id)] {
			return true
		}
	}
	return false
}

// supersede leaves out what is there twice: a merged run whose sources are all there, or else what is there of them.
func (rc *recovery) supersede(found map[uint64]*run) {
	drop := func(id uint64) {
		if r := found[id]; r != nil {
			r.f.Close()
			rc.junk = append(rc.junk, path.Base(r.path))
			delete(found, id)
			delete(rc.state.runs, id)
		}
	}
	ids := sortedKeys(found)
	for _, id := range slices.Backward(ids) {
		r := found[id]
		switch {
		case r == nil || len(r.sources) == 0:
		case slices.ContainsFunc(r.sources, func(id uint64) bool { return found[id] == nil }):
			for _, id := range r.sources {
				drop(id)
			}
		default:
			drop(id)
		}
	}
}

func (rc *recovery) adopt(r *run) error {
	for _, name := range r.flows {
		r.names = append(r.names, rc.s.wheel.flow(name))
	}
	r.load(rc.state.done[r.id], rc.state.cancelled[r.id])
	r.rotten = rc.state.damaged[r.id]
	r.noted = r.rotten
	rc.s.runs = append(rc.s.runs, r)
	rc.s.sealedBytes += r.size
	var found []*mendReport
	r.mend.report = func(_ *run, m *mendReport) { found = append(found, m) }
	if rc.rebuilt {
		if err := rc.s.findPunched(r); err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
	}
	rc.highest = max(rc.highest, r.maxLSN)
	rc.state.runs[r.id] = runMeta{r.epoch, r.entries}
	if rc.s.tool != nil {
		rc.s.tool.adopt(r, found)
		return nil
	}
	rc.s.countRun(r, &found)
	r.mend.report = rc.s.mended
	return nil
}
