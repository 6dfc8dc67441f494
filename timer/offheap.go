package timer

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// offHeap returns size bytes of zeros that the garbage collector does not know, and what gives them back. A whole segment on
// the heap would let the collector allow as much garbage again.
func offHeap(size int64) (b []byte, free func(), err error) {
	b, err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes of memory: %w", size, err)
	}
	return b, func() { _ = unix.Munmap(b) }, nil
}

// readSegment returns what a segment holds in [from, to), and what gives the memory back.
func readSegment(g *segment, from, to int64) (b []byte, free func(), err error) {
	b, free, err = offHeap(to - from)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", g.path, err)
	}
	if n, err := g.f.ReadAt(b, from); n < len(b) {
		free()
		return nil, nil, fmt.Errorf("read %d bytes at %d of %s: %w", len(b), from, g.path, err)
	}
	return b, free, nil
}
