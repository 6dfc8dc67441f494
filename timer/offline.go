package timer

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// ErrNoStore is what the offline tools return for a folder without anything of a store.
var ErrNoStore = errors.New("timer: there is no store in this folder")

// Problem is damage that an offline tool found.
type Problem struct {
	File   string // its name in the folder
	Offset int64  // bytes; where in the file
	What   string
	Detail string // "name=value" of what else is known: which entries, how many
}

func (p Problem) String() string {
	s := fmt.Sprintf("%s offset %d: %s", p.File, p.Offset, p.What)
	if p.Detail != "" {
		s += " (" + p.Detail + ")"
	}
	return s
}

// Summary is what an offline tool found all together.
type Summary struct {
	Segments int   // that are not sealed
	Runs     int   // sealed ones
	Pending  int64 // entries that fire
	Problems int   // damaged places and files
	Lost     int64 // entries that damage has taken, at most: some of them may have been delivered
	Evidence int   // files that were set aside as .broken, earlier ones included
}

// tool is an offline tool at work on a Store that runs no goroutines.
type tool struct {
	s      *Store
	rc     *recovery
	dry    bool // nothing is changed
	report func(Problem)
	sum    Summary
}

func (t *tool) readsOnly() bool { return t != nil && t.dry }

// openTool reads the folder as Open does. Close it.
//
// Errors: ErrLocked, ErrVersion, ErrNoStore, or what the file system said.
func openTool(fs FS, dir string, dry bool, report func(Problem)) (*tool, error) {
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("timer: %w", err)
	}
	if !anyOfStore(names) {
		return nil, fmt.Errorf("%w: %s", ErrNoStore, dir)
	}
	o, err := Options{Dir: dir, FS: fs}.withDefaults()
	if err != nil {
		return nil, err
	}
	s := newStore(o)
	t := &tool{s: s, dry: dry, report: report}
	s.tool = t
	close(s.stop) // nothing is tried again and again
	if s.unlock, err = fs.Lock(s.path(lockName)); err != nil {
		return nil, fmt.Errorf("timer: %s: %w: stop it, or work on a copy of the folder", dir, err)
	}
	t.rc = newRecovery(s)
	if err = t.rc.list(); err == nil {
		err = t.rc.read()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("timer: %s: %w", dir, err), t.close())
	}
	return t, nil
}

// anyOfStore says whether one of the names is of a file that a store makes.
func anyOfStore(names []string) bool {
	for _, n := range names {
		if _, ok := anyID(n); ok || strings.TrimSuffix(n, brokenSuffix) == manifestName {
			return true
		}
	}
	return false
}

func (t *tool) close() error { return t.s.closeFiles() }

// problem is told of damage instead of the log.
func (t *tool) problem(what, file string, args []any) {
	p := Problem{File: path.Base(file), What: what}
	var detail []string
	for i := 0; i+1 < len(args); i += 2 {
		switch v := args[i+1].(type) {
		case int64:
			if args[i] == "offset" {
				p.Offset = v
				continue
			}
		case int:
			if args[i] == "offset" {
				p.Offset = int64(v)
				continue
			}
		}
		detail = append(detail, fmt.Sprintf("%v=%v", args[i], args[i+1]))
	}
	p.Detail = strings.Join(detail, " ")
	t.sum.Problems++
	t.report(p)
}

// adopt takes the place of Store.countRun.
func (t *tool) adopt(r *run, found []*mendReport) {
	r.mend.report = t.mended
	for _, m := range found {
		t.mended(r, m)
	}
}

// mended takes the place of Store.mended.
func (t *tool) mended(r *run, m *mendReport) {
	r.accept(m)
	t.s.tellMended(r, m)
}

// check looks at everything in a run that matters for what is pending in it. It says whether all of it is sound.
func (t *tool) check(r *run) (sound bool, err error) {
	before := t.sum.Problems
	lost, err := t.rc.siftRecords(r)
	if err != nil {
		return false, fmt.Errorf("timer: %s: %w", r.path, err)
	}
	t.s.tellLost(r.path, lost)
	b := make([]byte, pageBytes)
	for page := range r.keyPages() {
		n, err := r.readKeyPage(page, b)
		if err == nil && keyAt(b, n-1).ord >= uint32(r.entries) {
			err = damagedAt("a key page", r.keysOff+int64(page)*pageBytes)
		}
		if err != nil {
			t.s.corrupt("a key page is damaged: searches by key read all records of the run", r.path, "offset", r.keysOff+int64(page)*pageBytes, "err", err)
		}
	}
	return t.sum.Problems == before, nil
}

// summary completes the summary.
func (t *tool) summary() (Summary, error) {
	s := t.s
	t.sum.Segments, t.sum.Runs, t.sum.Lost = len(s.segs), len(s.runs), s.lost
	for _, g := range s.segs {
		for _, e := range g.entries {
			if !e.done {
				t.sum.Pending++
			}
		}
	}
	for _, r := range s.runs {
		t.sum.Pending += int64(r.pending)
	}
	names, err := s.o.FS.ReadDir(s.o.Dir)
	for _, n := range names {
		if strings.HasSuffix(n, brokenSuffix) {
			t.sum.Evidence++
		}
	}
	return t.sum, err
}

// Verify reads everything in the data folder that matters for what is pending, and reports what is damaged. It changes nothing;
// pass vfs.ReadOnly to be sure. It holds the lock of the folder. RAM: what Open takes.
//
// Errors: ErrLocked while a store uses the folder, ErrVersion, ErrNoStore, or what the file system said. Damage is none.
func Verify(fs FS, dir string, report func(Problem)) (Summary, error) {
	t, err := openTool(fs, dir, true, report)
	if err != nil {
		return Summary{}, err
	}
	for _, r := range t.s.runs {
		if _, err := t.check(r); err != nil {
			return t.sum, errors.Join(err, t.close())
		}
	}
	sum, err := t.summary()
	return sum, errors.Join(err, t.close())
}
