package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// maxTries is how many connections a request is given before its failure is reported.
const maxTries = 3

// A call is idle while no connection holds it, queued on one, or written: claimed by that one's writer.
type callState int

const (
	idle callState = iota
	queued
	written
	finished
)

// call is one request. All but frame's bytes and done are guarded by the pool's mutex.
type call struct {
	frame  []byte
	patch  bool // the opaque must still be put into the copy that is written
	opaque int32
	done   func(*codec.Command, error)

	timer     *time.Timer
	timeout   time.Duration
	state     callState
	conn      *conn
	writtenAt time.Time
	end       int  // where its last byte lies in the writer's batch
	cut       bool // its last byte was not written
	tries     int
	away      bool // was answered by GO_AWAY once
}

// pool holds the connections to one address.
type pool struct {
	cl   *Client
	addr string

	mu       sync.Mutex
	conns    []*conn // those that take requests, dialling ones included
	leaving  []*conn // those that only wait for replies
	failures int     // failed connection attempts in a row
	dialAt   time.Time
	dialErr  error
	closed   bool
}

// begin starts the clock of a call and queues it. Its failure is reported on another goroutine.
func (p *pool) begin(c *call, timeout time.Duration) {
	p.mu.Lock()
	c.timeout = timeout
	c.timer = time.AfterFunc(timeout, func() { p.giveUp(c, ErrTimeout) })
	err := p.enqueue(c)
	if err != nil {
		p.take(c)
	}
	p.mu.Unlock()
	if err != nil {
		go c.done(nil, p.wrap(ErrNotSent, err))
	}
}

// again queues calls that lost their connection before they could be processed.
func (p *pool) again(calls []*call, cause error) {
	for _, c := range calls {
		p.mu.Lock()
		if c.state == finished {
			p.mu.Unlock()
			continue
		}
		err := cause
		if c.tries < maxTries {
			err = p.enqueue(c)
		}
		if err != nil {
			p.take(c)
		}
		p.mu.Unlock()
		if err != nil {
			c.done(nil, p.wrap(ErrNotSent, err))
		}
	}
}

func (p *pool) wrap(kind, cause error) error { return fmt.Errorf("%s: %w: %w", p.addr, kind, cause) }

// enqueue hands an idle call to a connection. The caller holds the mutex.
func (p *pool) enqueue(c *call) error {
	k, err := p.pick()
	if err != nil {
		return err
	}
	if k.waiting >= p.cl.o.Queue {
		return fmt.Errorf("%w: %d", ErrQueueFull, k.waiting)
	}
	c.conn, c.state, c.cut = k, queued, false
	c.tries++
	k.waiting++
	k.lastUse = time.Now()
	k.queue = append(k.queue, c)
	k.signal()
	return nil
}

// pick returns the connection with the fewest open requests, or a new one where all have some and there
// is room. The caller holds the mutex.
func (p *pool) pick() (*conn, error) {
	if p.closed {
		return nil, ErrClosed
	}
	var best *conn
	for _, k := range p.conns {
		if best == nil || k.open() < best.open() {
			best = k
		}
	}
	if best != nil && (best.open() == 0 || len(p.conns) >= p.cl.o.Conns) {
		return best, nil
	}
	if wait := time.Until(p.dialAt); wait > 0 {
		if best != nil {
			return best, nil
		}
		return nil, fmt.Errorf("next attempt in %d ms, the last one failed: %w", wait.Milliseconds()+1, p.dialErr)
	}
	return p.openConn(), nil
}

// take ends a call, once; false when it had ended. The caller holds the mutex and calls done after it.
func (p *pool) take(c *call) bool {
	if c.state == finished {
		return false
	}
	was := c.state
	c.state, c.frame = finished, nil
	c.timer.Stop()
	switch was {
	case queued:
		c.conn.waiting--
	case written:
		delete(c.conn.flying, c.opaque)
	}
	if was != idle {
		c.conn.closeIfLeft()
	}
	return true
}

// giveUp ends a call whose time or context ended. A connection that has said nothing since the call was
// written gets no more requests; those it has keep their own time.
func (p *pool) giveUp(c *call, cause error) {
	p.mu.Lock()
	wasWritten, k := c.state == written, c.conn
	ok := p.take(c)
	late := errors.Is(cause, ErrTimeout) || errors.Is(cause, context.DeadlineExceeded)
	if ok && wasWritten && late && k.lastRead.Before(c.writtenAt) {
		p.retire(k)
	}
	p.mu.Unlock()
	if !ok {
		return
	}
	if late {
		cause = fmt.Errorf("%w after %v", ErrTimeout, c.timeout.Round(time.Millisecond))
	}
	kind := ErrNotSent
	if wasWritten {
		kind = ErrUnknownOutcome
	}
	c.done(nil, p.wrap(kind, cause))
}

// retire takes a connection out of use; it closes with its last call. The caller holds the mutex.
func (p *pool) retire(k *conn) {
	for i, x := range p.conns {
		if x == k {
			p.conns = append(p.conns[:i:i], p.conns[i+1:]...)
			p.leaving = append(p.leaving, k)
		}
	}
	k.retired = true
	k.closeIfLeft()
}

// forget removes a connection that is gone. The caller holds the mutex.
func (p *pool) forget(k *conn) {
	p.retire(k)
	for i, x := range p.leaving {
		if x == k {
			p.leaving = append(p.leaving[:i:i], p.leaving[i+1:]...)
			return
		}
	}
}

func (p *pool) dialFailed(k *conn, err error) {
	p.mu.Lock()
	p.failures++
	pause := p.cl.o.DialBackoff << min(p.failures-1, 5)
	p.dialAt = time.Now().Add(min(pause, 20*p.cl.o.DialBackoff))
	p.dialErr = err
	if p.closed {
		err = ErrClosed
	}
	first := p.failures == 1 && !p.closed
	calls, _ := k.strip()
	p.forget(k)
	p.mu.Unlock()
	if first {
		p.cl.o.Log.Warn("cannot connect", "addr", p.addr, "err", err)
	}
	p.again(calls, err)
}

// lost ends the calls of a broken connection. Those whose last byte was never written are queued again.
func (p *pool) lost(k *conn, err error) {
	p.mu.Lock()
	if p.closed {
		err = ErrClosed
	}
	unsent, sent := k.strip()
	p.forget(k)
	for _, c := range sent {
		p.take(c)
	}
	p.mu.Unlock()
	if len(unsent)+len(sent) > 0 {
		p.cl.o.Log.Debug("connection lost", "addr", p.addr, "err", err, "unsent", len(unsent), "unanswered", len(sent))
	}
	for _, c := range sent {
		c.done(nil, p.wrap(ErrUnknownOutcome, err))
	}
	p.again(unsent, err)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, k := range append(append([]*conn{}, p.conns...), p.leaving...) {
		k.shut()
	}
}
