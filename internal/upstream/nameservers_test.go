package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/internal/upstream/peertest"
)

// named answers with a remark that says who answered.
func named(name string, n *atomic.Int32) func(*peertest.Request) {
	return func(r *peertest.Request) { n.Add(1); r.Reply(codec.RespTopicNotExist, name) }
}

func TestNameServerThatAnswersIsKept(t *testing.T) {
	var na, nb atomic.Int32
	a, b := peertest.Start(t, named("a", &na)), peertest.Start(t, named("b", &nb))
	ns := upstream.NewNameServers(newClient(t, upstream.Options{DialBackoff: time.Millisecond}), []string{a.Addr(), b.Addr()})
	ask := func(want string) {
		t.Helper()
		r, err := ns.Call(t.Context(), request(codec.ReqGetRouteInfoByTopic, ""))
		if err != nil || r.Remark != want {
			t.Fatalf("got %+v, %v, want an answer of %s", r, err, want)
		}
	}
	ask("a")
	ask("a")
	a.Stop()
	ask("b")
	a.Restart()
	time.Sleep(50 * time.Millisecond) // past the back-off, so that a could be asked
	ask("b")
	if na.Load() != 2 || nb.Load() != 2 {
		t.Errorf("a was asked %d times, b %d, want 2 and 2", na.Load(), nb.Load())
	}
}

func TestNextNameServerIsAskedWhileOneIsSilent(t *testing.T) {
	var n atomic.Int32
	silent := func(*peertest.Request) {}
	a, b, c := peertest.Start(t, silent), peertest.Start(t, silent), peertest.Start(t, named("c", &n))
	ns := upstream.NewNameServers(newClient(t, upstream.Options{}), []string{a.Addr(), b.Addr(), c.Addr()})
	r, err := ns.Call(t.Context(), request(105, ""))
	if err != nil || r.Remark != "c" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A Java client waits 3 s for a route.
func TestSilentNameServersCostLessThanThreeSeconds(t *testing.T) {
	blackHole := func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		return near, nil
	}
	unreachable := func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	for name, dial := range map[string]func(context.Context, string) (net.Conn, error){"no reply": blackHole, "no connection": unreachable} {
		for _, addrs := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c", "d", "e", "f"}} {
			t.Run(fmt.Sprint(name, len(addrs)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := upstream.NewClient(upstream.Options{Dial: dial})
					defer c.Close()
					start := time.Now()
					_, err := upstream.NewNameServers(c, addrs).Call(t.Context(), request(105, ""))
					if d := time.Since(start); !errors.Is(err, upstream.ErrTimeout) || d != 2500*time.Millisecond {
						t.Errorf("got %v after %v", err, d)
					}
					start = time.Now()
					replies, err := upstream.NewNameServers(c, addrs).CallAll(t.Context(), request(100, ""))
					if d := time.Since(start); err == nil || d > 2500*time.Millisecond || len(replies) != len(addrs) {
						t.Errorf("got %v, %v after %v", replies, err, d)
					}
				})
			})
		}
	}
}

func TestDeadNameServersAreNamed(t *testing.T) {
	a, b := peertest.Start(t, nil), peertest.Start(t, nil)
	a.Stop()
	b.Stop()
	ns := upstream.NewNameServers(newClient(t, upstream.Options{}), []string{a.Addr(), b.Addr()})
	_, err := ns.Call(t.Context(), request(105, ""))
	if err == nil || !strings.Contains(err.Error(), a.Addr()) || !strings.Contains(err.Error(), b.Addr()) {
		t.Errorf("the error must name both: %v", err)
	}
}

func TestReadsSurviveABrokenConnection(t *testing.T) {
	var n atomic.Int32
	p := peertest.Start(t, func(r *peertest.Request) {
		if n.Add(1) == 1 {
			r.CloseConn()
			return
		}
		echo(r)
	})
	ns := upstream.NewNameServers(newClient(t, upstream.Options{}), []string{p.Addr()})
	if _, err := ns.Call(t.Context(), request(105, "")); err != nil {
		t.Error(err)
	}
}

func TestWritesGoToEveryNameServer(t *testing.T) {
	var na, nc atomic.Int32
	a, b, c := peertest.Start(t, named("a", &na)), peertest.Start(t, nil), peertest.Start(t, named("c", &nc))
	b.Stop()
	ns := upstream.NewNameServers(newClient(t, upstream.Options{}), []string{a.Addr(), b.Addr(), c.Addr()})
	replies, err := ns.CallAll(t.Context(), request(100, ""))
	if err == nil || !strings.Contains(err.Error(), b.Addr()) || strings.Contains(err.Error(), a.Addr()) {
		t.Errorf("the error must name b alone: %v", err)
	}
	if len(replies) != 3 || replies[0] == nil || replies[0].Remark != "a" || replies[1] != nil || replies[2] == nil || replies[2].Remark != "c" {
		t.Errorf("replies %+v", replies)
	}
	b = peertest.Start(t, echo)
	ns = upstream.NewNameServers(newClient(t, upstream.Options{}), []string{a.Addr(), b.Addr(), c.Addr()})
	if _, err := ns.CallAll(t.Context(), request(100, "")); err != nil {
		t.Error(err)
	}
}
