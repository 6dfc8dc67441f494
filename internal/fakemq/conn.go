package fakemq

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// maxUnread is how many bytes of replies may wait for a client before its requests are no longer read. A
// broker does the same once a channel's send buffer is full (RocketMQ 5.1.0).
const maxUnread = 8 << 20

// conn is a client's connection. Frames are queued by any goroutine and written by one, so that a client
// that does not read its replies delays nobody else.
type conn struct {
	e      *endpoint
	nc     net.Conn
	id     int64
	remote netip.AddrPort
	done   chan struct{} // closed with the connection
	once   sync.Once

	mu       sync.Mutex
	out      []byte        // whole frames that wait to be written
	last     bool          // close once out is written
	wake     chan struct{} // capacity 1: out or last has changed
	drained  chan struct{} // capacity 1: out has been taken
	resumeAt time.Time     // requests are not read before
}

func newConn(e *endpoint, nc net.Conn) *conn {
	return &conn{
		e: e, nc: nc, id: e.cluster.connSeq.Add(1), remote: addrPort(nc.RemoteAddr()),
		done: make(chan struct{}), wake: make(chan struct{}, 1), drained: make(chan struct{}, 1),
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func (c *conn) close() {
	c.once.Do(func() {
		close(c.done)
		_ = c.nc.Close()
	})
}

// readLoop executes requests until the connection ends. A frame that cannot be decoded ends it, as in a
// Java server; there is nobody to answer, since its opaque is unknown.
func (c *conn) readLoop() {
	r := bufio.NewReaderSize(c.nc, 64<<10)
	for c.mayRead() {
		req, err := readFrame(r)
		if err != nil {
			if err != io.EOF {
				c.e.log.Debug("connection ends", "remote", c.remote, "err", err)
			}
			return
		}
		c.e.receive(c, req)
	}
}

func readFrame(r *bufio.Reader) (*codec.Command, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	size, err := codec.FrameSize(head)
	if err != nil {
		return nil, fmt.Errorf("frame of %d bytes: %w", binary.BigEndian.Uint32(head), err)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, fmt.Errorf("read a frame of %d bytes: %w", size, err)
	}
	return codec.Decode(frame)
}

// mayRead waits while the client leaves too much unread or a hook has stopped the reading; false once the
// connection is closed.
func (c *conn) mayRead() bool {
	for {
		c.mu.Lock()
		waiting, pause := len(c.out), time.Until(c.resumeAt)
		c.mu.Unlock()
		switch {
		case pause > 0:
			if !c.sleep(pause) {
				return false
			}
		case waiting > maxUnread:
			select {
			case <-c.drained:
			case <-c.done:
				return false
			}
		default:
			return true
		}
	}
}

// sleep waits for d; false if the connection is closed meanwhile.
func (c *conn) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.done:
		return false
	}
}

func (c *conn) pauseReading(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumeAt = time.Now().Add(d)
}

// send queues bytes; last closes the connection once they are written.
func (c *conn) send(b []byte, last bool) {
	c.mu.Lock()
	if !c.last {
		c.out = append(c.out, b...)
		c.last = last
	}
	c.mu.Unlock()
	notify(c.wake)
}

func (c *conn) sendCommand(cmd *codec.Command) {
	b, err := cmd.Append(nil)
	if err != nil {
		c.e.log.Error("frame cannot be encoded", "code", cmd.Code, "err", err)
		c.close()
		return
	}
	c.send(b, false)
}

func (c *conn) writeLoop() {
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		c.mu.Lock()
		out, last := c.out, c.last
		c.out = nil
		c.mu.Unlock()
		notify(c.drained)
		if _, err := c.nc.Write(out); err != nil || last {
			c.close()
			return
		}
	}
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
