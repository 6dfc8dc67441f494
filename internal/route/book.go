package route

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	portStep = 10
	// vipDistance is how far below a broker's port old Java clients look for its VIP channel.
	vipDistance = 2
	minPort     = vipDistance + 1
	maxPort     = 65535
)

// ErrRangeFull is returned when every port of the range stands for a broker already.
var ErrRangeFull = errors.New("no port is left for another broker")

// Book is the address book: real broker address to listener port. All methods may be called from any
// goroutine.
type Book struct {
	fs          vfs.FS
	path        string
	first, last int
	usable      func(port int) bool

	mu      sync.Mutex
	entries []entry // in the order they were assigned
	index   map[string]int
}

// entry is one line of the book.
type entry struct {
	Addr    string `json:"addr"`
	Port    int    `json:"port"`
	Name    string `json:"name,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	ID      int64  `json:"id"`
}

func (e entry) broker() upstream.Broker {
	return upstream.Broker{Name: e.Name, Cluster: e.Cluster, ID: e.ID, Addr: e.Addr}
}

// OpenBook reads the book at path, or begins a new one when there is no such file. New brokers get the
// ports first, first+10, ... up to last; brokers of the book keep theirs, even outside the range. A file
// that is damaged, not an address book or inconsistent is an error that says what to do.
func OpenBook(path string, first, last int) (*Book, error) {
	return OpenBookFS(vfs.OS{}, path, first, last)
}

// OpenBookFS is OpenBook on another file system.
func OpenBookFS(fs vfs.FS, path string, first, last int) (*Book, error) {
	if first < minPort || last > maxPort || first > last {
		return nil, fmt.Errorf("address book: the port range %d-%d is not within %d-%d; choose one like 20000-29990",
			first, last, minPort, maxPort)
	}
	if err := fs.MkdirAll(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("address book: make the folder of %s: %w", path, err)
	}
	entries, err := loadBook(fs, path)
	if err != nil {
		return nil, err
	}
	b := &Book{fs: fs, path: path, first: first, last: last, usable: func(int) bool { return true }}
	b.set(entries)
	return b, nil
}

// Avoid makes the book pass over ports that usable denies, or whose VIP port it denies, when it assigns one:
// those another program listens on. Ports once assigned stay. Call it before the book is used.
func (b *Book) Avoid(usable func(port int) bool) { b.usable = usable }

// Port returns the listener port of a real broker address. An address that is not in the book gets the
// next free port, which is on disk when Port returns. Errors: ErrRangeFull, or the file cannot be written.
func (b *Book) Port(addr string) (int, error) {
	if port, ok := b.Lookup(addr); ok {
		return port, nil
	}
	if err := b.Learn([]upstream.Broker{{Addr: addr}}); err != nil {
		return 0, err
	}
	port, _ := b.Lookup(addr)
	return port, nil
}

// Lookup returns the port of an address that is in the book.
func (b *Book) Lookup(addr string) (port int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.index[addr]
	if !ok {
		return 0, false
	}
	return b.entries[i].Port, true
}

// Learn enters brokers: new ones get ports in the order given, of known ones the name, cluster and id are
// brought up to date. All of it is on disk when Learn returns nil. On ErrRangeFull the brokers that found
// a port are entered; when the file cannot be written nothing has changed.
func (b *Book) Learn(brokers []upstream.Broker) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := append([]entry(nil), b.entries...)
	index := indexOf(next)
	var full error
	changed := false
	for _, br := range brokers {
		e := entry{Addr: br.Addr, Name: br.Name, Cluster: br.Cluster, ID: br.ID}
		if i, known := index[br.Addr]; known {
			e.Port = next[i].Port
			if br.Name != "" && next[i] != e {
				next[i], changed = e, true
			}
			continue
		}
		if br.Addr == "" {
			continue
		}
		port, ok := b.freePort(next)
		if !ok {
			full = errors.Join(full, b.fullError(br))
			continue
		}
		e.Port = port
		index[e.Addr] = len(next)
		next, changed = append(next, e), true
	}
	if changed {
		if err := saveBook(b.fs, b.path, next); err != nil {
			return err
		}
		b.set(next)
	}
	return full
}

// Brokers returns the brokers of the book whose name is known, in the order their ports were assigned.
func (b *Book) Brokers() []upstream.Broker {
	var out []upstream.Broker
	for _, e := range b.all() {
		if e.Name != "" {
			out = append(out, e.broker())
		}
	}
	return out
}

func (b *Book) all() []entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]entry(nil), b.entries...)
}

func (b *Book) set(entries []entry) {
	b.entries, b.index = entries, indexOf(entries)
}

func indexOf(entries []entry) map[string]int {
	index := make(map[string]int, len(entries))
	for i, e := range entries {
		index[e.Addr] = i
	}
	return index
}

// freePort returns the lowest usable port of the range that no entry is in the way of. Entries from
// another range may sit off this one's steps.
func (b *Book) freePort(entries []entry) (int, bool) {
	taken := make(map[int]bool, 3*len(entries))
	for _, e := range entries {
		taken[e.Port], taken[e.Port-vipDistance], taken[e.Port+vipDistance] = true, true, true
	}
	for p := b.first; p <= b.last; p += portStep {
		if !taken[p] && b.usable(p) && b.usable(p-vipDistance) {
			return p, true
		}
	}
	return 0, false
}

func (b *Book) fullError(br upstream.Broker) error {
	return fmt.Errorf("%w (%s %s): all of %d-%d is in use, one port every %d; widen broker_ports, "+
		"or stop the proxy and remove brokers that are gone for good from %s",
		ErrRangeFull, br.Name, br.Addr, b.first, b.last, portStep, b.path)
}
