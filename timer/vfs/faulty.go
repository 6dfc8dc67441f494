package vfs

import "sync"

// Op is a kind of operation that a Faulty file system asks its hook about.
type Op int

// The operations.
const (
	OpCreate Op = iota
	OpOpen
	OpRename
	OpRemove
	OpReadDir
	OpSyncDir
	OpRead
	OpWrite
	OpTruncate
	OpSync
	OpFree
	OpAllocate
	OpPunch
)

// Fault is what happens instead of an operation.
type Fault struct {
	Err   error
	Short bool // OpWrite: the first half is written before the error
	Skip  bool // OpSync, OpSyncDir, OpRename, OpRemove, OpPunch: the operation is left out and success is reported
}

// Hook decides about an operation: nil lets it pass. Path is the new name for OpRename and the name at
// the time of opening for operations on files. It may be called from several goroutines at
// once, and may block.
type Hook func(op Op, path string) *Fault

// Faulty injects errors into another file system.
type Faulty struct {
	FS
	mu   sync.Mutex
	hook Hook
}

// NewFaulty wraps a file system; nothing fails until Set.
func NewFaulty(fs FS) *Faulty { return &Faulty{FS: fs} }

// Set replaces the hook; nil lets everything pass.
func (f *Faulty) Set(h Hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = h
}

func (f *Faulty) ask(op Op, path string) *Fault {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op, path)
}

func (f *Faulty) do(op Op, path string, run func() error) error {
	switch x := f.ask(op, path); {
	case x == nil:
		return run()
	case x.Skip:
		return nil
	default:
		return x.Err
	}
}

func (f *Faulty) open(op Op, path string, open func(string) (File, error)) (File, error) {
	if x := f.ask(op, path); x != nil {
		return nil, x.Err
	}
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f, path}, nil
}

// Create makes or empties a file.
func (f *Faulty) Create(path string) (File, error) { return f.open(OpCreate, path, f.FS.Create) }

// Open opens an existing file.
func (f *Faulty) Open(path string) (File, error) { return f.open(OpOpen, path, f.FS.Open) }

// Rename replaces newpath by oldpath.
func (f *Faulty) Rename(oldpath, newpath string) error {
	return f.do(OpRename, newpath, func() error { return f.FS.Rename(oldpath, newpath) })
}

// Remove unlinks a file.
func (f *Faulty) Remove(path string) error {
	return f.do(OpRemove, path, func() error { return f.FS.Remove(path) })
}

// SyncDir makes the names in a folder durable.
func (f *Faulty) SyncDir(dir string) error {
	return f.do(OpSyncDir, dir, func() error { return f.FS.SyncDir(dir) })
}

// ReadDir lists the files of a folder.
func (f *Faulty) ReadDir(dir string) (names []string, err error) {
	err = f.do(OpReadDir, dir, func() error { names, err = f.FS.ReadDir(dir); return err })
	return names, err
}

// Free returns the free space.
func (f *Faulty) Free(dir string) (avail, total int64, err error) {
	err = f.do(OpFree, dir, func() error { avail, total, err = f.FS.Free(dir); return err })
	return avail, total, err
}

type faultyFile struct {
	File
	fs   *Faulty
	path string
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if x := f.fs.ask(OpRead, f.path); x != nil {
		return 0, x.Err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	x := f.fs.ask(OpWrite, f.path)
	if x == nil {
		return f.File.WriteAt(p, off)
	}
	if !x.Short {
		return 0, x.Err
	}
	n, err := f.File.WriteAt(p[:len(p)/2], off)
	if err != nil {
		return n, err
	}
	return n, x.Err
}

func (f *faultyFile) Truncate(size int64) error {
	return f.fs.do(OpTruncate, f.path, func() error { return f.File.Truncate(size) })
}

func (f *faultyFile) Allocate(size int64) error {
	return f.fs.do(OpAllocate, f.path, func() error { return f.File.Allocate(size) })
}

func (f *faultyFile) Sync(data bool) error {
	x := f.fs.ask(OpSync, f.path)
	if x == nil {
		return f.File.Sync(data)
	}
	if x.Skip {
		return nil
	}
	if m, ok := f.File.(*memFile); ok {
		m.failSync()
	}
	return x.Err
}

func (f *faultyFile) Punch(off, n int64) error {
	return f.fs.do(OpPunch, f.path, func() error { return f.File.Punch(off, n) })
}
