package timer

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/delaygate/delaygate/timer/vfs"
)

// fileHead is what the first bytes of a segment or run say.
type fileHead struct {
	id, epoch uint64
	err       error // nil: they are sound
}

// misplaced is a file that has the name of another.
type misplaced struct {
	file *dataFile
	want string // its name
}

// identify reads the heads of all segments and runs.
func (rc *recovery) identify() error {
	rc.heads, rc.used = map[string]fileHead{}, map[string]bool{}
	for name := range rc.have {
		for prefix, magic := range map[string]string{segPrefix: segMagic, runPrefix: runMagic} {
			if _, ok := parseName(name, prefix); !ok {
				continue
			}
			h := rc.readHead(rc.s.path(name), magic)
			if errors.Is(h.err, ErrVersion) || errors.Is(h.err, fs.ErrPermission) {
				return h.err
			}
			rc.heads[name] = h
		}
	}
	return nil
}

func (rc *recovery) readHead(path, magic string) fileHead {
	f, err := rc.s.o.FS.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: give the user that runs delaygate the right to read and write it", err)
	}
	if err != nil {
		return fileHead{err: err}
	}
	defer f.Close()
	id, epoch, err := headOf(f, path, magic)
	return fileHead{id, epoch, err}
}

// headOf reads the head of an open file.
func headOf(f vfs.File, path, magic string) (id, epoch uint64, err error) {
	size, err := f.Size()
	if err != nil {
		return 0, 0, err
	}
	b, err := readAt(f, 0, int(min(size, segHeadBytes)))
	if err == nil {
		id, epoch, err = decodeHead(b, magic)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return id, epoch, nil
}

// locate returns the name of the file that is segment or run id, or "" if there is none: the one that is called so unless its head
// says that it is another, else one whose head says that it is it. epoch is what MANIFEST says.
func (rc *recovery) locate(prefix string, id, epoch uint64) string {
	own := fileName(prefix, id)
	h, exists := rc.heads[own]
	if exists && (h.err != nil || h.id == id) {
		rc.used[own] = true
		return own
	}
	for _, name := range sortedNames(rc.heads) {
		_, ok := parseName(name, prefix)
		if h := rc.heads[name]; ok && h.err == nil && h.id == id && h.epoch == epoch {
			rc.used[name] = true
			return name
		}
	}
	if !exists {
		return ""
	}
	rc.used[own] = true
	return own
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// stranger says whether a file that nobody needs is a copy of one that is needed, or of one that was: then it is evidence. A segment that a
// crash left between its recycling and its new head is not, nor is what was never finished.
func (rc *recovery) stranger(name string) bool {
	h := rc.heads[name]
	id, isRun := parseName(name, runPrefix)
	if !isRun {
		id, _ = parseName(name, segPrefix)
	}
	if h.err != nil || h.id == id {
		return false
	}
	_, named := rc.state.segs[h.id]
	return isRun || named
}

// giveNames gives misplaced files their names. In between they have new ones, under which they are found again by their heads.
func (s *Store) giveNames(files []misplaced) {
	move := func(d *dataFile, name string) bool {
		err := s.o.FS.Rename(d.path, s.path(name))
		if err != nil {
			s.o.Log.Warn("timer: cannot give a file its name", "path", d.path, "name", name, "err", err)
			return false
		}
		d.path = s.path(name)
		return true
	}
	prefix := func(m misplaced) string {
		if m.file.run != nil {
			return runPrefix
		}
		return segPrefix
	}
	moving := slices.DeleteFunc(files, func(m misplaced) bool { return !move(m.file, fileName(prefix(m), s.newFileID())) })
	for _, m := range moving {
		move(m.file, m.want)
	}
}
