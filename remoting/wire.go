package remoting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

type wireState byte

const (
	wireDialing   wireState = iota // no socket yet; what is written waits
	wireReading                    // enrolled in the loop
	wireDetached                   // not read: paused, or its peer has sent its last byte; the descriptor is ours
	wireEnrolling                  // on its way back into the loop; the descriptor is still ours
	wireClosed
)

type leaving byte

const (
	leaveNone leaving = iota // whatever closes the gnet.Conn, it is not us
	leaveClose
	leaveDetach
)

// drainTurn bounds the bytes that one turn of the loop moves out of one outbox.
const drainTurn = 1 << 20

// wire is one socket of a session, and all that touches a gnet.Conn. gnet reads it; writes go straight to
// the descriptor and what the socket does not take waits in out, because bytes in gnet's own outbound
// buffer would be lost when a wire is detached, and because a write through a closed gnet.Conn reaches
// whoever has its descriptor by then. fd is -1 from the moment OnClose runs until there is another one.
// Loop only, but for fired.
type wire struct {
	s     *session
	state wireState
	conn  gnet.Conn // while wireReading
	fd    int
	out   outbox

	hold    bool // should be detached
	fin     bool // ends its sending side once out is empty
	shut    bool // has ended its sending side
	eof     bool // the peer has ended its own, and all it sent has been read
	peerFin bool // the peer of a detached wire has ended its own
	broken  bool // the socket has failed
	dead    bool // is to be closed at the end of this turn

	opens   int     // how often it has been opened
	leaving leaving // why the gnet.Conn is about to be closed
	nextFd  int     // the descriptor to go on with after leaveDetach

	watchID uint64
	armed   uint32
	fired   atomic.Uint32 // events the watcher saw
}

func newWire(s *session) *wire {
	return &wire{s: s, fd: -1, out: outbox{mem: &s.srv.mem}}
}

// open reports whether bytes may still be written.
func (w *wire) open() bool { return w.state != wireClosed && !w.dead && !w.broken && !w.shut }

// write sends p or keeps what the socket does not take. After the wire has ended it does nothing.
func (w *wire) write(p []byte) {
	if len(p) == 0 || !w.open() {
		return
	}
	if w.fd < 0 || w.out.n > 0 {
		w.out.push(p)
		return
	}
	if n := w.send(p); n < len(p) && !w.broken {
		w.out.push(p[n:])
		w.watch()
	}
}

// writeAll sends all of o, or keeps it without a copy.
func (w *wire) writeAll(o *outbox) {
	if !w.open() {
		o.clear()
		return
	}
	idle := w.fd >= 0 && w.out.n == 0
	w.out.take(o)
	if idle {
		w.drain()
	}
}

// send gives p to the socket once and returns how many bytes it took.
func (w *wire) send(p []byte) int {
	for {
		n, err := unix.Write(w.fd, p)
		switch {
		case err == nil:
			return n
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0
		default:
			w.broken = true
			return 0
		}
	}
}

// drain moves what waits into the socket.
func (w *wire) drain() {
	for moved := 0; w.out.n > 0 && moved < drainTurn && w.open(); {
		p := w.out.front()
		n := w.send(p)
		w.out.drop(n)
		moved += n
		if n < len(p) {
			break
		}
	}
	w.watch()
}

// finish ends the sending side.
func (w *wire) finish() {
	w.shut = true
	if err := unix.Shutdown(w.fd, unix.SHUT_WR); err != nil {
		w.broken = true
	}
}

// watch asks the watcher for what this wire waits for.
func (w *wire) watch() {
	if w.fd < 0 || w.broken {
		return
	}
	var events uint32
	if w.out.n > 0 {
		events |= unix.EPOLLOUT
	}
	if w.state != wireReading && !w.eof && !w.peerFin {
		events |= unix.EPOLLRDHUP
	}
	if w.state == wireReading && events == 0 {
		return
	}
	if w.watchID != 0 && events == w.armed {
		return
	}
	if err := w.s.srv.watch.arm(w, w.fd, events); err != nil {
		w.s.log().Error("cannot watch a connection; it is closed", "err", err)
		w.broken = true
		return
	}
	w.armed = events
}

