// Package vfs is the small file system that the timer store runs on: the operating system (OS), memory with
// simulated power loss (Mem), and a wrapper that injects errors (Faulty).
//
// Durability follows POSIX at its worst: bytes are safe after File.Sync, a name (made, renamed or
// removed) is safe after SyncDir of its folder, and nothing is safe because of anything else.
package vfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// ErrLocked is returned by FS.Lock for a file that somebody else holds.
var ErrLocked = errors.New("the folder is in use by another process")

// FS is a file system. Paths are slash separated. All methods may be called from any goroutine.
type FS interface {
	MkdirAll(dir string) error
	Create(path string) (File, error)     // for reading and writing; an existing file is emptied
	Open(path string) (File, error)       // for reading and writing; fs.ErrNotExist if absent
	Rename(oldpath, newpath string) error // replaces newpath
	Remove(path string) error
	ReadDir(dir string) ([]string, error) // base names of the files, sorted
	SyncDir(dir string) error             // makes creations, renames and removals in dir durable
	Lock(path string) (Unlocker, error)   // an exclusive advisory lock, gone when the process dies

	// Free returns how many bytes of the disk that dir lies on may still be used by this process, and its size.
	Free(dir string) (avail, total int64, err error)
}

// File is an open file. It stays readable after it was removed or renamed.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Allocate(size int64) error // makes the file at least size bytes long, zeros at the end, and takes all of them from the disk now, holes too
	Sync(data bool) error      // data: contents and length only (fdatasync)
	Size() (int64, error)
	// Punch gives the space of n bytes at off back to the disk, as far as whole blocks lie in there; they read as zeros from then on,
	// and the size stays. Like a write it is durable after Sync only. errors.ErrUnsupported: this file system cannot.
	Punch(off, n int64) error
	Occupied() (int64, error) // bytes on the disk, without holes
	// Data returns the first stretch at or past off that is not a hole; io.EOF if there is none.
	Data(off int64) (from, to int64, err error)
	Close() error
}

// Unlocker gives a lock back.
type Unlocker interface{ Unlock() error }

// IsNotExist tells a missing file from other errors.
func IsNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// IsFull tells a full disk (or an exhausted quota) from other errors.
func IsFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

const zeroChunk = 1 << 20

// ZeroFill writes zeros from off up to size, so that later writes change no length and need no allocation.
func ZeroFill(f File, off, size int64) error {
	zeros := make([]byte, max(0, min(size-off, zeroChunk)))
	for ; off < size; off += int64(len(zeros)) {
		zeros = zeros[:min(int64(len(zeros)), size-off)]
		if _, err := f.WriteAt(zeros, off); err != nil {
			return err
		}
	}
	return nil
}
