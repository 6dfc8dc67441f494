package remoting

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

func TestOpenBrokerIsIdempotent(t *testing.T) {
	r := newRig(t, Options{})
	if err := r.srv.OpenBroker(r.up.addr(), "127.0.0.1", r.port); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := r.srv.OpenBroker(r.up.addr(), "127.0.0.1", r.port+10); err == nil || !strings.Contains(err.Error(), "already has") {
		t.Errorf("another port: %v", err)
	}
	if err := r.srv.OpenBroker("127.0.0.1:1", "127.0.0.1", r.port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a taken port: %v", err)
	}
	for _, port := range []int{0, 2, 65536} {
		if err := r.srv.OpenBroker("127.0.0.1:1", "127.0.0.1", port); err == nil {
			t.Errorf("port %d was accepted", port)
		}
	}
}

func TestFailedOpenBrokerLeavesNothingOpen(t *testing.T) {
	r := newRig(t, Options{})
	// The VIP port of this one is the first one's port.
	err := r.srv.OpenBroker("127.0.0.1:1", "127.0.0.1", r.port+2)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("error %v", err)
	}
	ln, err := net.Listen("tcp", hostPort("127.0.0.1", r.port+2))
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	_ = ln.Close()
}

func TestCloseBrokerKeepsItsConnections(t *testing.T) {
	r := newRig(t, Options{})
	client, up := r.pair()
	r.srv.CloseBroker(r.up.addr())
	r.srv.CloseBroker("never opened")
	for _, port := range []int{r.port, r.port - 2} {
		if c, err := net.Dial("tcp", hostPort("127.0.0.1", port)); err == nil {
			_ = c.Close()
			t.Errorf("port %d still accepts", port)
		}
	}
	send(t, client, request(codeRelay, 3, 0, nil))
	if f := readFrame(t, up); f.Opaque != 3 {
		t.Fatalf("got %+v", f)
	}
	if err := r.srv.OpenBroker(r.up.addr(), "127.0.0.1", r.port); err != nil {
		t.Errorf("open again: %v", err)
	}
}

// poorListener has no free descriptor for its first accepts.
type poorListener struct {
	net.Listener
	mu    sync.Mutex
	fails int
}

func (l *poorListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails > 0 {
		l.fails--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAcceptingOutlivesALackOfDescriptors(t *testing.T) {
	r := newRig(t, Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.srv.mu.Lock()
	r.srv.servers = append(r.srv.servers, ln)
	r.srv.serve(&poorListener{Listener: ln, fails: 3}, target{broker: r.up.addr(), port: 1})
	r.srv.mu.Unlock()
	client := dialPort(t, ln.Addr().(*net.TCPAddr).Port)
	send(t, client, request(codeRelay, 1, 0, nil))
	if f := readFrame(t, r.up.accept()); f.Opaque != 1 {
		t.Fatalf("got %+v", f)
	}
	if n := strings.Count(r.log.String(), "cannot accept a connection"); n != 3 {
		t.Errorf("%d log lines, want 3", n)
	}
}

// exhaust takes every free descriptor of the process; release gives n of them back.
func exhaust(t *testing.T) (release func(n int)) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	low := was
	low.Cur = 400
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var spare []int
	take := func() {
		for {
			fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			if err != nil {
				return
			}
			spare = append(spare, fd)
		}
	}
	take()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // and what earlier tests give back late
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				take()
			}
		}
	}()
	halt := sync.OnceFunc(func() { close(stop); <-stopped })
	release = func(n int) {
		halt()
		for ; n > 0 && len(spare) > 0; n-- {
			_ = syscall.Close(spare[0])
			spare = spare[1:]
		}
	}
	t.Cleanup(func() {
		halt()
		release(len(spare))
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	})
	return release
}

func TestAcceptingWithoutAnyDescriptor(t *testing.T) {
	r := newRig(t, Options{})
	old, oldUp := r.pair()
	release := exhaust(t)
	release(1)
	_ = r.client() // the kernel accepts it, the process cannot, or cannot go on with it
	eventually(t, "the lack is logged", func() bool { return strings.Contains(r.log.String(), "cannot accept a connection") })
	send(t, old, request(codeRelay, 6, 0, nil)) // all else goes on
	if f := readFrame(t, oldUp); f.Opaque != 6 {
		t.Fatalf("got %+v", f)
	}
	release(20)
	send(t, r.client(), request(codeRelay, 5, 0, nil))
	if f := readFrame(t, r.up.accept()); f.Opaque != 5 {
		t.Fatalf("got %+v", f)
	}
}

func TestAThousandConnectionsWithoutGoroutines(t *testing.T) {
	const n = 1000
	r := newRig(t, Options{})
	clients, ups := make([]*net.TCPConn, n), make([]*net.TCPConn, n)
	before := runtime.NumGoroutine()
	for i := range n {
		clients[i] = r.client()
		send(t, clients[i], request(codeRelay, int32(i), 0, nil))
	}
	for i := range n {
		ups[i] = r.up.accept()
		f := readFrame(t, ups[i])
		send(t, ups[i], reply(f.Opaque, nil))
	}
	for i := range n {
		if f := readFrame(t, clients[i]); f.Opaque != int32(i) {
			t.Fatalf("client %d got the reply to %d", i, f.Opaque)
		}
	}
	if c := r.srv.Connections(); c != n {
		t.Errorf("%d connections", c)
	}
	// Dials and enrolments use goroutines for a moment; gnet's pool keeps its workers for some seconds.
	eventually(t, "goroutines are few again", func() bool { return runtime.NumGoroutine() < before+20 })
	for i := range n {
		_ = clients[i].Close()
	}
	for i := range n {
		wantEnd(t, ups[i])
		_ = ups[i].Close()
	}
	eventually(t, "all sessions end", func() bool { return r.srv.Connections() == 0 })
}

func TestConnectionsThatOnlyComeAndGo(t *testing.T) {
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, _ []byte) Verdict {
		p.Reply(reply(h.Opaque, nil))
		return Taken
	}}})
	for range 200 {
		c := r.client()
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	client := r.client()
	send(t, client, request(codeTake, 1, 0, nil))
	readFrame(t, client)
	_ = client.Close()
	eventually(t, "all sessions end", func() bool { return r.srv.Connections() == 0 })
	time.Sleep(time.Millisecond)
}
