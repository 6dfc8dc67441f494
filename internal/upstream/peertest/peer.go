// Package peertest is a TCP server for tests: it stands for a name server or a broker and does to requests
// what the test says.
package peertest

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/delaygate/delaygate/codec"
)

// Request is one frame that a peer received.
type Request struct {
	*codec.Command
	Conn int // number of the connection, from 1 in the order they were accepted

	conn *conn
}

// Reply answers with code and remark, in the serialize type of the request.
func (r *Request) Reply(code int32, remark string, fields ...codec.Field) {
	r.ReplyWith(&codec.Command{Serialize: r.Serialize, Code: code, Remark: remark, Fields: fields})
}

// ReplyWith answers with c, as it is but for opaque and response flag.
func (r *Request) ReplyWith(c *codec.Command) {
	c.Opaque, c.Flag = r.Opaque, c.Flag|codec.FlagResponse
	r.Write(c)
}

// Write sends any frame on the connection that brought the request.
func (r *Request) Write(c *codec.Command) {
	b, err := c.Append(nil)
	if err != nil {
		panic(err)
	}
	r.WriteBytes(b)
}

// WriteBytes sends bytes on the connection that brought the request.
func (r *Request) WriteBytes(b []byte) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	_, _ = r.conn.Write(b)
}

// CloseConn closes the connection that brought the request.
func (r *Request) CloseConn() { _ = r.conn.Close() }

type conn struct {
	net.Conn
	mu sync.Mutex
}

// Peer is a server. Its handler runs on the goroutine of the connection, so that a slow handler stops
// reading that connection; it may keep requests and answer them later from anywhere.
type Peer struct {
	t      testing.TB
	addr   string
	handle func(*Request)

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]bool
	accepted int
	wg       sync.WaitGroup
}

// Start listens on a free port of 127.0.0.1. The peer is stopped when the test ends.
func Start(t testing.TB, handle func(*Request)) *Peer {
	t.Helper()
	p := &Peer{t: t, addr: "127.0.0.1:0", handle: handle, conns: map[*conn]bool{}}
	p.Restart()
	t.Cleanup(p.Stop)
	return p
}

// Addr is the address to dial. It survives Stop and Restart.
func (p *Peer) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// Restart listens again after Stop, on the same port.
func (p *Peer) Restart() {
	p.t.Helper()
	addr := p.Addr()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		p.t.Fatalf("listen on %s: %v", addr, err)
	}
	p.mu.Lock()
	p.listener, p.addr = l, l.Addr().String()
	p.mu.Unlock()
	p.wg.Add(1)
	go p.accept(l)
}

// Stop closes the listener and all connections, and waits for the handlers.
func (p *Peer) Stop() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.CloseConns()
	p.wg.Wait()
}

// CloseConns closes all connections.
func (p *Peer) CloseConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Accepted is the number of connections accepted so far.
func (p *Peer) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Open is the number of connections that are open.
func (p *Peer) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *Peer) accept(l net.Listener) {
	defer p.wg.Done()
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		c := &conn{Conn: nc}
		p.mu.Lock()
		p.accepted++
		n := p.accepted
		p.conns[c] = true
		if p.listener != l {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Add(1)
		go p.serve(c, n)
	}
}

func (p *Peer) serve(c *conn, n int) {
	defer p.wg.Done()
	defer func() {
		_ = c.Close()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	r := bufio.NewReader(c)
	for {
		word, err := r.Peek(4)
		if err != nil {
			return
		}
		size, err := codec.FrameSize(word)
		if err != nil {
			p.t.Errorf("peer got a bad length word: %v", err)
			return
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(r, frame); err != nil {
			return
		}
		cmd, err := codec.Decode(frame)
		if err != nil {
			p.t.Errorf("peer got a bad frame: %v", err)
			return
		}
		p.handle(&Request{Command: cmd, Conn: n, conn: c})
	}
}
