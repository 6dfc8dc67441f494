package upstream

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/delaygate/delaygate/codec"
)

const (
	batchBytes  = 64 << 10 // a write ends after the frame that passes this
	keepBytes   = 1 << 20  // a larger write buffer is not kept
	maxAnswers  = 64       // waiting answers to requests of the peer; more are dropped
	readBufSize = 64 << 10
)

// conn is one connection: a goroutine that dials, reads and cleans up, and one that writes. All fields but
// wake and stopped are guarded by the pool's mutex.
type conn struct {
	p       *pool
	wake    chan struct{}
	stopped chan struct{} // closed when the writer has ended

	nc       net.Conn // nil while dialling
	queue    []*call  // in order; ended calls among them
	waiting  int      // calls of queue that have not ended
	flying   map[int32]*call
	answers  [][]byte
	retired  bool
	shutting bool
	lastUse  time.Time
	lastRead time.Time
	idle     *time.Timer
}

// openConn starts a connection. The caller holds the mutex.
func (p *pool) openConn() *conn {
	k := &conn{p: p, wake: make(chan struct{}, 1), stopped: make(chan struct{}), flying: map[int32]*call{}}
	p.conns = append(p.conns, k)
	p.cl.wg.Add(1)
	go k.run()
	return k
}

func (k *conn) open() int { return k.waiting + len(k.flying) }

func (k *conn) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// shut closes the socket, which ends both goroutines. The caller holds the mutex.
func (k *conn) shut() {
	k.shutting = true
	if k.nc != nil {
		_ = k.nc.Close()
	}
	k.signal()
}

// closeIfLeft shuts a retired connection that has nothing more to wait for. The caller holds the mutex.
func (k *conn) closeIfLeft() {
	if k.retired && k.nc != nil && k.open() == 0 {
		k.shut()
	}
}

// strip takes all calls off the connection and returns those the peer cannot have got as a whole, idle,
// and the others. The caller holds the mutex.
func (k *conn) strip() (unsent, sent []*call) {
	for _, c := range k.queue {
		if c.state == queued && c.conn == k {
			c.state = idle
			unsent = append(unsent, c)
		}
	}
	k.queue, k.waiting = nil, 0
	for _, c := range k.flying {
		if c.cut {
			c.state = idle
			delete(k.flying, c.opaque)
			unsent = append(unsent, c)
			continue
		}
		sent = append(sent, c)
	}
	if k.idle != nil {
		k.idle.Stop()
	}
	return unsent, sent
}

func (k *conn) run() {
	p := k.p
	defer p.cl.wg.Done()
	ctx, cancel := context.WithTimeout(p.cl.ctx, p.cl.o.DialTimeout)
	nc, err := p.cl.o.Dial(ctx, p.addr)
	cancel()
	if err != nil {
		p.dialFailed(k, fmt.Errorf("connect: %w", err))
		return
	}
	k.opened(nc)
	go k.write(nc)
	err = k.read(nc)
	p.mu.Lock()
	k.shut()
	p.mu.Unlock()
	// The writer knows which frames it could not finish, so calls are sorted only after its end.
	<-k.stopped
	p.lost(k, err)
}

func (k *conn) opened(nc net.Conn) {
	p := k.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures > 0 {
		p.cl.o.Log.Info("connected again", "addr", p.addr, "failed_attempts", p.failures)
	}
	p.failures, p.dialErr = 0, nil
	k.nc = nc
	k.lastUse = time.Now()
	k.idle = time.AfterFunc(p.cl.o.Idle, k.checkIdle)
	if p.closed {
		k.shut()
	}
	k.closeIfLeft()
}

func (k *conn) checkIdle() {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	if k.shutting {
		return
	}
	rest := k.p.cl.o.Idle - time.Since(k.lastUse)
	if k.open() > 0 || rest > 0 {
		k.idle.Reset(max(rest, k.p.cl.o.Idle/2))
		return
	}
	k.p.retire(k)
}

