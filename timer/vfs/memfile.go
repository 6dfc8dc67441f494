package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"syscall"
)

type memFile struct {
	m      *Mem
	n      *node
	closed bool
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.aliveLocked(); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.live)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.live[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.aliveLocked(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	return f.write(p, off)
}

// write writes as much of p as there is room for.
func (f *memFile) write(p []byte, off int64) (int, error) {
	n, err := len(p), error(nil)
	if grows := off + int64(n) - int64(len(f.n.live)); grows > 0 {
		if room := f.m.room(); grows > room {
			n, err = max(0, int(int64(len(f.n.live))+room-off)), fmt.Errorf("write: %w", syscall.ENOSPC)
		}
	}
	if n > 0 {
		f.n.live = put(f.n.live, p[:n], off)
		f.n.fill(off, int64(n))
		f.n.writes = append(f.n.writes, write{off: off, data: append([]byte(nil), p[:n]...)})
	}
	return n, err
}

// Allocate fills holes and writes zeros behind the end, or does nothing if they do not fit.
func (f *memFile) Allocate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.aliveLocked(); err != nil {
		return err
	}
	grows, holes := max(0, size-int64(len(f.n.live))), int64(0)
	for at := range f.n.holes {
		if at*block < size {
			holes += block
		}
	}
	if grows+holes > f.m.room() {
		return fmt.Errorf("allocate: %w", syscall.ENOSPC)
	}
	f.n.fill(0, size)
	if grows > 0 {
		f.n.live = resize(f.n.live, size)
		f.n.writes = append(f.n.writes, write{off: size})
	}
	return nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.aliveLocked(); err != nil {
		return err
	}
	f.n.live = resize(f.n.live, size)
	maps.DeleteFunc(f.n.holes, func(at int64, _ bool) bool { return at*block >= size })
	f.n.writes = append(f.n.writes, write{off: size})
	return nil
}

func (f *memFile) Sync(bool) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.aliveLocked(); err != nil {
		return err
	}
	for _, w := range f.n.writes {
		if w.data == nil {
			f.n.durable = resize(f.n.durable, w.off)
		} else {
			f.n.durable = put(f.n.durable, w.data, w.off)
		}
	}
	f.n.writes = nil
	return nil
}

// failSync is what a failed fsync leaves on Linux: the pages read back as written and count as clean, so no later
// sync writes them.
func (f *memFile) failSync() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.writes = nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.live)), f.m.aliveLocked()
}

func (f *memFile) Punch(off, n int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.aliveLocked(); err != nil {
		return err
	}
	end := min(off+n, int64(len(f.n.live)))
	if off >= end {
		return nil
	}
	zeros := make([]byte, end-off)
	f.n.live = put(f.n.live, zeros, off)
	f.n.writes = append(f.n.writes, write{off: off, data: zeros})
	if f.n.holes == nil {
		f.n.holes = map[int64]bool{}
	}
	for at := (off + block - 1) / block; (at+1)*block <= end; at++ {
		f.n.holes[at] = true
	}
	return nil
}

func (f *memFile) Occupied() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return (int64(len(f.n.live))+block-1)/block*block - f.n.punched(), f.m.aliveLocked()
}

func (f *memFile) Data(off int64) (from, to int64, err error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.aliveLocked(); err != nil {
		return 0, 0, err
	}
	size := int64(len(f.n.live))
	for from = off; from < size && f.n.holes[from/block]; {
		from = (from/block + 1) * block
	}
	if from >= size {
		return 0, 0, io.EOF
	}
	for to = from; to < size && !f.n.holes[to/block]; {
		to = (to/block + 1) * block
	}
	return from, min(to, size), nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	if f.m.opened[f.n]--; f.m.opened[f.n] == 0 {
		delete(f.m.opened, f.n)
	}
	return nil
}
