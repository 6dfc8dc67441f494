package timer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/delaygate/delaygate/timer/vfs"
)

// recovery rebuilds a Store from what is on the disk. It deletes nothing before a MANIFEST that does not need it is durable.
type recovery struct {
	s       *Store
	state   *manifestState
	rebuilt bool // there was no readable MANIFEST
	have    map[string]bool
	highest LSN
	junk    []string
}

// recover returns the segment that the writer begins with.
func (s *Store) recover() (*segment, error) {
	names, err := s.o.FS.ReadDir(s.o.Dir)
	if err != nil {
		return nil, err
	}
	rc := &recovery{s: s, have: map[string]bool{}}
	for _, n := range names {
		rc.have[n] = true
	}
	for _, step := range []func() error{rc.manifest, rc.runs, rc.files, rc.segments} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return rc.finish()
}

// manifest reads MANIFEST, or makes up one from the files if it cannot be read.
func (rc *recovery) manifest() error {
	s := rc.s
	path := s.path(manifestName)
	state, err := readManifest(s.o.FS, path)
	switch {
	case errors.Is(err, ErrCorrupt):
		s.corrupt("MANIFEST is damaged, rebuilding it from runs and segments; settled entries may come back", path, "err", err)
		if err := s.o.FS.Rename(path, path+brokenSuffix); err != nil {
			return err
		}
		state, err = rc.rebuild()
	case vfs.IsNotExist(err):
		state, err = rc.rebuild()
	}
	if err != nil {
		return err
	}
	for name := range rc.have {
		if id, ok := anyID(name); ok {
			state.nextFile = max(state.nextFile, id+1)
		}
	}
	rc.state = state
	s.man = &manifest{fs: s.o.FS, dir: s.o.Dir, limit: s.o.manifestBytes, state: state}
	return nil
}

// anyID returns the file id in a name, broken ones included.
func anyID(name string) (uint64, bool) {
	name = strings.TrimSuffix(name, brokenSuffix)
	for _, p := range []string{segPrefix, runPrefix, freePrefix} {
		if id, ok := parseName(name, p); ok {
			return id, true
		}
	}
	return 0, false
}

// rebuild makes a state that names every run and segment there is.
func (rc *recovery) rebuild() (*manifestState, error) {
	rc.rebuilt = true
	s, state := rc.s, newManifestState()
	for name := range rc.have {
		if id, ok := parseName(name, runPrefix); ok {
			state.runs[id] = runMeta{}
		}
		id, ok := parseName(name, segPrefix)
		if !ok {
			continue
		}
		epoch, err := s.readEpoch(s.path(name), id)
		if errors.Is(err, ErrCorrupt) {
			s.corrupt("a segment cannot be read", s.path(name), "err", err)
			err = s.o.FS.Rename(s.path(name), s.path(name)+brokenSuffix)
		} else if err == nil {
			state.segs[id] = segMeta{epoch: epoch}
		}
		if err != nil {
			return nil, err
		}
	}
	return state, nil
}

func (s *Store) readEpoch(path string, id uint64) (uint64, error) {
	f, err := s.o.FS.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return headEpoch(f, path, segMagic, id)
}

