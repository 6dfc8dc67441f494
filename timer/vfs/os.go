package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
type OS struct{}

var _ FS = OS{}

// MkdirAll makes a folder and its parents, readable by the owner only.
func (OS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

// Create makes or empties a file.
func (OS) Create(path string) (File, error) {
	return openOS(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Open opens an existing file.
func (OS) Open(path string) (File, error) { return openOS(path, os.O_RDWR) }

func openOS(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Rename replaces newpath by oldpath.
func (OS) Rename(oldpath, newpath string) error { return os.Rename(oldpath, newpath) }

// Remove unlinks a file.
func (OS) Remove(path string) error { return os.Remove(path) }

// ReadDir lists the files of a folder.
func (OS) ReadDir(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list))
	for _, e := range list {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// SyncDir makes the names in a folder durable.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock takes an flock on path, which is made if absent, and writes the id of the process into it.
func (OS) Lock(path string) (Unlocker, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l, err := flock(f, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	// Only to tell others who has it: nothing depends on it.
	_ = f.Truncate(0)
	_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	return l, nil
}

// flock locks an open file, or closes it and says who has the lock.
func flock(f *os.File, how int) (Unlocker, error) {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if err == nil {
		return osLock{f}, nil
	}
	defer f.Close()
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	var pid [20]byte
	n, _ := f.ReadAt(pid[:], 0)
	if who, err := strconv.Atoi(strings.TrimSpace(string(pid[:n]))); err == nil {
		return nil, fmt.Errorf("lock %s: %w (process %d)", f.Name(), ErrLocked, who)
	}
	return nil, fmt.Errorf("lock %s: %w", f.Name(), ErrLocked)
}

type osLock struct{ f *os.File }

func (l osLock) Unlock() error { return l.f.Close() }

// Free asks the system; what is set aside for the superuser does not count.
func (OS) Free(dir string) (avail, total int64, err error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Frsize, int64(st.Blocks) * st.Frsize, nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Allocate uses fallocate where the file system has it and writes zeros where not.
func (f osFile) Allocate(size int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	have, err := f.Size()
	if err != nil {
		return err
	}
	return ZeroFill(f, have, size)
}

func (f osFile) Sync(data bool) error {
	if !data {
		return f.File.Sync()
	}
	return retry(func() error { return unix.Fdatasync(int(f.Fd())) })
}

// retry repeats a system call that a signal interrupts.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (f osFile) Punch(off, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

const statBlock = 512 // the unit of st_blocks, whatever the file system

func (f osFile) Occupied() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Blocks * statBlock, nil
}

func (f osFile) Data(off int64) (from, to int64, err error) {
	from, err = unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return 0, 0, io.EOF
	case errors.Is(err, unix.EINVAL): // the file system knows no holes
		to, err = f.Size()
		return off, to, err
	case err != nil:
		return 0, 0, err
	}
	to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
	return from, to, err
}
