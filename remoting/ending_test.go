package remoting

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

func TestDialFailureAnswers14AndTheSessionLives(t *testing.T) {
	up := make(chan string, 1)
	refused := errors.New("dial tcp 127.7.7.7:10911: connect: connection refused")
	var d net.Dialer
	r := newRig(t, Options{
		Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, _ []byte) Verdict {
			p.Reply(reply(h.Opaque, nil))
			return Taken
		}},
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			select {
			case addr := <-up:
				return d.DialContext(ctx, "tcp", addr)
			case <-time.After(20 * time.Millisecond):
				return nil, refused
			}
		},
	})
	client := r.client()
	big := request(codeRelay, 4, 0, make([]byte, 100_000))
	send(t, client,
		request(codeRelay, 1, 0, nil),
		jsonRequest(codeRelay, 2, 0, nil),
		request(codeRelay, 3, codec.FlagOneway, nil),
		big[:50_000])
	var got []*codec.Command
	for range 3 {
		f := readFrame(t, client)
		if f.Code != codec.RespServiceNotAvailable || !f.IsResponse() || f.Remark == "" || strings.Contains(f.Remark, "127.7") {
			t.Fatalf("got %+v", f)
		}
		if want := codec.Serialize(codec.Binary); (f.Opaque == 2) != (f.Serialize != want) {
			t.Fatalf("opaque %d in serialize type %d", f.Opaque, f.Serialize)
		}
		got = append(got, f)
	}
	if o := opaques(got...); o[0] != 1 || o[1] != 2 || o[2] != 4 {
		t.Fatalf("14 for %v, want 1 2 4", o)
	}
	send(t, client, big[50_000:], request(codeTake, 5, 0, nil)) // the rest of a frame that was answered goes nowhere
	if f := readFrame(t, client); f.Opaque != 5 {
		t.Fatalf("got %+v", f)
	}
	up <- r.up.addr()
	send(t, client, request(codeRelay, 6, 0, nil))
	if f := readFrame(t, r.up.accept()); f.Opaque != 6 {
		t.Fatalf("got %+v", f)
	}
	if !strings.Contains(r.log.String(), "cannot connect to the broker") {
		t.Error("the failed dial was not logged")
	}
}