func headEpoch(f vfs.File, path, magic string, id uint64) (uint64, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	b, err := readAt(f, 0, int(min(size, segHeadBytes)))
	if err != nil {
		return 0, err
	}
	got, epoch, err := decodeHead(b, magic)
	if err == nil && got != id {
		err = fmt.Errorf("%w: it says it is number %x", ErrCorrupt, got)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return epoch, nil
}

// runs opens the runs that count: those that MANIFEST names, and what took the place of any that are gone.
func (rc *recovery) runs() error {
	found, gone, err := rc.namedRuns()
	if err == nil && !rc.rebuilt {
		err = rc.unnamedRuns(found, gone)
	}
	if err != nil {
		closeRuns(found)
		return err
	}
	rc.supersede(found)
	for _, id := range sortedKeys(gone) {
		rc.s.corrupt("a run is missing or cannot be read, its entries are lost unless their segment is still there", rc.s.path(fileName(runPrefix, id)), "err", gone[id])
	}
	for _, id := range sortedKeys(found) {
		r := found[id]
		delete(found, id)
		if err := rc.adopt(r); err != nil {
			closeRuns(found)
			return err
		}
	}
	return nil
}

func closeRuns(runs map[uint64]*run) {
	for _, r := range runs {
		r.f.Close()
	}
}

// namedRuns opens the runs that MANIFEST names. gone are those that it cannot open; a damaged one is kept as evidence.
func (rc *recovery) namedRuns() (found map[uint64]*run, gone map[uint64]error, err error) {
	s := rc.s
	found, gone = map[uint64]*run{}, map[uint64]error{}
	for _, id := range sortedKeys(rc.state.runs) {
		path := s.path(fileName(runPrefix, id))
		r, err := openRun(s.o.FS, path, id)
		switch {
		case err == nil:
			found[id] = r
			continue
		case errors.Is(err, ErrCorrupt):
			gone[id] = err
			err = s.o.FS.Rename(path, path+brokenSuffix)
		case vfs.IsNotExist(err):
			gone[id] = err
			err = nil
		}
		if err != nil {
			return found, gone, err
		}
		delete(rc.state.runs, id)
	}
	return found, gone, nil
}

// unnamedRuns: a run that MANIFEST does not name is superseded by what it was made from, or was dropped; but if MANIFEST names a segment
// or run that is gone, the run made from it is what is left.
func (rc *recovery) unnamedRuns(found map[uint64]*run, gone map[uint64]error) error {
	s := rc.s
	for name := range rc.have {
		id, ok := parseName(name, runPrefix)
		if _, lost := gone[id]; !ok || lost || found[id] != nil {
			continue
		}
		r, err := openRun(s.o.FS, s.path(name), id)
		switch {
		case errors.Is(err, ErrVersion):
			return err
		case err == nil && rc.replaces(r, gone):
			s.o.Log.Warn("timer: adopting a run that MANIFEST does not name: what it was made from is gone", "path", r.path)
			found[id] = r
			for _, id := range r.sources {
				delete(gone, id)
			}
			continue
		case err == nil:
			r.f.Close()
		}
		rc.junk = append(rc.junk, name)
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
			rc.junk = append(rc.junk, fileName(runPrefix, id))
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
	for i := range r.flows {
		r.names = append(r.names, rc.s.wheel.flow(r.flows[i].name))
	}
	r.load(rc.state.done[r.id], rc.state.cancelled[r.id])
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
	rc.s.countRun(r, &found)
	r.mend.report = rc.s.mended
	return nil
}

// files marks what is neither a named run nor a named segment. Blank segments are not recycled across a crash: a half-done
// rename may have left two names for one file, and unlinking one of them is safe where writing to it is not.
func (rc *recovery) files() error {
	for name := range rc.have {
		id, isSeg := parseName(name, segPrefix)
		_, named := rc.state.segs[id]
		_, isFree := parseName(name, freePrefix)
		if isFree || name == manifestTmp || isSeg && !named && !rc.rebuilt {
			rc.junk = append(rc.junk, name)
		}
	}
	return nil
}

// finish makes the new state durable, then deletes what it does not need, and only then reuses a file.
func (rc *recovery) finish() (*segment, error) {
	s := rc.s
	s.log.next = max(rc.highest, rc.state.floor) + lsnSkip
	rc.state.floor = s.log.next - 1
	s.admitted = rc.state.floor
	if rc.state.identity == 0 {
		rc.state.identity = newEpoch()
	}
	s.identity = rc.state.identity
	if rc.have[reserveName] {
		s.findReserve()
	}
	if err := rc.save(s.man.rewrite); err != nil {
		return nil, rc.late(err)
	}
	s.removeAll(rc.junk)
	s.emptyTrash()
	first, err := s.makeSegment()
	if err != nil {
		return nil, rc.late(err)
	}
	ops := []manifestOp{{op: opNextFile, id: rc.state.nextFile}, addSeg(first)}
	if err := rc.save(func(bits bitsOf) error { return s.man.commit(ops, bits) }); err != nil {
		first.f.Close()
		delete(rc.state.segs, first.id)
		rc.junk = []string{fileName(segPrefix, first.id)}
		return nil, rc.late(err)
	}
	s.manifestSize = s.man.size
	return first, nil
}

// save writes MANIFEST. On a full disk it gives up what no MANIFEST ever needs, then RESERVE.
func (rc *recovery) save(write func(bitsOf) error) error {
	s := rc.s
	err := write(s.bitsOf)
	for vfs.IsFull(err) && (rc.removeBlank() || s.giveUpReserve()) {
		err = s.man.rewrite(s.bitsOf)
	}
	return err
}

// removeBlank removes one of the blank segments that are left from before. False: there was none.
func (rc *recovery) removeBlank() bool {
	for i, name := range rc.junk {
		if _, ok := parseName(name, freePrefix); ok && rc.s.o.FS.Remove(rc.s.path(name)) == nil {
			rc.junk = slices.Delete(rc.junk, i, i+1)
			return true
		}
	}
	return false
}

// late makes a full disk no reason not to open: what is pending fires, and the janitor finishes what Open began once there is
// room. Other errors it returns.
func (rc *recovery) late(err error) error {
	if !vfs.IsFull(err) {
		return err
	}
	s := rc.s
	s.log.err = fmt.Errorf("%w: %w", ErrFull, err)
	s.o.Log.Error("timer: the data disk is full; what is pending fires, nothing is taken or noted as delivered until there is room", "err", err)
	if s.man.f != nil {
		return nil
	}
	for _, d := range s.trash { // the old MANIFEST names them
		d.f.Close()
		rc.junk = append(rc.junk, fileName(segPrefix, d.id))
	}
	s.trash, s.junk = nil, rc.junk
	return nil
}

// lateManifest writes the MANIFEST that Open had no room for: before that nothing may be written or deleted. False: the
// store closes.
func (s *Store) lateManifest() bool {
	if s.commit(nil) != nil {
		return false
	}
	s.removeAll(s.junk)
	s.junk = nil
	return true
}

func (s *Store) removeAll(names []string) {
	for _, name := range names {
		if err := s.o.FS.Remove(s.path(name)); err != nil {
			s.o.Log.Warn("timer: cannot remove a file that is not needed", "path", s.path(name), "err", err)
		}
	}
}
