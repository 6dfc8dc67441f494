package upstream_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/internal/upstream/peertest"
)

// echo answers each request with its own body.
func echo(r *peertest.Request) {
	r.ReplyWith(&codec.Command{Serialize: r.Serialize, Code: codec.RespSuccess, Version: 407, Body: r.Body})
}

func TestRepliesAreMatchedByOpaqueInEitherSerializeType(t *testing.T) {
	const n = 20
	var mu sync.Mutex
	var held []*peertest.Request
	p := peertest.Start(t, func(r *peertest.Request) {
		mu.Lock()
		defer mu.Unlock()
		if held = append(held, r); len(held) < n {
			return
		}
		for i := range held {
			q := held[len(held)-1-i]
			other := codec.Binary
			if i%2 == 0 {
				other = codec.JSON
			}
			q.ReplyWith(&codec.Command{Serialize: other, Body: q.Body})
		}
	})
	c := newClient(t, upstream.Options{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			body := fmt.Sprint("body ", i)
			q := request(codec.ReqGetRouteInfoByTopic, body)
			q.Opaque = 7
			r, err := c.Call(t.Context(), p.Addr(), q)
			if err != nil || string(r.Body) != body {
				t.Errorf("got %v, %v, want %q", r, err, body)
			}
			if q.Opaque != 7 {
				t.Error("the caller's command was changed")
			}
		})
	}
	wg.Wait()
	if got := p.Accepted(); got > 2 {
		t.Errorf("%d connections, want at most 2", got)
	}
}

func TestSendLeavesTheFrameAlone(t *testing.T) {
	p := peertest.Start(t, echo)
	c := newClient(t, upstream.Options{})
	frame := binaryFrame(t, "x")
	before := bytes.Clone(frame)
	for range 3 {
		if r := <-send(c, p.Addr(), frame, time.Second); r.err != nil || string(r.reply.Body) != "x" {
			t.Fatal(r)
		}
	}
	if !bytes.Equal(before, frame) {
		t.Error("the frame was changed")
	}
}

func TestLargeFramesBothWays(t *testing.T) {
	p := peertest.Start(t, echo)
	c := newClient(t, upstream.Options{})
	body := string(bytes.Repeat([]byte("0123456789"), 800_000))
	for range 3 {
		r := <-send(c, p.Addr(), binaryFrame(t, body), 20*time.Second)
		if r.err != nil || string(r.reply.Body) != body {
			t.Fatal("8 MB did not come back: ", r.err)
		}
	}
}

func TestBadFramesAreNotSent(t *testing.T) {
	c := newClient(t, upstream.Options{})
	json, err := request(1, "").Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := binaryFrame(t, "abc")
	for name, frame := range map[string][]byte{
		"json": json, "empty": nil, "short": whole[:len(whole)-1], "two": append(bytes.Clone(whole), whole...),
		"too long": append([]byte{1, 0, 0, 0}, make([]byte, codec.MaxFrame)...),
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, (<-send(c, "127.0.0.1:1", frame, time.Second)).err, upstream.ErrNotSent, upstream.ErrBadFrame)
		})
	}
}

func TestTimeouts(t *testing.T) {
	p := peertest.Start(t, func(*peertest.Request) {})
	block := func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	t.Run("written", func(t *testing.T) {
		c := newClient(t, upstream.Options{})
		_, err := c.Call(within(t, 50*time.Millisecond), p.Addr(), request(1, ""))
		wantError(t, err, upstream.ErrUnknownOutcome, upstream.ErrTimeout)
		wantError(t, (<-send(c, p.Addr(), binaryFrame(t, ""), 50*time.Millisecond)).err, upstream.ErrUnknownOutcome, upstream.ErrTimeout)
	})
	t.Run("still connecting", func(t *testing.T) {
		c := newClient(t, upstream.Options{Dial: block})
		_, err := c.Call(within(t, 50*time.Millisecond), p.Addr(), request(1, ""))
		wantError(t, err, upstream.ErrNotSent, upstream.ErrTimeout)
		wantError(t, (<-send(c, p.Addr(), binaryFrame(t, ""), 50*time.Millisecond)).err, upstream.ErrNotSent, upstream.ErrTimeout)
	})
	t.Run("connecting takes too long", func(t *testing.T) {
		c := newClient(t, upstream.Options{Dial: block, DialTimeout: 20 * time.Millisecond})
		wantError(t, (<-send(c, p.Addr(), binaryFrame(t, ""), 10*time.Second)).err, upstream.ErrNotSent)
	})
	t.Run("default", func(t *testing.T) {
		c := newClient(t, upstream.Options{Timeout: 30 * time.Millisecond})
		_, err := c.Call(context.Background(), p.Addr(), request(1, ""))
		wantError(t, err, upstream.ErrUnknownOutcome, upstream.ErrTimeout)
	})
}

