package remoting

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delaygate/delaygate/codec"
)

// patience bounds what must happen at all; nothing is decided by how fast it does.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"),
	)
}

// handler is a Handler made of functions; without them it wants nothing.
type handler struct {
	wants  func(p Peer, h codec.Head, header []byte) bool
	handle func(p Peer, h codec.Head, frame []byte) Verdict
}

func (h *handler) Wants(p Peer, head codec.Head, header []byte) bool {
	return h.wants != nil && h.wants(p, head, header)
}

func (h *handler) Handle(p Peer, head codec.Head, frame []byte) Verdict {
	return h.handle(p, head, frame)
}

const (
	codeRelay int32 = 34 // what the test handlers want no part of
	codeTake  int32 = 310
)

func wantsTake(_ Peer, h codec.Head, _ []byte) bool { return h.Code == codeTake }

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rig is a server with one broker listener in front of a fake upstream.
type rig struct {
	t     testing.TB
	srv   *Server
	log   *logBuffer
	up    *fakeBroker
	port  int
	ended bool
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	r := &rig{t: t, log: &logBuffer{}, up: newFakeBroker(t)}
	if o.Handler == nil {
		o.Handler = &handler{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(r.log, nil))
	}
	if o.Loops == 0 {
		o.Loops = 2
	}
	var err error
	if r.srv, err = Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	r.port = openBroker(t, r.srv, r.up.addr())
	return r
}

func (r *rig) stop() {
	if r.ended {
		return
	}
	r.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = r.srv.Shutdown(ctx)
	if n := r.srv.Buffered(); n != 0 {
		r.t.Errorf("%d bytes are still counted as buffered after the shutdown", n)
	}
	if n := r.srv.taken.Load(); n != 0 {
		r.t.Errorf("%d requests are still counted as taken after the shutdown", n)
	}
	if r.t.Failed() {
		r.t.Logf("log:\n%s", r.log.String())
	}
}

// openBroker finds a free pair of ports.
func openBroker(t testing.TB, s *Server, broker string) int {
	t.Helper()
	var err error
	for range 50 {
		ln, lerr := net.Listen("tcp", "127.0.0.1:0")
		if lerr != nil {
			t.Fatal(lerr)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		_ = ln.Close()
		if err = s.OpenBroker(broker, "127.0.0.1", port); err == nil {
			return port
		}
	}
	t.Fatal(err)
	return 0
}

func dialPort(t testing.TB, port int) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func (r *rig) client() *net.TCPConn { return dialPort(r.t, r.port) }

// pair is a client and its upstream side, after one frame has gone through and was read.
func (r *rig) pair() (client, up *net.TCPConn) {
	r.t.Helper()
	client = r.client()
	send(r.t, client, request(codeRelay, -1, codec.FlagOneway, nil))
	up = r.up.accept()
	if f := readFrame(r.t, up); f.Opaque != -1 {
		r.t.Fatalf("first frame: %+v", f)
	}
	return client, up
}

// fakeBroker is an upstream that leaves its connections to the test.
type fakeBroker struct {
	t     testing.TB
	ln    net.Listener
	conns chan *net.TCPConn
}

func newFakeBroker(t testing.TB) *fakeBroker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{t: t, ln: ln, conns: make(chan *net.TCPConn, 4096)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.conns <- c.(*net.TCPConn)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
		for len(b.conns) > 0 {
			_ = (<-b.conns).Close()
		}
	})
	return b
}

func (b *fakeBroker) addr() string { return b.ln.Addr().String() }

func (b *fakeBroker) accept() *net.TCPConn {
	b.t.Helper()
	select {
	case c := <-b.conns:
		b.t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return c
	case <-time.After(patience):
		b.t.Fatal("no upstream connection")
		return nil
	}
}

func frameOf(c *codec.Command) []byte {
	b, err := c.Append(nil)
	if err != nil {
		panic(err)
	}
	return b
}

// request is a Binary frame.
func request(code, opaque, flag int32, body []byte) []byte {
	return frameOf(&codec.Command{
		Serialize: codec.Binary, Code: code, Language: codec.LangGo, Version: 317, Opaque: opaque, Flag: flag,
		Fields: codec.Fields{{Name: "topic", Value: "T"}}, Body: body,
	})
}

func jsonRequest(code, opaque, flag int32, body []byte) []byte {
	return frameOf(&codec.Command{
		Serialize: codec.JSON, Code: code, Language: codec.LangJava, Version: 407, Opaque: opaque, Flag: flag,
		Fields: codec.Fields{{Name: "topic", Value: "T"}}, Body: body,
	})
}

func reply(opaque int32, body []byte) []byte { return request(0, opaque, codec.FlagResponse, body) }

func send(t testing.TB, c net.Conn, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		if _, err := c.Write(f); err != nil {
			t.Fatalf("write: %v", err)
		}
	}
}

func readRaw(r io.Reader) ([]byte, error) {
	var l [4]byte
	if _, err := io.ReadFull(r, l[:]); err != nil {
		return nil, err
	}
	f := make([]byte, 4+binary.BigEndian.Uint32(l[:]))
	copy(f, l[:])
	_, err := io.ReadFull(r, f[4:])
	return f, err
}

func readFrame(t testing.TB, r io.Reader) *codec.Command {
	t.Helper()
	f, err := readRaw(r)
	if err != nil {
		t.Fatalf("read a frame: %v", err)
	}
	c, err := codec.Decode(f)
	if err != nil {
		t.Fatalf("decode % x: %v", f[:min(len(f), 64)], err)
	}
	return c
}

// wantEnd expects that the peer has nothing more to say.
func wantEnd(t testing.TB, c net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	if n != 0 {
		t.Fatalf("%d more bytes", n)
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("the connection is still open")
	}
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("never: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

func opaques(cs ...*codec.Command) []int32 {
	var out []int32
	for _, c := range cs {
		out = append(out, c.Opaque)
	}
	slices.Sort(out)
	return out
}