func TestDialTimesOut(t *testing.T) {
	r := newRig(t, Options{DialTimeout: 30 * time.Millisecond, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	client := r.client()
	send(t, client, request(codeRelay, 1, 0, nil))
	if f := readFrame(t, client); f.Code != codec.RespServiceNotAvailable || !strings.Contains(f.Remark, "timed out") {
		t.Fatalf("got %+v", f)
	}
}

func TestFramesWaitForTheDialAndPauseTheClient(t *testing.T) {
	dial := make(chan struct{})
	var d net.Dialer
	r := newRig(t, Options{DialTimeout: patience, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		<-dial
		return d.DialContext(ctx, "tcp", addr)
	}})
	client := r.client()
	var all []byte
	for i := range int32(64) {
		all = append(all, request(codeRelay, i, 0, bytes.Repeat([]byte{byte(i)}, 1<<18))...)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(all)
		sent <- err
	}()
	eventually(t, "frames wait", func() bool { return r.srv.Buffered() >= 1<<20 })
	time.Sleep(50 * time.Millisecond)
	if n := r.srv.Buffered(); n > 1<<20+2*readBuffer {
		t.Errorf("%d bytes wait", n)
	}
	close(dial)
	up := r.up.accept()
	got := make([]byte, len(all))
	if _, err := io.ReadFull(up, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, all) {
		t.Error("bytes have changed on the way")
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestUpstreamDeathAnswers14ToEachInFlightThenCloses(t *testing.T) {
	for _, abrupt := range []bool{false, true} {
		r := newRig(t, Options{})
		client, up := r.pair()
		for i := range int32(20) {
			make, flag := request, int32(0)
			if i%2 == 0 {
				make = jsonRequest
			}
			if i%5 == 0 {
				flag = codec.FlagOneway
			}
			send(t, client, make(codeRelay, 100+i, flag, nil))
		}
		for range 20 {
			readFrame(t, up)
		}
		send(t, up, reply(101, nil), jsonRequest(0, 102, codec.FlagResponse, nil))
		for range 2 {
			readFrame(t, client)
		}
		if abrupt {
			_ = up.SetLinger(0)
		}
		_ = up.Close()
		var got []*codec.Command
		for range 14 {
			f := readFrame(t, client)
			if f.Code != codec.RespServiceNotAvailable || !f.IsResponse() {
				t.Fatalf("got %+v", f)
			}
			if (f.Serialize == codec.JSON) != (f.Opaque%2 == 0) {
				t.Fatalf("opaque %d in serialize type %d", f.Opaque, f.Serialize)
			}
			got = append(got, f)
		}
		for _, o := range opaques(got...) {
			if o%5 == 0 || o == 101 || o == 102 {
				t.Errorf("14 for %d", o)
			}
		}
		wantEnd(t, client)
		_ = client.Close()
		eventually(t, "the session ends", func() bool { return r.srv.Connections() == 0 })
		if len(r.up.conns) != 0 {
			t.Error("the upstream was dialled again")
		}
		r.stop()
	}
}

func TestUpstreamDeathInsideAFrameJustCloses(t *testing.T) {
	r := newRig(t, Options{})
	client, up := r.pair()
	send(t, client, request(codeRelay, 1, 0, nil))
	readFrame(t, up)
	f := reply(1, make([]byte, 1000))
	send(t, up, f[:500])
	_ = up.Close()
	got, _ := io.ReadAll(client)
	if !bytes.Equal(got, f[:500]) {
		t.Fatalf("%d bytes, want the 500 that came", len(got))
	}
}

func TestFramesBehindTheUpstreamsEndAreRelayedFirst(t *testing.T) {
	r := newRig(t, Options{Linger: patience})
	client, up := r.pair()
	big := reply(1, make([]byte, 12<<20))
	go func() {
		_, _ = up.Write(big)
		_ = up.Close()
	}()
	time.Sleep(100 * time.Millisecond) // the client is slow
	if f := readFrame(t, client); len(f.Body) != 12<<20 {
		t.Fatalf("%d bytes", len(f.Body))
	}
	wantEnd(t, client)
}

func TestClientDeathClosesUpstreamAtOnce(t *testing.T) {
	for _, abrupt := range []bool{false, true} {
		r := newRig(t, Options{Linger: time.Hour})
		client, up := r.pair()
		send(t, client, request(codeRelay, 1, 0, nil)) // a long poll: in flight, not answered
		readFrame(t, up)
		if abrupt {
			_ = client.SetLinger(0)
		}
		_ = client.Close()
		wantEnd(t, up)
		_ = up.Close()
		eventually(t, "the session ends", func() bool { return r.srv.Connections() == 0 })
		r.stop()
	}
}

func TestClientGoneBeforeTheDialIsDone(t *testing.T) {
	dial := make(chan struct{})
	var d net.Dialer
	r := newRig(t, Options{DialTimeout: patience, Linger: time.Hour, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		<-dial
		return d.DialContext(ctx, "tcp", addr)
	}})
	client := r.client()
	send(t, client, request(codeRelay, 1, codec.FlagOneway, []byte("do not lose me")))
	eventually(t, "the frame waits", func() bool { return r.srv.Buffered() > 0 })
	_ = client.Close()
	time.Sleep(10 * time.Millisecond)
	close(dial)
	up := r.up.accept()
	if f := readFrame(t, up); string(f.Body) != "do not lose me" {
		t.Fatalf("got %+v", f)
	}
	wantEnd(t, up)
}

func TestHalfClosedClientGetsWhatIsLeft(t *testing.T) {
	peers := make(chan Peer, 1)
	r := newRig(t, Options{Linger: patience, Handler: &handler{wants: wantsTake, handle: func(p Peer, _ codec.Head, _ []byte) Verdict {
		peers <- p
		return Taken
	}}})
	client, up := r.pair()
	const big = 40 << 20
	sent := make(chan error, 1)
	go func() {
		for range 4 {
			if _, err := up.Write(reply(1, make([]byte, big/4))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	eventually(t, "much waits for the client", func() bool { return r.srv.Buffered() > 4<<20 })
	send(t, client, request(codeTake, 2, 0, nil))
	_ = client.CloseWrite()
	for range 4 {
		if f := readFrame(t, client); len(f.Body) != big/4 {
			t.Fatalf("%d bytes", len(f.Body))
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	(<-peers).Reply(reply(2, nil))
	if f := readFrame(t, client); f.Opaque != 2 {
		t.Fatalf("got %+v", f)
	}
	wantEnd(t, up)
	_ = up.Close()
	wantEnd(t, client)
}

func TestHalfClosedClientThatDoesNotReadIsClosedAfterTheLinger(t *testing.T) {
	r := newRig(t, Options{Linger: 150 * time.Millisecond})
	client, up := r.pair()
	go func() {
		for {
			if _, err := up.Write(reply(1, make([]byte, 1<<20))); err != nil {
				return
			}
		}
	}()
	eventually(t, "much waits for the client", func() bool { return r.srv.Buffered() > 4<<20 })
	_ = client.CloseWrite()
	eventually(t, "the session ends", func() bool { return r.srv.Connections() == 0 })
	if n := r.srv.Buffered(); n != 0 {
		t.Errorf("%d bytes still buffered", n)
	}
}

func TestPausedClientThatDiesIsNoticed(t *testing.T) {
	r := newRig(t, Options{Linger: time.Hour})
	client, up := r.pair()
	go func() {
		for {
			if _, err := up.Write(reply(1, make([]byte, 1<<20))); err != nil {
				return
			}
		}
	}()
	eventually(t, "much waits for the client", func() bool { return r.srv.Buffered() > 4<<20 })
	_ = client.Close() // with unread bytes: a reset
	eventually(t, "the upstream is told", func() bool {
		_ = up.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		_, err := up.Read(make([]byte, 1))
		var ne net.Error
		return err != nil && !(errors.As(err, &ne) && ne.Timeout())
	})
}

func TestShutdownAnswersWhatWasTakenThenCloses(t *testing.T) {
	peers := make(chan Peer, 1)
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, _ codec.Head, _ []byte) Verdict {
		peers <- p
		return Taken
	}}})
	client, up := r.pair()
	idle := r.client()
	send(t, client, request(codeRelay, 1, 0, nil), request(codeTake, 2, 0, nil))
	readFrame(t, up)
	p := <-peers
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- r.srv.Shutdown(ctx)
	}()
	eventually(t, "the server drains", r.srv.draining.Load)
	if c, err := net.Dial("tcp", client.RemoteAddr().String()); err == nil {
		_ = c.Close()
		t.Error("still listening")
	}
	send(t, client, request(codeTake, 3, 0, nil)) // new ones go elsewhere
	if f := readFrame(t, client); f.Opaque != 3 || f.Code != codec.RespServiceNotAvailable {
		t.Fatalf("got %+v", f)
	}
	select {
	case err := <-done:
		t.Fatalf("shut down with an answer owed: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.Reply(reply(2, []byte("stored")))
	if f := readFrame(t, client); f.Opaque != 2 || string(f.Body) != "stored" {
		t.Fatalf("got %+v", f)
	}
	if f := readFrame(t, client); f.Opaque != 1 || f.Code != codec.RespServiceNotAvailable { // the upstream never answered
		t.Fatalf("got %+v", f)
	}
	wantEnd(t, client)
	wantEnd(t, up)
	wantEnd(t, idle)
	for _, c := range []net.Conn{client, up, idle} {
		_ = c.Close()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	p.Reply(reply(2, nil)) // too late, and harmless
	if err := r.srv.OpenBroker("a:1", "", 20_000); !errors.Is(err, errStopped) {
		t.Errorf("OpenBroker after Shutdown: %v", err)
	}
}

func TestShutdownGivesUpAtItsDeadline(t *testing.T) {
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(Peer, codec.Head, []byte) Verdict { return Taken }}})
	client, up := r.pair()
	send(t, client, request(codeTake, 1, 0, nil))
	eventually(t, "taken", func() bool { return r.srv.taken.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	wantEnd(t, client)
	wantEnd(t, up)
}

func TestShutdownCancelsDials(t *testing.T) {
	r := newRig(t, Options{DialTimeout: time.Hour, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	client := r.client()
	send(t, client, request(codeRelay, 1, 0, nil))
	eventually(t, "the frame waits", func() bool { return r.srv.Buffered() > 0 })
	r.stop()
}