func TestCancelledContexts(t *testing.T) {
	got := make(chan bool, 1)
	p := peertest.Start(t, func(*peertest.Request) { got <- true })
	c := newClient(t, upstream.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-got; cancel() }()
	_, err := c.Call(ctx, p.Addr(), request(1, ""))
	wantError(t, err, upstream.ErrUnknownOutcome, context.Canceled)
	_, err = c.Call(ctx, p.Addr(), request(1, ""))
	wantError(t, err, upstream.ErrNotSent, context.Canceled)
}

// A connection on which nothing comes back is left, without harm to what else waits on it.
func TestSilentConnectionGetsNoMoreRequests(t *testing.T) {
	var first atomic.Pointer[peertest.Request]
	p := peertest.Start(t, func(r *peertest.Request) {
		if r.Conn == 1 {
			first.CompareAndSwap(nil, r)
			return
		}
		echo(r)
	})
	c := newClient(t, upstream.Options{Conns: 1})
	patient := send(c, p.Addr(), binaryFrame(t, "patient"), 20*time.Second)
	eventually(t, "first request arrives", func() bool { return first.Load() != nil })
	wantError(t, (<-send(c, p.Addr(), binaryFrame(t, "hasty"), 30*time.Millisecond)).err, upstream.ErrUnknownOutcome)
	if r := <-send(c, p.Addr(), binaryFrame(t, "next"), 5*time.Second); r.err != nil {
		t.Fatal("the second connection was not used: ", r.err)
	}
	echo(first.Load())
	if r := <-patient; r.err != nil || string(r.reply.Body) != "patient" {
		t.Fatal(r)
	}
	eventually(t, "the left connection closes", func() bool { return p.Open() == 1 })
}

// One request without an answer among answered ones costs nothing but itself, and its late reply disturbs
// no other.
func TestLateReplyOnAConnectionInUse(t *testing.T) {
	var mu sync.Mutex
	var held []*peertest.Request
	p := peertest.Start(t, func(r *peertest.Request) {
		mu.Lock()
		defer mu.Unlock()
		if string(r.Body) == "late" {
			held = append(held, r)
			return
		}
		if string(r.Body) == "release" {
			for _, h := range held {
				echo(h)
			}
		}
		echo(r)
	})
	c := newClient(t, upstream.Options{Conns: 1})
	late := send(c, p.Addr(), binaryFrame(t, "late"), 300*time.Millisecond)
	eventually(t, "the late request arrives", func() bool { mu.Lock(); defer mu.Unlock(); return len(held) == 1 })
	for _, body := range []string{"x", "wait", "release", "y"} {
		if body == "wait" {
			wantError(t, (<-late).err, upstream.ErrUnknownOutcome, upstream.ErrTimeout)
		}
		if r := <-send(c, p.Addr(), binaryFrame(t, body), 5*time.Second); r.err != nil || string(r.reply.Body) != body {
			t.Fatal(body, r)
		}
	}
	if len(late) != 0 {
		t.Error("the late reply was reported as well")
	}
	if p.Accepted() != 1 {
		t.Errorf("%d connections, want 1", p.Accepted())
	}
}

func TestGoAwayMovesToANewConnection(t *testing.T) {
	p := peertest.Start(t, func(r *peertest.Request) {
		if r.Conn == 1 {
			r.Reply(codec.RespGoAway, "go away")
			return
		}
		echo(r)
	})
	c := newClient(t, upstream.Options{})
	if r := <-send(c, p.Addr(), binaryFrame(t, "x"), time.Second); r.err != nil || r.reply.Code != 0 {
		t.Fatal(r)
	}
	eventually(t, "the old connection closes", func() bool { return p.Open() == 1 })
}

func TestSecondGoAwayIsTheAnswer(t *testing.T) {
	var n atomic.Int32
	p := peertest.Start(t, func(r *peertest.Request) { n.Add(1); r.Reply(codec.RespGoAway, "") })
	c := newClient(t, upstream.Options{})
	r := <-send(c, p.Addr(), binaryFrame(t, "x"), time.Second)
	if r.err != nil || r.reply.Code != codec.RespGoAway || n.Load() != 2 {
		t.Fatalf("got %v after %d requests, want GO_AWAY after 2", r, n.Load())
	}
}

