package timer

import (
	"errors"
	"fmt"
	"slices"
)

// Repair makes a data folder sound: what Open does, and all that is damaged is written anew. What is replaced stays as .broken. It
// holds the lock of the folder.
//
// Errors: as of Verify. After an error the folder may be repaired in part; nothing that was there is lost by that.
func Repair(fs FS, dir string, report func(Problem)) (Summary, error) {
	t, err := openTool(fs, dir, false, report)
	if err != nil {
		return Summary{}, err
	}
	err = t.repair()
	sum, serr := t.summary()
	return sum, errors.Join(err, serr, t.close())
}

func (t *tool) repair() error {
	s := t.s
	if err := t.rc.commit(); err != nil {
		return fmt.Errorf("timer: repair %s: %w", s.o.Dir, err)
	}
	for len(s.segs) > 0 {
		if err := s.seal(s.segs[0]); err != nil {
			return t.cause(err)
		}
	}
	for _, r := range slices.Clone(s.runs) {
		sound, err := t.check(r)
		switch {
		case err != nil:
			return err
		case r.pending == 0:
			err = s.dropRun(r)
		case !sound || r.rotten:
			err = t.renew(r)
		}
		if err != nil {
			return t.cause(err)
		}
	}
	s.emptyTrash()
	return s.o.FS.SyncDir(s.o.Dir)
}

// renew writes what is pending in a run to a new one, in the place of the old one.
func (t *tool) renew(r *run) error {
	s := t.s
	j := s.salvageJob(r)
	s.mu.Lock()
	r.rotten = true
	s.mu.Unlock()
	var err error
	if j.out, err = j.run(); err != nil {
		return err
	}
	return s.installMerge(j)
}

// cause returns what is behind an ErrClosed of background work.
func (t *tool) cause(err error) error {
	select {
	case why := <-t.s.troubles:
		return fmt.Errorf("timer: repair %s: %w", t.s.o.Dir, why)
	default:
		return fmt.Errorf("timer: repair %s: %w", t.s.o.Dir, err)
	}
}
