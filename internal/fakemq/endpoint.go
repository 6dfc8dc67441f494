package fakemq

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
)

const acceptPause = 10 * time.Millisecond

// endpoint is one listening address with its connections and counters. It may be stopped and started
// again; the port it got the first time stays its own.
type endpoint struct {
	cluster *Cluster
	broker  string // name of the broker; "" for a name server
	version int32
	log     *slog.Logger
	serve   func(*call) *codec.Command // nil: answered later, or never
	gone    func(*conn)                // a connection has ended

	mu       sync.Mutex
	addr     string
	listener net.Listener // nil while stopped
	conns    map[*conn]bool
	counts   map[int32]int64
	wg       sync.WaitGroup
}

func (e *endpoint) start() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		return fmt.Errorf("fakemq: listen on %s: %w; choose another address", e.addr, err)
	}
	e.addr = l.Addr().String()
	e.listener = l
	e.conns = make(map[*conn]bool)
	if e.counts == nil {
		e.counts = make(map[int32]int64)
	}
	e.wg.Go(func() { e.accept(l) })
	return nil
}

// stop closes the port and all connections, and returns when their goroutines have ended.
func (e *endpoint) stop() {
	e.mu.Lock()
	if e.listener != nil {
		_ = e.listener.Close()
		e.listener = nil
	}
	for c := range e.conns {
		c.close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

func (e *endpoint) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the peer was quicker
			e.log.Warn("accept failed", "err", err)
			time.Sleep(acceptPause)
			continue
		}
		c := newConn(e, nc)
		if !e.enrol(c, l) {
			c.close()
			return
		}
	}
}

// enrol starts the goroutines of c, unless l was stopped meanwhile.
func (e *endpoint) enrol(c *conn, l net.Listener) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listener != l {
		return false
	}
	e.conns[c] = true
	e.wg.Go(c.writeLoop)
	e.wg.Go(func() {
		c.readLoop()
		e.drop(c)
	})
	return true
}

func (e *endpoint) drop(c *conn) {
	c.close()
	e.mu.Lock()
	delete(e.conns, c)
	e.mu.Unlock()
	if e.gone != nil {
		e.gone(c)
	}
}

// count registers one more request of that code and returns how many there were.
func (e *endpoint) count(code int32) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[code]++
	return e.counts[code]
}

func (e *endpoint) requests(code int32) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[code]
}

func (e *endpoint) connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

func (e *endpoint) address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.addr
}
