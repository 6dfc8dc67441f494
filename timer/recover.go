package timer

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// readTries is how often an unreadable MANIFEST is read again before it counts as damaged.
const readTries = 3

// recovery rebuilds a Store from what is on the disk. It deletes nothing before a MANIFEST that does not need it is durable.
type recovery struct {
	s       *Store
	state   *manifestState
	rebuilt bool // there was no readable MANIFEST
	have    map[string]bool
	heads   map[string]fileHead // of segments and runs, by name
	used    map[string]bool     // those that are one that is needed
	leftovers
	lost    []lostIn
	settled map[key]bool // what was settled or cancelled in segments, if something is lost
	highest LSN
}

// recover returns the segment that the writer begins with.
func (s *Store) recover() (*segment, error) {
	rc := newRecovery(s)
	if err := rc.list(); err != nil {
		return nil, err
	}
	if rc.have[reserveName] && s.tool == nil {
		s.findReserve()
	}
	if err := rc.read(); err != nil {
		return nil, err
	}
	return rc.finish()
}

func newRecovery(s *Store) *recovery {
	return &recovery{s: s, have: map[string]bool{}, settled: map[key]bool{}}
}

func (rc *recovery) list() error {
	names, err := rc.s.o.FS.ReadDir(rc.s.o.Dir)
	for _, n := range names {
		rc.have[n] = true
	}
	return err
}

// read finds out what there is and what of it counts.
func (rc *recovery) read() error {
	for _, step := range []func() error{rc.identify, rc.manifest, rc.runs, rc.segments, rc.others} {
		if err := step(); err != nil {
			return err
		}
	}
	rc.tellLost()
	return nil
}

// manifest reads MANIFEST, or makes up one from the files if it cannot be read.
func (rc *recovery) manifest() error {
	s := rc.s
	path := s.path(manifestName)
	state, err := readManifest(s.o.FS, path)
	for try := range readTries { // it may pass
		if state != nil || errors.Is(err, ErrVersion) || errors.Is(err, fs.ErrPermission) || vfs.IsNotExist(err) {
			break
		}
		time.Sleep(s.o.backoff << try)
		state, err = readManifest(s.o.FS, path)
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrVersion) || errors.Is(err, fs.ErrPermission):
		return err
	case vfs.IsNotExist(err):
		if len(rc.heads) > 0 {
			s.corrupt("MANIFEST is missing, it is rebuilt from runs and segments; settled entries may come back", path)
		}
		state = rc.rebuild(newManifestState())
	default:
		s.corrupt("MANIFEST is damaged, it is rebuilt from runs and segments; settled entries may come back", path, "offset", damageOffset(err), "err", err)
		if !s.tool.readsOnly() {
			rc.copyManifest(path)
		}
		if state == nil {
			state = newManifestState()
		}
		state = rc.rebuild(state)
	}
	for name := range rc.have {
		if id, ok := anyID(name); ok {
			state.nextFile = max(state.nextFile, id+1)
		}
	}
	for _, h := range rc.heads {
		state.nextFile = max(state.nextFile, h.id+1)
	}
	rc.state = state
	s.man = &manifest{fs: s.o.FS, dir: s.o.Dir, limit: s.o.manifestBytes, state: state}
	return nil
}

