package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/delaygate/delaygate/timer"
	"github.com/delaygate/delaygate/timer/vfs"
)

// storeCmd is what works on the data folder of a proxy that does not run. Its commands exit with 0 when all is well, 1 when what
// they read is damaged, 2 when they could not work.
type storeCmd struct {
	Verify verifyCmd `cmd:"" help:"Read everything that is pending in a data folder and report damage. Changes nothing."`
	Dump   dumpCmd   `cmd:"" help:"Write each pending message of a data folder as a line of JSON, by due time. Changes nothing."`
	Repair repairCmd `cmd:"" help:"Make a damaged data folder sound; what is replaced stays as *.broken."`
	Export exportCmd `cmd:"" help:"Write what is pending in a data folder as a stream that import reads."`
	Import importCmd `cmd:"" help:"Put what is in an exported stream into a data folder."`
}

// exitError is an error with an exit code of its own. Without err nothing is printed: the output says it.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

const (
	exitDamaged = 1
	exitCannot  = 2
)

func cannot(err error) error { return &exitError{exitCannot, err} }

// storeDir returns the folder of the store: dir itself, or the one in a proxy's data folder. It must have files of a store.
func storeDir(dir string) (string, error) {
	if d, ok := findStore(dir); ok {
		return d, nil
	}
	return "", cannot(fmt.Errorf("%s: there is nothing of a timer store; name the folder that the proxy was started with, --data", dir))
}

func findStore(dir string) (string, bool) {
	for _, d := range []string{filepath.Join(dir, storeFolder), dir} {
		for _, files := range []string{"MANIFEST", "seg-*", "run-*"} {
			if found, err := filepath.Glob(filepath.Join(d, files)); err == nil && len(found) > 0 {
				return d, true
			}
		}
	}
	return "", false
}

// withStore opens the store in dir, which nothing fires from, and closes it after work.
func withStore(dir string, p *process, work func(s *timer.Store) error) error {
	o := timer.DefaultOptions()
	o.Dir = dir
	o.Now = func() int64 { return wallClock().UnixMilli() }
	o.Log = slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := timer.Open(o)
	if errors.Is(err, timer.ErrLocked) {
		err = fmt.Errorf("%w: stop its proxy first", err)
	}
	if err != nil {
		return cannot(err)
	}
	err = work(s)
	if closed := s.Close(); closed != nil {
		err = errors.Join(err, cannot(closed))
	}
	return err
}

type exportCmd struct {
	Dir    string `arg:"" help:"The data folder; its proxy must not run." placeholder:"DIR" type:"existingdir"`
	Output string `short:"o" help:"Write to a new file instead of standard output." placeholder:"FILE"`
}

// Run exports. What is damaged is left out; the stream is sound all the same, and kept.
func (c *exportCmd) Run(p *process) error {
	dir, err := storeDir(c.Dir)
	if err != nil {
		return err
	}
	if c.Output == "" {
		if f, ok := p.stdout.(*os.File); ok && isTerminal(f) {
			return cannot(errors.New("an export is not for the screen: name a file with -o, or send standard output elsewhere"))
		}
		return export(p, dir, p.stdout)
	}
	f, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return cannot(err)
	}
	err = export(p, dir, f)
	if isDamage(err) {
		return errors.Join(err, finish(f))
	}
	if err == nil {
		err = finish(f)
	}
	if err != nil {
		f.Close()
		return cannot(errors.Join(err, os.Remove(c.Output)))
	}
	return nil
}

// finish closes a file so that it is there after a power loss: what it was exported from may be deleted next.
func finish(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return vfs.OS{}.SyncDir(filepath.Dir(f.Name()))
}

func isDamage(err error) bool {
	e := (*exitError)(nil)
	return errors.As(err, &e) && e.code == exitDamaged
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

func export(p *process, dir string, w io.Writer) error {
	return withStore(dir, p, func(s *timer.Store) error {
		did, err := s.Export(p.ctx, w, timer.Filter{})
		if err != nil {
			return cannot(err)
		}
		fmt.Fprintf(p.stderr, "%d messages exported, %d bytes\n", did.Entries, did.Bytes)
		if n := max(did.Damaged, s.Stats().Lost); n > 0 { // met by the export, or by what else reads an opened store
			return &exitError{exitDamaged, fmt.Errorf("%d messages are damaged on the disk and not in the export", n)}
		}
		return nil
	})
}

type importCmd struct {
	Dir  string `arg:"" help:"The data folder, made if it is not there; its proxy must not run." placeholder:"DIR"`
	File string `arg:"" optional:"" help:"The exported stream; standard input if it is left out." placeholder:"FILE" type:"existingfile"`
}

func (c *importCmd) Run(p *process) error {
	r := p.stdin
	if f, ok := r.(*os.File); ok && c.File == "" && isTerminal(f) {
		return cannot(errors.New("name the file that was exported, or send it to standard input"))
	}
	if c.File != "" {
		f, err := os.Open(c.File)
		if err != nil {
			return cannot(err)
		}
		defer f.Close()
		r = f
	}
	dir, ok := findStore(c.Dir)
	if !ok {
		dir = filepath.Join(c.Dir, storeFolder)
	}
	return withStore(dir, p, func(s *timer.Store) error { return importInto(p.ctx, p, s, r) })
}

func importInto(ctx context.Context, p *process, s *timer.Store, r io.Reader) error {
	did, err := s.Import(ctx, r)
	switch {
	case errors.Is(err, timer.ErrDamagedExport):
		return &exitError{exitDamaged, err}
	case err != nil:
		return cannot(err)
	}
	fmt.Fprintf(p.stderr, "%d messages imported, %d were pending already\n", did.Taken, did.Skipped)
	return nil
}
