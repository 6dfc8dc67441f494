package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadOnly is the operating system's file system, of which nothing is changed: what would change something fails with EROFS, and
// syncing does nothing. Lock shares the lock with other readers, and is not refused for a file that is not there.
type ReadOnly struct{ OS }

var _ FS = ReadOnly{}

// MkdirAll fails.
func (ReadOnly) MkdirAll(dir string) error { return denied("mkdir", dir) }

// Create fails.
func (ReadOnly) Create(path string) (File, error) { return nil, denied("create", path) }

// Rename fails.
func (ReadOnly) Rename(_, newpath string) error { return denied("rename", newpath) }

// Remove fails.
func (ReadOnly) Remove(path string) error { return denied("remove", path) }

// SyncDir does nothing.
func (ReadOnly) SyncDir(string) error { return nil }

// Open opens an existing file for reading.
func (ReadOnly) Open(path string) (File, error) {
	f, err := openOS(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return readOnlyFile{f}, nil
}

// Lock takes a shared flock on path.
func (ReadOnly) Lock(path string) (Unlocker, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return noLock{}, nil
	}
	if err != nil {
		return nil, err
	}
	return flock(f, unix.LOCK_SH)
}

type noLock struct{}

func (noLock) Unlock() error { return nil }

type readOnlyFile struct{ File }

func (readOnlyFile) Sync(bool) error { return nil }

func denied(what, path string) error { return fmt.Errorf("%s %s: %w", what, path, syscall.EROFS) }
