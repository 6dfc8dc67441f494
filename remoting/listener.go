package remoting

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// vipOffset is how far below its port a broker is also listened for: Java clients up to 4.4 connect there
// unless com.rocketmq.sendMessageWithVIPChannel is false.
const vipOffset = 2

const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// target is what a listener stands for.
type target struct {
	broker string // "" for the name server
	port   int
}

// opening is a broker that is listened for.
type opening struct {
	host string
	port int
	lns  []net.Listener
}

// ListenNameServer opens a listener for name-server requests on addr ("host:port", port 0 for any) and
// returns its port.
func (s *Server) ListenNameServer(addr string) (port int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln, err := s.listen(addr)
	if err != nil {
		return 0, fmt.Errorf("listen for name-server requests: %w", err)
	}
	port = int(addrPort(ln.Addr()).Port())
	s.servers = append(s.servers, ln)
	s.serve(ln, target{port: port})
	return port, nil
}

// OpenBroker listens on port and port-2 of host ("" for every address) for clients of the broker at that
// real address; connections dial it. A second call with the same arguments does nothing; with others it
// is an error, since a port must not change its meaning under its clients.
func (s *Server) OpenBroker(broker, host string, port int) error {
	if broker == "" || port <= vipOffset || port > 65535 {
		return fmt.Errorf("listen for broker %q on port %d: want a broker address and a port from %d to 65535", broker, port, vipOffset+1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.brokers[broker]; o != nil {
		if o.host == host && o.port == port {
			return nil
		}
		return fmt.Errorf("listen for broker %s on %s: it already has %s; close that first",
			broker, hostPort(host, port), hostPort(o.host, o.port))
	}
	o := &opening{host: host, port: port}
	for _, p := range []int{port, port - vipOffset} {
		ln, err := s.listen(hostPort(host, p))
		if err != nil {
			o.close()
			return fmt.Errorf("listen for broker %s: %w", broker, err)
		}
		o.lns = append(o.lns, ln)
	}
	for _, ln := range o.lns {
		s.serve(ln, target{broker, port})
	}
	s.brokers[broker] = o
	return nil
}

// CloseBroker closes the listeners of a broker. Its connections live on until one of their sides ends.
func (s *Server) CloseBroker(broker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.brokers[broker]; o != nil {
		o.close()
		delete(s.brokers, broker)
	}
}

// stopListening closes every listener and waits for the accept loops; false when it has been called before.
func (s *Server) stopListening() bool {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	for _, o := range s.brokers {
		o.close()
	}
	for _, ln := range s.servers {
		_ = ln.Close()
	}
	s.mu.Unlock()
	s.accepts.Wait()
	return first
}

func (o *opening) close() {
	for _, ln := range o.lns {
		_ = ln.Close()
	}
}

func (s *Server) listen(addr string) (net.Listener, error) {
	if s.stopped {
		return nil, errStopped
	}
	return net.Listen("tcp", addr)
}

func (s *Server) serve(ln net.Listener, t target) {
	s.accepts.Go(func() { s.acceptLoop(ln, t) })
}

// acceptLoop outlives every error but the closing of ln: without free descriptors it waits and tries again.
func (s *Server) acceptLoop(ln net.Listener, t target) {
	var backoff time.Duration
	for {
		conn, err := ln.Accept()
		if err == nil {
			err = s.enter(conn, t)
		}
		switch {
		case err == nil:
			backoff = 0
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		backoff = min(max(2*backoff, acceptBackoffMin), acceptBackoffMax)
		s.o.Log.Warn("cannot accept a connection; trying again", "listener", ln.Addr().String(), "after", backoff, "err", err)
		time.Sleep(backoff)
	}
}

// enter makes a session of an accepted connection and enrols it into a loop.
func (s *Server) enter(conn net.Conn, t target) error {
	x := newSession(s, t, addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr()))
	if !s.add(x) {
		_ = conn.Close()
		return net.ErrClosed
	}
	dropZones(conn)
	_, err := s.engine.EnrollContext(conn, x.client) // closes conn, whose duplicate it keeps
	if err != nil || !x.started() {
		s.forget(x)
	}
	if err != nil {
		return fmt.Errorf("enrol the connection: %w", err)
	}
	return nil
}

// started reports whether the loop has opened the session; gnet swallows the error if it could not.
func (s *session) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loop != nil
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
