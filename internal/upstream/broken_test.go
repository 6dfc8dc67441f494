package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/internal/upstream/peertest"
)

// cutConn fails the first write of more than max bytes after max bytes.
type cutConn struct {
	net.Conn
	max int
}

func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) <= c.max {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:c.max])
	return n, errors.New("cut")
}

func TestWhatWasNotWrittenWholeIsSentAgain(t *testing.T) {
	size := len(binaryFrame(t, "x"))
	for _, tc := range []struct {
		name string
		max  int
		sent int // frames the peer must see in all, of three sent
	}{{"nothing", 0, 3}, {"a part", size / 2, 3}, {"all but one byte", size - 1, 3}} {
		t.Run(tc.name, func(t *testing.T) {
			var seen, dials atomic.Int32
			p := peertest.Start(t, func(r *peertest.Request) { seen.Add(1); echo(r) })
			c := newClient(t, upstream.Options{Conns: 1, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				if dials.Add(1) == 1 && err == nil {
					return &cutConn{nc, tc.max}, nil
				}
				return nc, err
			}})
			var all []chan result
			for range 3 {
				all = append(all, send(c, p.Addr(), binaryFrame(t, "x"), 10*time.Second))
			}
			for _, ch := range all {
				if r := <-ch; r.err != nil {
					t.Error(r.err)
				}
			}
			if int(seen.Load()) != tc.sent {
				t.Errorf("the peer saw %d frames, want %d", seen.Load(), tc.sent)
			}
		})
	}
}

func TestWhatWasWrittenWholeIsNotSentAgain(t *testing.T) {
	size := len(binaryFrame(t, "x"))
	hold := make(chan struct{})
	var seen atomic.Int32
	p := peertest.Start(t, func(*peertest.Request) { seen.Add(1) })
	c := newClient(t, upstream.Options{Conns: 1, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		<-hold // so that all three go out in one write
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return &cutConn{nc, size + 1}, err
	}})
	var all []chan result
	for range 3 {
		all = append(all, send(c, p.Addr(), binaryFrame(t, "x"), 300*time.Millisecond))
	}
	close(hold)
	for _, ch := range all {
		wantError(t, (<-ch).err, upstream.ErrUnknownOutcome)
	}
	if seen.Load() != 3 {
		t.Errorf("the peer saw %d frames, want each of 3 once", seen.Load())
	}
}

func TestConnectionClosedWhileIdleIsReplaced(t *testing.T) {
	p := peertest.Start(t, echo)
	c := newClient(t, upstream.Options{})
	for range 50 {
		if r := <-send(c, p.Addr(), binaryFrame(t, "x"), time.Second); r.err != nil {
			t.Fatal(r.err)
		}
		p.CloseConns()
		eventually(t, "the end of the connection", func() bool { return p.Open() == 0 })
		time.Sleep(5 * time.Millisecond) // for the client to see it as well
	}
}

// Whatever happens to connections: every call ends once, with its own reply or an error of one kind, and
// what is reported as not sent was not seen by the peer.
func TestChaos(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	p := peertest.Start(t, func(r *peertest.Request) {
		n := rand.IntN(100)
		if n < 2 {
			r.Reply(codec.RespGoAway, "")
			return
		}
		mu.Lock()
		seen[string(r.Body)]++
		mu.Unlock()
		switch {
		case n < 4:
			r.CloseConn()
		case n < 6: // no reply
		case n < 20:
			go func() { time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond); echo(r) }()
		default:
			echo(r)
		}
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(40 * time.Millisecond):
				p.Stop()
				time.Sleep(10 * time.Millisecond)
				p.Restart()
			}
		}
	})
	c := newClient(t, upstream.Options{DialBackoff: time.Millisecond})
	var senders sync.WaitGroup
	var ok, notSent, unknown atomic.Int32
	for s := range 16 {
		senders.Go(func() {
			for i := range 60 {
				body := fmt.Sprintf("%d/%d", s, i)
				r := <-send(c, p.Addr(), binaryFrame(t, body), 100*time.Millisecond)
				switch {
				case r.err == nil && r.reply.Code == codec.RespGoAway:
				case r.err == nil:
					ok.Add(1)
					if string(r.reply.Body) != body {
						t.Errorf("%s got the reply %s", body, r.reply.Body)
					}
				case errors.Is(r.err, upstream.ErrUnknownOutcome):
					unknown.Add(1)
				default:
					notSent.Add(1)
					time.Sleep(time.Millisecond)
					wantError(t, r.err, upstream.ErrNotSent)
					mu.Lock()
					if seen[body] > 0 {
						t.Errorf("%s: not sent, but seen", body)
					}
					mu.Unlock()
				}
			}
		})
	}
	senders.Wait()
	close(stop)
	wg.Wait()
	t.Logf("replies %d, unknown %d, not sent %d, connections %d", ok.Load(), unknown.Load(), notSent.Load(), p.Accepted())
	if ok.Load() == 0 || unknown.Load() == 0 || notSent.Load() == 0 {
		t.Error("one of the outcomes was not met")
	}
}
