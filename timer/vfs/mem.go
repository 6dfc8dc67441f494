package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"sort"
	"strings"
	"sync"
)

const (
	sector = 512  // the unit in which unsynced bytes survive or vanish
	block  = 4096 // the unit in which space is given back
)

// errDead is what a file system answers after Kill.
var errDead = errors.New("vfs: the machine is off")

// Mem is a file system in memory that knows what is durable and what is not, so that tests can look at
// the disk as it may be after a crash.
type Mem struct {
	mu      sync.Mutex
	live    map[string]*node // what a running process sees
	durable map[string]*node // names that survive a power loss
	ops     []nameOp         // changes of names since the last SyncDir, oldest first
	locks   map[string]bool
	dead    bool

	capacity int64         // bytes, 0: no limit
	opened   map[*node]int // handles; a removed file takes its space until the last is closed
}

var _ FS = (*Mem)(nil)

// nameOp is a change of a folder that is not durable yet: from vanishes, to appears as node.
type nameOp struct {
	dir, from, to string
	node          *node
}

// node is a file: its bytes as a process sees them, as they are durable, and the difference.
type node struct {
	live    []byte
	durable []byte
	writes  []write        // since the last sync, oldest first
	holes   map[int64]bool // punched blocks, by number, as a process sees them
}

// write is unsynced: data at off, or for a truncation data == nil and the new size in off.
type write struct {
	off  int64
	data []byte
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{live: map[string]*node{}, durable: map[string]*node{}, locks: map[string]bool{}, opened: map[*node]int{}}
}

// SetCapacity makes the disk that large, in bytes; 0 is without limit. Files that do not fit any more stay. A write beyond it
// goes as far as there is room and fails with ENOSPC.
func (m *Mem) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = n
}

// Used returns what all files take, in bytes.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used()
}

func (m *Mem) used() int64 {
	n, seen := int64(0), make(map[*node]bool, len(m.live))
	add := func(x *node) {
		if !seen[x] {
			seen[x] = true
			n += x.space()
		}
	}
	for _, x := range m.live {
		add(x)
	}
	for x := range m.opened {
		add(x)
	}
	return n
}

// space is what a file takes of the disk.
func (n *node) space() int64 { return int64(len(n.live)) - n.punched() }

// unlimited is what a Mem without a capacity says it has.
const unlimited = 1 << 50

// Free returns what is left of the capacity.
func (m *Mem) Free(string) (avail, total int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.aliveLocked(); err != nil {
		return 0, 0, err
	}
	avail, total = m.room(), m.capacity
	if total == 0 {
		total = unlimited
	}
	return avail, total, nil
}

func (m *Mem) room() int64 {
	if m.capacity == 0 {
		return unlimited
	}
	return max(0, m.capacity-m.used())
}

// Kill makes every later operation fail, on open files too.
func (m *Mem) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

// AfterKill returns the disk as the next process finds it when only the process died: everything written is
// there, and what was not synced is still not synced. Locks are gone.
func (m *Mem) AfterKill() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.capacity = m.capacity
	seen := map[*node]*node{}
	for name, n := range m.live {
		c.live[name] = n.clone(seen)
	}
	for name, n := range m.durable {
		c.durable[name] = n.clone(seen)
	}
	for _, op := range m.ops {
		if op.node != nil {
			op.node = op.node.clone(seen)
		}
		c.ops = append(c.ops, op)
	}
	return c
}

// AfterPowerLoss returns the disk as it may be after the power failed: each unsynced sector and each unsynced change
// of a name is there with the given probability, independently. With probability 0 rng may be nil.
func (m *Mem) AfterPowerLoss(rng *rand.Rand, survive float64) *Mem {
	c := m.AfterKill()
	keep := func() bool { return survive > 0 && rng.Float64() < survive }
	for _, op := range c.ops {
		if keep() {
			c.durable = op.apply(c.durable)
		}
	}
	c.ops = nil
	c.live = map[string]*node{}
	names := make([]string, 0, len(c.durable))
	for name := range c.durable {
		names = append(names, name)
	}
	sort.Strings(names)
	done := map[*node]bool{}
	for _, name := range names {
		n := c.durable[name]
		c.live[name] = n
		if !done[n] {
			done[n] = true
			n.losePower(keep)
		}
	}
	return c
}

func (op nameOp) apply(names map[string]*node) map[string]*node {
	if op.from != "" {
		delete(names, op.from)
	}
	if op.to != "" {
		names[op.to] = op.node
	}
	return names
}