// Run is the loop's task after the watcher has seen something.
func (w *wire) Run(context.Context) error {
	w.s.turn(func() {
		events := w.fired.Swap(0)
		w.armed = ^uint32(0) // one-shot: nothing is armed any more
		if w.state == wireClosed {
			return
		}
		if w.state != wireReading {
			w.broken = w.broken || events&(unix.EPOLLERR|unix.EPOLLHUP) != 0
			w.peerFin = w.peerFin || events&unix.EPOLLRDHUP != 0
		}
		if w.peerFin {
			w.s.startLinger()
		}
		w.drain()
	})
	return nil
}

// opened gives the wire the gnet.Conn that the loop has made for it; false when it is wanted no more.
func (w *wire) opened(c gnet.Conn) bool {
	if w.state == wireClosed {
		return false
	}
	if w.fd >= 0 { // back from a pause
		w.s.srv.watch.disarm(w, w.fd)
		_ = unix.Close(w.fd)
	}
	w.opens++
	w.conn, w.fd, w.state, w.armed = c, c.Fd(), wireReading, 0
	w.drain()
	return true
}

// closed is OnClose: the gnet.Conn gives its descriptor back when this returns.
func (w *wire) closed(err error) {
	w.s.srv.watch.disarm(w, w.fd)
	old := w.conn
	w.conn, w.fd, w.armed = nil, -1, 0
	switch {
	case w.leaving == leaveClose:
	case w.leaving == leaveDetach:
		w.fd = w.nextFd
	case errors.Is(err, io.EOF):
		w.eof = true
		if w.s.stillNeeds(w) {
			w.fd = w.dup(old)
		}
	default:
		w.broken = true
	}
	w.leaving = leaveNone
	if w.fd < 0 {
		w.state, w.dead = wireClosed, true
		w.out.clear()
		return
	}
	w.state = wireDetached
	w.watch()
}

func (w *wire) dup(c gnet.Conn) int {
	fd, err := c.Dup()
	if err != nil {
		w.s.log().Error("cannot duplicate the descriptor of a connection; it is closed", "err", err)
		return -1
	}
	return fd
}

// settle brings the wire to where its flags say it should be. cur says that the gnet callback of this
// very wire is running, whose return value must then close the gnet.Conn.
func (w *wire) settle(cur bool) gnet.Action {
	switch {
	case w.state == wireClosed:
	case w.dead && w.state == wireReading:
		w.leaving = leaveClose
		return w.leave(cur)
	case w.dead:
		w.closeDetached()
	case w.hold && w.state == wireReading:
		w.leaving, w.nextFd = leaveDetach, w.dup(w.conn)
		if w.nextFd < 0 {
			w.leaving, w.dead = leaveClose, true
		}
		return w.leave(cur)
	case !w.hold && w.state == wireDetached && !w.eof:
		w.resume()
	}
	return gnet.None
}

func (w *wire) leave(cur bool) gnet.Action {
	if cur {
		return gnet.Close
	}
	_ = w.s.loop.Close(w.conn)
	return gnet.None
}

func (w *wire) closeDetached() {
	if w.fd >= 0 {
		w.s.srv.watch.disarm(w, w.fd)
		_ = unix.Close(w.fd)
	}
	w.fd, w.state = -1, wireClosed
	w.out.clear()
}

// resume enrols a detached wire again. The loop opens a new descriptor; writes go to the old one until then.
func (w *wire) resume() {
	conn, err := netConn(w.fd)
	if err != nil {
		w.s.resumeFailed(w, err)
		w.dead = true
		w.closeDetached()
		return
	}
	w.state = wireEnrolling
	s, opens := w.s, w.opens
	s.srv.work.Go(func() {
		err := s.enrol(w, conn)
		s.post(task{s, func() {
			if w.state == wireEnrolling && w.opens == opens {
				s.resumeFailed(w, err)
			}
		}})
	})
}

// resumeFailed gives up a paused wire.
func (s *session) resumeFailed(w *wire, err error) {
	level := slog.LevelError
	if errors.Is(err, errNoAddress) {
		level = slog.LevelDebug // its peer has gone
	}
	s.log().Log(context.Background(), level, "a paused connection cannot be resumed; it is closed", "err", err)
	w.broken = true
}

// netConn is a net.Conn for a duplicate of fd.
func netConn(fd int) (net.Conn, error) {
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	f := os.NewFile(uintptr(d), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("socket of a paused connection: %w", err)
	}
	return c, nil
}
