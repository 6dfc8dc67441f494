package route

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delaygate/delaygate/internal/upstream"
)

// listeners opens the listener of each broker once and knows which are open.
type listeners struct {
	o FaceOptions

	mu         sync.Mutex
	opened     map[string]int    // real address -> port
	advertised map[int]string    // advertised port of an open listener -> real address
	failed     map[string]string // real address -> what was logged last
	bookFailed string            // what was logged last about the book
}

func newListeners(o FaceOptions) *listeners {
	return &listeners{o: o, opened: map[string]int{}, advertised: map[int]string{}, failed: map[string]string{}}
}

// learn enters brokers into the book.
func (l *listeners) learn(brokers []upstream.Broker) {
	err := l.o.Book.Learn(brokers)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.bookFailed = ""
		return
	}
	if l.bookFailed != err.Error() {
		l.bookFailed = err.Error()
		l.o.Log.Error("brokers cannot be entered into the address book", "err", err)
	}
}

// open returns the port of the open listener of a broker, and opens it when it is not.
func (l *listeners) open(addr string) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if port, ok := l.opened[addr]; ok {
		return port, nil
	}
	port, err := l.o.Book.Port(addr)
	if err == nil {
		err = l.listen(addr, port)
	}
	if err != nil {
		if l.failed[addr] != err.Error() {
			l.failed[addr] = err.Error()
			l.o.Log.Error("a broker has no listener, clients are not told of its routes; this is tried again", "broker", addr, "err", err)
		}
		return 0, err
	}
	delete(l.failed, addr)
	l.opened[addr] = port
	l.advertised[l.o.Advertise.port(port)] = addr
	l.o.Log.Info("listener open", "broker", addr, "port", port, "vip_port", port-vipDistance,
		"advertised_host", cmp.Or(l.o.Advertise.Host, "the address that a client reached"), "advertised_port", l.o.Advertise.port(port))
	return port, nil
}

func (l *listeners) listen(addr string, port int) error {
	public := l.o.Advertise.port(port)
	if other, twice := l.advertised[public]; twice {
		return fmt.Errorf("port %d would be advertised for %s and for %s: correct advertise.ports", public, other, addr)
	}
	if err := l.o.Opener.OpenBroker(addr, l.o.Host, port); err != nil {
		return fmt.Errorf("open ports %d and %d, which belong to this broker for ever: %w; stop what else uses them",
			port, port-vipDistance, err)
	}
	return nil
}

// unopened returns the brokers of the book that have no listener, sorted.
func (l *listeners) unopened() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.failed))
}

// openAll opens what the book holds and reports whether all of it is open.
func (l *listeners) openAll() bool {
	all := true
	for _, e := range l.o.Book.all() {
		if _, err := l.open(e.Addr); err != nil {
			all = false
		}
	}
	return all
}

// Run opens the listeners of the brokers in the book and in the view, follows the view and tries again
// what failed, until ctx ends. It closes nothing. Call it once.
func (f *Face) Run(ctx context.Context) {
	retry := time.NewTicker(f.o.Retry)
	defer retry.Stop()
	settled := false
	for {
		if !settled {
			settled = f.sync()
		}
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			settled = false
		case <-retry.C:
		}
	}
}

// sync reports whether every known broker has an open listener.
func (f *Face) sync() bool {
	f.listeners.learn(f.o.View.Brokers())
	all := f.listeners.openAll()
	for _, b := range f.o.View.Brokers() {
		if f.isNew(b) {
			return false
		}
	}
	return all
}

func compareBrokers(a, b upstream.Broker) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	if c := cmp.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	return strings.Compare(a.Addr, b.Addr)
}