func (n *node) clone(seen map[*node]*node) *node {
	if c := seen[n]; c != nil {
		return c
	}
	c := &node{live: append([]byte(nil), n.live...), durable: append([]byte(nil), n.durable...)}
	c.writes = append(c.writes, n.writes...) // the data of a write never changes
	c.holes = maps.Clone(n.holes)
	seen[n] = c
	return c
}

func (n *node) losePower(keep func() bool) {
	for _, w := range n.writes {
		if w.data == nil {
			if keep() {
				n.durable = resize(n.durable, w.off)
			}
			continue
		}
		for at := int64(0); at < int64(len(w.data)); {
			end := min(int64(len(w.data)), (w.off+at)/sector*sector+sector-w.off)
			if keep() {
				n.durable = put(n.durable, w.data[at:end], w.off+at)
			}
			at = end
		}
	}
	n.writes = nil
	n.live = append([]byte(nil), n.durable...)
	maps.DeleteFunc(n.holes, func(at int64, _ bool) bool {
		return at*block >= int64(len(n.live)) || len(bytes.TrimLeft(n.live[at*block:min((at+1)*block, int64(len(n.live)))], "\x00")) > 0
	})
}

// punched returns how many bytes were given back.
func (n *node) punched() int64 { return int64(len(n.holes)) * block }

// fill takes the blocks under size bytes at off back from the disk.
func (n *node) fill(off, size int64) {
	for at := off / block; at*block < off+size && len(n.holes) > 0; at++ {
		delete(n.holes, at)
	}
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

func put(b, data []byte, off int64) []byte {
	if end := off + int64(len(data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[off:], data)
	return b
}

// MkdirAll does nothing: folders are implied by the files in them.
func (m *Mem) MkdirAll(string) error { return m.alive() }

func (m *Mem) alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.aliveLocked()
}

func (m *Mem) aliveLocked() error {
	if m.dead {
		return errDead
	}
	return nil
}

func (m *Mem) change(op nameOp) {
	m.ops = append(m.ops, op)
	op.apply(m.live)
}

// Create makes or empties a file.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.aliveLocked(); err != nil {
		return nil, err
	}
	if n := m.live[name]; n != nil {
		n.live, n.holes = nil, nil
		n.writes = append(n.writes, write{})
		return m.handle(n), nil
	}
	n := &node{}
	m.change(nameOp{dir: path.Dir(name), to: name, node: n})
	return m.handle(n), nil
}

// Open opens an existing file.
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.aliveLocked(); err != nil {
		return nil, err
	}
	n := m.live[name]
	if n == nil {
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return m.handle(n), nil
}

func (m *Mem) handle(n *node) *memFile {
	m.opened[n]++
	return &memFile{m: m, n: n}
}

// Rename replaces newpath by oldpath.
func (m *Mem) Rename(oldpath, newpath string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.aliveLocked(); err != nil {
		return err
	}
	n := m.live[oldpath]
	if n == nil {
		return fmt.Errorf("rename %s: %w", oldpath, fs.ErrNotExist)
	}
	m.change(nameOp{dir: path.Dir(oldpath), from: oldpath, to: newpath, node: n})
	return nil
}

// Remove unlinks a file.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.aliveLocked(); err != nil {
		return err
	}
	if m.live[name] == nil {
		return fmt.Errorf("remove %s: %w", name, fs.ErrNotExist)
	}
	m.change(nameOp{dir: path.Dir(name), from: name})
	return nil
}

// ReadDir lists the files of a folder.
func (m *Mem) ReadDir(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.aliveLocked(); err != nil {
		return nil, err
	}
	var names []string
	for name := range m.live {
		if rest, ok := strings.CutPrefix(name, dir+"/"); ok && !strings.Contains(rest, "/") {
			names = append(names, rest)
		}
	}
	sort.Strings(names)
	return names, nil
}

// SyncDir makes the names in a folder durable.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.aliveLocked(); err != nil {
		return err
	}
	var rest []nameOp
	for _, op := range m.ops {
		if op.dir == dir {
			op.apply(m.durable)
		} else {
			rest = append(rest, op)
		}
	}
	m.ops = rest
	return nil
}

// Lock takes a lock that lives in this Mem only.
func (m *Mem) Lock(name string) (Unlocker, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.aliveLocked(); err != nil {
		return nil, err
	}
	if m.locks[name] {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	m.locks[name] = true
	return memLock{m, name}, nil
}

type memLock struct {
	m    *Mem
	name string
}

func (l memLock) Unlock() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}