func TestRequestsOfThePeer(t *testing.T) {
	answers := make(chan *codec.Command, 4)
	p := peertest.Start(t, func(r *peertest.Request) {
		if r.Flag&codec.FlagResponse != 0 {
			answers <- r.Command
			return
		}
		r.Write(&codec.Command{Code: 40, Opaque: 1, Flag: codec.FlagOneway})
		r.Write(&codec.Command{Serialize: codec.Binary, Code: 307, Opaque: 2})
		echo(r)
	})
	c := newClient(t, upstream.Options{})
	if r := <-send(c, p.Addr(), binaryFrame(t, "x"), time.Second); r.err != nil {
		t.Fatal(r.err)
	}
	a := <-answers
	if a.Opaque != 2 || a.Code != codec.RespNotSupported || a.Serialize != codec.Binary {
		t.Errorf("answered %+v", a)
	}
	select {
	case a = <-answers:
		t.Errorf("answered a one-way request: %+v", a)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestUndecodableFrameEndsTheConnection(t *testing.T) {
	for name, b := range map[string][]byte{
		"length":    {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"serialize": {0, 0, 0, 6, 9, 0, 0, 2, '{', '}'},
		"header":    {0, 0, 0, 6, 0, 0, 0, 2, '{', 'x'},
	} {
		t.Run(name, func(t *testing.T) {
			p := peertest.Start(t, func(r *peertest.Request) {
				if r.Conn == 1 {
					r.WriteBytes(b)
					return
				}
				echo(r)
			})
			c := newClient(t, upstream.Options{})
			wantError(t, (<-send(c, p.Addr(), binaryFrame(t, "x"), 10*time.Second)).err, upstream.ErrUnknownOutcome)
			if r := <-send(c, p.Addr(), binaryFrame(t, "x"), time.Second); r.err != nil {
				t.Fatal(r.err)
			}
		})
	}
}

func TestPeerThatIsDownAndComesBack(t *testing.T) {
	var log logBuffer
	p := peertest.Start(t, echo)
	c := newClient(t, upstream.Options{DialBackoff: 5 * time.Millisecond, Log: log.logger()})
	if r := <-send(c, p.Addr(), binaryFrame(t, "x"), time.Second); r.err != nil {
		t.Fatal(r.err)
	}
	p.Stop()
	for range 5 {
		wantNotSentOrBroken(t, c, p.Addr())
	}
	p.Restart()
	eventually(t, "requests succeed again", func() bool {
		return (<-send(c, p.Addr(), binaryFrame(t, "x"), time.Second)).err == nil
	})
	if n := bytes.Count([]byte(log.String()), []byte("cannot connect")); n != 1 {
		t.Errorf("%d warnings for one outage:\n%s", n, log.String())
	}
}

// The first request after the end of the peer may find a connection whose end was not seen yet.
func wantNotSentOrBroken(t *testing.T, c *upstream.Client, addr string) {
	t.Helper()
	r := <-send(c, addr, binaryFrame(t, "x"), time.Second)
	if r.err == nil {
		t.Fatal("a reply from a peer that is down")
	}
	wantError(t, r.err)
}

func TestFullQueue(t *testing.T) {
	block := func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	c := newClient(t, upstream.Options{Dial: block, Conns: 1, Queue: 4})
	for range 4 {
		send(c, "a", binaryFrame(t, ""), time.Minute)
	}
	wantError(t, (<-send(c, "a", binaryFrame(t, ""), time.Minute)).err, upstream.ErrNotSent, upstream.ErrQueueFull)
	if r := send(c, "b", binaryFrame(t, ""), time.Minute); len(r) != 0 {
		t.Error("another address has a queue of its own: ", <-r)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	p := peertest.Start(t, echo)
	c := newClient(t, upstream.Options{Idle: 50 * time.Millisecond})
	for i := range 3 {
		if r := <-send(c, p.Addr(), binaryFrame(t, "x"), time.Second); r.err != nil {
			t.Fatal(r.err)
		}
		if p.Accepted() != i+1 {
			t.Errorf("request %d used connection %d", i+1, p.Accepted())
		}
		eventually(t, "the connection closes", func() bool { return p.Open() == 0 })
	}
}

func TestConnectionThatWaitsIsNotIdle(t *testing.T) {
	requests := make(chan *peertest.Request, 2)
	p := peertest.Start(t, func(r *peertest.Request) { requests <- r })
	c := newClient(t, upstream.Options{Conns: 1, Idle: 20 * time.Millisecond})
	first := send(c, p.Addr(), binaryFrame(t, "x"), 10*time.Second)
	q := <-requests
	time.Sleep(120 * time.Millisecond)
	second := send(c, p.Addr(), binaryFrame(t, "x"), 10*time.Second)
	echo(<-requests)
	echo(q)
	for _, ch := range []chan result{first, second} {
		if r := <-ch; r.err != nil {
			t.Error(r.err)
		}
	}
	if p.Accepted() != 1 {
		t.Errorf("%d connections, want 1", p.Accepted())
	}
}

func TestCloseEndsEverything(t *testing.T) {
	p := peertest.Start(t, func(*peertest.Request) {})
	block := make(chan struct{})
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		if addr == p.Addr() {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
		close(block)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c := upstream.NewClient(upstream.Options{Dial: dial, Conns: 1})
	sent := send(c, p.Addr(), binaryFrame(t, "x"), time.Minute)
	waiting := send(c, "elsewhere", binaryFrame(t, "x"), time.Minute)
	<-block
	eventually(t, "a connection", func() bool { return p.Open() == 1 })
	time.Sleep(20 * time.Millisecond)
	c.Close()
	wantError(t, (<-sent).err, upstream.ErrUnknownOutcome, upstream.ErrClosed)
	wantError(t, (<-waiting).err, upstream.ErrNotSent, upstream.ErrClosed)
	wantError(t, (<-send(c, p.Addr(), binaryFrame(t, "x"), time.Minute)).err, upstream.ErrNotSent, upstream.ErrClosed)
	_, err := c.Call(t.Context(), "new", request(1, ""))
	wantError(t, err, upstream.ErrNotSent, upstream.ErrClosed)
	c.Close()
}