// copyManifest keeps a copy of a damaged MANIFEST as evidence; the file stays until another takes its place.
func (rc *recovery) copyManifest(path string) {
	s := rc.s
	err := func() error {
		b, err := readFile(s.o.FS, path)
		if err != nil {
			return errors.Join(err, s.o.FS.Rename(path, path+brokenSuffix))
		}
		f, err := s.o.FS.Create(path + brokenSuffix)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(b, 0)
		return errors.Join(err, f.Close())
	}()
	if err != nil {
		s.o.Log.Warn("timer: the damaged MANIFEST cannot be kept as it is", "path", path, "err", err)
	}
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

// rebuild makes a state that names every run and segment there is, but for those that known dropped. known is what could be read of MANIFEST.
func (rc *recovery) rebuild(known *manifestState) *manifestState {
	rc.rebuilt = true
	state := newManifestState()
	state.nextFile, state.floor, state.identity, state.done, state.cancelled = known.nextFile, known.floor, known.identity, known.done, known.cancelled
	for _, name := range sortedNames(rc.heads) {
		h := rc.heads[name]
		if id, ok := parseName(name, runPrefix); ok {
			if h.err == nil {
				id = h.id
			}
			if known.dropped[id] {
				rc.junk = append(rc.junk, name)
				continue
			}
			state.runs[id] = known.runs[id]
			if h.err == nil {
				state.runs[id] = runMeta{h.epoch, known.runs[id].entries}
			}
			continue
		}
		id, _ := parseName(name, segPrefix)
		meta, ok := known.segs[id]
		switch {
		case known.dropped[id]:
			rc.junk = append(rc.junk, name)
			continue
		case h.err == nil && h.id == id:
			meta.epoch = h.epoch
		case !ok: // a segment of an earlier life begins with another's head
			rc.s.corrupt("a segment cannot be read", rc.s.path(name), "offset", 0, "err", h.err)
			rc.broken = append(rc.broken, name)
			continue
		}
		state.segs[id] = meta
	}
	return state
}

// others decides about the files that nobody needs. Blank segments are not recycled across a crash: a half-done
// rename may have left two names for one file, and unlinking one of them is safe where writing to it is not.
func (rc *recovery) others() error {
	for name := range rc.have {
		_, isFree := parseName(name, freePrefix)
		if isFree || name == manifestTmp {
			rc.junk = append(rc.junk, name)
		}
	}
	for _, name := range sortedNames(rc.heads) {
		if rc.used[name] || slices.Contains(rc.junk, name) || slices.Contains(rc.broken, name) {
			continue
		}
		if rc.stranger(name) {
			h := rc.heads[name]
			rc.s.corrupt("a file is another than its name says and is not needed; it is set aside", rc.s.path(name), "offset", 0, "its id", h.id)
			rc.broken = append(rc.broken, name)
		} else {
			rc.junk = append(rc.junk, name)
		}
	}
	return nil
}

// finish makes the new state durable, then deletes what it does not need, and only then reuses a file.
func (rc *recovery) finish() (*segment, error) {
	s := rc.s
	if err := rc.commit(); err != nil {
		return nil, rc.late(err)
	}
	first, err := s.makeSegment()
	if err != nil {
		return nil, rc.late(err)
	}
	ops := []manifestOp{{op: opNextFile, id: rc.state.nextFile}, addSeg(first)}
	if err := rc.save(func(bits bitsOf) error { return s.man.commit(ops, bits) }); err != nil {
		first.f.Close()
		delete(rc.state.segs, first.id)
		rc.leftovers = leftovers{junk: []string{fileName(segPrefix, first.id)}}
		return nil, rc.late(err)
	}
	s.manifestSize = s.man.size
	return first, nil
}

// commit makes the new state durable and deletes what it does not need.
func (rc *recovery) commit() error {
	s := rc.s
	s.log.next = max(rc.highest, rc.state.floor) + lsnSkip
	rc.state.floor = s.log.next - 1
	s.admitted = rc.state.floor
	if rc.state.identity == 0 {
		rc.state.identity = newEpoch()
	}
	s.identity = rc.state.identity
	if err := rc.save(s.man.rewrite); err != nil {
		return err
	}
	s.tidy(rc.leftovers)
	s.emptyTrash()
	return nil
}

// save writes MANIFEST. On a full disk it gives up what no MANIFEST ever needs, then RESERVE.
func (rc *recovery) save(write func(bitsOf) error) error {
	s := rc.s
	err := write(s.bitsOf)
	for vfs.IsFull(err) && (s.shrinkReserve() || rc.removeBlank() || s.giveUpReserve()) {
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
		rc.junk = append(rc.junk, path.Base(d.path))
	}
	s.trash, s.left = nil, rc.leftovers
	return nil
}

// lateManifest writes the MANIFEST that Open had no room for: before that nothing may be written or deleted. False: the
// store closes.
func (s *Store) lateManifest() bool {
	if s.commit(nil) != nil {
		return false
	}
	s.tidy(s.left)
	s.left = leftovers{}
	return true
}

// leftovers is what may be done with files once MANIFEST does not need them.
type leftovers struct {
	junk      []string // to be unlinked
	broken    []string // to be kept as evidence
	misplaced []misplaced
}

func (s *Store) tidy(l leftovers) {
	for _, name := range l.broken {
		if err := s.o.FS.Rename(s.path(name), s.path(name)+brokenSuffix); err != nil {
			s.o.Log.Warn("timer: cannot set a damaged file aside", "path", s.path(name), "err", err)
		}
	}
	s.giveNames(l.misplaced)
	for _, name := range l.junk {
		if err := s.o.FS.Remove(s.path(name)); err != nil {
			s.o.Log.Warn("timer: cannot remove a file that is not needed", "path", s.path(name), "err", err)
		}
	}
}