// write writes what is queued, many frames at a time, until the connection is shut.
func (k *conn) write(nc net.Conn) {
	defer close(k.stopped)
	var buf []byte
	var batch []*call
	for range k.wake {
		for {
			var more bool
			buf, batch, more = k.claim(buf[:0], batch[:0])
			if !more {
				return
			}
			if len(buf) == 0 {
				break
			}
			n, err := nc.Write(buf)
			if err != nil {
				k.cutOff(batch, n)
				return
			}
			if cap(buf) > keepBytes {
				buf = nil
			}
		}
	}
}

// claim copies frames that wait into buf. From here on the peer may see them. Copies, because a call that
// times out during a blocked write gives its frame back.
func (k *conn) claim(buf []byte, batch []*call) (_ []byte, _ []*call, more bool) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	if k.shutting {
		return buf, batch, false
	}
	for _, a := range k.answers {
		buf = append(buf, a...)
	}
	k.answers = nil
	now := time.Now()
	i := 0
	for ; i < len(k.queue) && len(buf) < batchBytes; i++ {
		c := k.queue[i]
		k.queue[i] = nil
		if c.state != queued || c.conn != k {
			continue
		}
		start := len(buf)
		buf = append(buf, c.frame...)
		if c.patch {
			// Send has checked the frame.
			_ = codec.SetOpaque(buf[start:], c.opaque)
		}
		k.waiting--
		k.flying[c.opaque] = c
		c.state, c.writtenAt, c.end = written, now, len(buf)
		batch = append(batch, c)
	}
	if k.queue = k.queue[i:]; len(k.queue) == 0 {
		k.queue = nil
	}
	return buf, batch, true
}

// cutOff marks the calls of a failed write of which not every byte left, and closes the connection.
func (k *conn) cutOff(batch []*call, n int) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	for _, c := range batch {
		c.cut = c.end > n
	}
	k.shut()
}

// read serves frames of the peer until the connection ends.
func (k *conn) read(nc net.Conn) error {
	r := bufio.NewReaderSize(nc, readBufSize)
	for {
		frame, err := readFrame(r)
		if err != nil {
			return err
		}
		c, err := codec.Decode(frame)
		if err != nil {
			return fmt.Errorf("frame of the peer: %w", err)
		}
		if c.Flag&codec.FlagResponse != 0 {
			k.reply(c)
			continue
		}
		k.request(frame, c)
	}
}

func readFrame(r *bufio.Reader) ([]byte, error) {
	word, err := r.Peek(4)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the peer closed the connection")
		}
		return nil, err
	}
	size, err := codec.FrameSize(word)
	if err != nil {
		return nil, fmt.Errorf("frame of the peer: length word %#x: %w", binary.BigEndian.Uint32(word), err)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, fmt.Errorf("frame of %d bytes: %w", size, err)
	}
	return frame, nil
}

// reply ends the call it belongs to. Late ones find none.
func (k *conn) reply(r *codec.Command) {
	p := k.p
	p.mu.Lock()
	k.lastRead = time.Now()
	k.lastUse = k.lastRead
	c := k.flying[r.Opaque]
	if r.Code == codec.RespGoAway {
		p.retire(k)
	}
	if c == nil {
		p.mu.Unlock()
		return
	}
	if r.Code == codec.RespGoAway && !c.away {
		// A server that goes away has not processed the request.
		delete(k.flying, c.opaque)
		c.away, c.state, c.tries = true, idle, 0
		k.closeIfLeft()
		p.mu.Unlock()
		p.again([]*call{c}, errors.New("the server goes away"))
		return
	}
	p.take(c)
	p.mu.Unlock()
	c.done(r, nil)
}

// request answers what a server asks its clients. A connection without heartbeats is asked nothing that it
// could answer.
func (k *conn) request(frame []byte, c *codec.Command) {
	h, err := codec.ParseHead(frame)
	if err != nil || h.IsOneway() {
		return
	}
	answer, err := codec.NewReply(h, codec.RespNotSupported, fmt.Sprintf(" request type %d not supported", c.Code)).Append(nil)
	if err != nil {
		return
	}
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	if len(k.answers) < maxAnswers {
		k.answers = append(k.answers, answer)
		k.signal()
	}
}
