package remoting

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/panjf2000/gnet/v2"

	"github.com/delaygate/delaygate/codec"
)

var (
	errNotEnrolled = errors.New("the event loop did not take the connection")
	errNoAddress   = errors.New("the connection has no address any more")
)

// dial starts to connect the upstream, off the loop; frames wait in its outbox meanwhile.
func (s *session) dial() {
	s.up = newWire(s)
	s.back = tracker{}
	if s.flights == nil {
		s.flights = new(inflight)
	}
	w := s.up
	s.srv.work.Go(func() {
		err := s.connect(w)
		s.post(task{s, func() {
			if w == s.up && w.state == wireDialing {
				s.dialFailed(err)
			}
		}})
	})
}

// connect runs off the loop.
func (s *session) connect(w *wire) error {
	ctx, cancel := context.WithTimeout(s.srv.ctx, s.srv.o.DialTimeout)
	defer cancel()
	conn, err := s.srv.o.Dial(ctx, s.broker)
	if err != nil {
		return err
	}
	return s.enrol(w, conn)
}

// enrol puts conn into the session's loop as the socket of w. It takes conn over and waits until the loop
// has seen it; that it was opened shows in w only, on the loop, since gnet swallows some errors. Off the loop.
func (s *session) enrol(w *wire, conn net.Conn) error {
	if conn.RemoteAddr() == nil || conn.LocalAddr() == nil { // gnet asks for both
		_ = conn.Close()
		return errNoAddress
	}
	dropZones(conn)
	ch, err := s.loop.Enroll(gnet.NewContext(context.Background(), w), conn)
	if err != nil {
		_ = conn.Close()
		return err
	}
	if res, ok := <-ch; ok && res.Err != nil {
		return res.Err
	}
	return errNotEnrolled
}

// dropZones takes the IPv6 zone names out of the addresses that gnet copies: when it closes a connection
// it hands their memory, which the net package shares, to a pool of byte slices.
func dropZones(conn net.Conn) {
	for _, a := range []net.Addr{conn.LocalAddr(), conn.RemoteAddr()} {
		if t, ok := a.(*net.TCPAddr); ok {
			t.Zone = ""
		}
	}
}

// dialFailed answers the waiting requests; the session goes on without an upstream, and the next frame
// to be relayed dials again.
func (s *session) dialFailed(err error) {
	s.srv.dialTrouble(s, err)
	s.up.closeDetached()
	s.up = nil
	if s.in.mode == streaming {
		s.in.mode = skipping
	}
	s.flights.take(func(codec.Head) {})
	remark := remarkUnreachable + " (" + reason(err) + ")"
	for _, w := range s.waiting {
		s.answer(codec.Head{Opaque: w.opaque, Serialize: w.serialize}, codec.RespServiceNotAvailable, remark)
	}
	s.waiting = nil
}

// reason says why a dial failed, without an address.
func reason(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "timed out"
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return "timed out"
	}
	return "no connection"
}
