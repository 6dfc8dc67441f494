package remoting

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

func TestTakenFramesAreAnsweredWithoutAnUpstream(t *testing.T) {
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, _ []byte) Verdict {
		if h.Opaque%2 == 0 {
			p.Reply(reply(h.Opaque, nil))
		} else {
			go p.Reply(reply(h.Opaque, nil))
		}
		return Taken
	}}})
	client := r.client()
	var got []*codec.Command
	for i := range int32(20) {
		send(t, client, request(codeTake, i, 0, nil))
	}
	for range 20 {
		got = append(got, readFrame(t, client))
	}
	for i, o := range opaques(got...) {
		if int(o) != i {
			t.Fatalf("opaques %v", opaques(got...))
		}
	}
	if len(r.up.conns) != 0 {
		t.Error("the upstream was dialled for nothing")
	}
	eventually(t, "no request is owed an answer", func() bool { return r.srv.taken.Load() == 0 })
}

func TestRepliesWaitForAFrameBoundary(t *testing.T) {
	peers := make(chan Peer, 1)
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, _ codec.Head, _ []byte) Verdict {
		peers <- p
		return Taken
	}}})
	client, up := r.pair()
	// Cut at every place of interest: inside the length word, the header word, the header, the body.
	f := reply(1, []byte("a body of some length"))
	for _, cut := range []int{1, 3, 4, 6, 8, 10, 30, len(f) - 1} {
		send(t, client, request(codeTake, 2, 0, nil))
		p := <-peers
		send(t, up, f[:cut])
		first := make([]byte, cut)
		if _, err := io.ReadFull(client, first); err != nil {
			t.Fatal(err)
		}
		p.Reply(reply(2, nil))
		if n := quiet(client); n != 0 {
			t.Fatalf("cut at %d: %d bytes inside a half-relayed frame", cut, n)
		}
		send(t, up, append(bytes.Clone(f[cut:]), reply(3, nil)...))
		rest := make([]byte, len(f)-cut)
		if _, err := io.ReadFull(client, rest); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(append(first, rest...), f) {
			t.Fatalf("cut at %d: the relayed frame has changed", cut)
		}
		for _, want := range []int32{2, 3} { // ours goes at the first boundary
			if got := readFrame(t, client).Opaque; got != want {
				t.Fatalf("cut at %d: opaque %d, want %d", cut, got, want)
			}
		}
	}
}

// quiet is how many bytes arrive within a short while.
func quiet(c interface {
	io.Reader
	SetReadDeadline(time.Time) error
}) int {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	n, _ := c.Read(make([]byte, 1<<10))
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return n
}

func TestRelayOfTakenFrames(t *testing.T) {
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, frame []byte) Verdict {
		f := bytes.Clone(frame)
		go p.Relay(f)
		return Taken
	}}})
	client := r.client()
	f := request(codeTake, 4, 0, []byte("body"))
	send(t, client, f) // has the upstream dialled
	up := r.up.accept()
	got := make([]byte, len(f))
	if _, err := io.ReadFull(up, got); err != nil || !bytes.Equal(got, f) {
		t.Fatalf("relayed % x, %v", got, err)
	}
	send(t, up, reply(4, nil))
	if o := readFrame(t, client).Opaque; o != 4 {
		t.Fatalf("opaque %d", o)
	}
	eventually(t, "no request is owed an answer", func() bool { return r.srv.taken.Load() == 0 })
}

func TestRelayWaitsForAFrameBoundary(t *testing.T) {
	peers := make(chan Peer, 1)
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, _ codec.Head, _ []byte) Verdict {
		peers <- p
		return Taken
	}}})
	client, up := r.pair()
	taken := request(codeTake, 8, 0, nil)
	send(t, client, taken)
	p := <-peers
	f := request(codeRelay, 9, 0, make([]byte, 1000))
	send(t, client, f[:500])
	if _, err := io.CopyN(io.Discard, up, 500); err != nil {
		t.Fatal(err)
	}
	p.Relay(taken)
	if n := quiet(up); n != 0 {
		t.Fatalf("%d bytes inside a half-relayed frame", n)
	}
	send(t, client, append(bytes.Clone(f[500:]), request(codeRelay, 10, 0, nil)...))
	if _, err := io.CopyN(io.Discard, up, int64(len(f)-500)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int32{8, 10} {
		if got := readFrame(t, up).Opaque; got != want {
			t.Fatalf("opaque %d, want %d", got, want)
		}
	}
}

// A client that streams big frames back to back never leaves the relay at a boundary between two reads.
func TestRepliesAndRelaysAreNotStarvedByStreams(t *testing.T) {
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, frame []byte) Verdict {
		f := bytes.Clone(frame)
		go func() {
			if h.Opaque%2 == 0 {
				p.Relay(f)
			} else {
				p.Reply(reply(h.Opaque, nil))
			}
		}()
		return Taken
	}}})
	client, up := r.pair()
	const n = 200
	var wg sync.WaitGroup
	big := make([]byte, 300_000)
	wg.Go(func() {
		for i := range int32(n) {
			send(t, client, request(codeTake, i, 0, nil), request(codeRelay, n+i, 0, big))
		}
	})
	wg.Go(func() {
		for i := range int32(n) {
			send(t, up, reply(3*n+i, big))
		}
	})
	seen := map[int32]int{}
	var mu sync.Mutex
	collect := func(c io.Reader, frames int) {
		for range frames {
			f, err := readRaw(c)
			if err != nil {
				t.Error(err)
				return
			}
			h, err := codec.ParseHead(f)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			seen[h.Opaque]++
			mu.Unlock()
		}
	}
	wg.Go(func() { collect(up, n/2+n) })
	wg.Go(func() { collect(client, n/2+n) })
	wg.Wait()
	if len(seen) != 3*n {
		t.Fatalf("%d different frames, want %d", len(seen), 3*n)
	}
}

func TestManyRepliesFromManyGoroutines(t *testing.T) {
	const n = 2000
	var wg sync.WaitGroup
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, _ []byte) Verdict {
		wg.Go(func() { p.Reply(reply(h.Opaque, make([]byte, 100))) })
		return Taken
	}}})
	client, up := r.pair()
	go func() {
		for i := range int32(n) {
			send(t, client, request(codeTake, i, 0, nil))
			if i%4 == 0 {
				send(t, up, reply(n+i, make([]byte, 2000)))
			}
		}
	}()
	seen := map[int32]bool{}
	for range n + n/4 {
		seen[readFrame(t, client).Opaque] = true
	}
	if len(seen) != n+n/4 {
		t.Fatalf("%d different replies", len(seen))
	}
	r.stop()
	wg.Wait()
}

func TestOnewayRequestsAreOwedNothing(t *testing.T) {
	taken := make(chan struct{})
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(Peer, codec.Head, []byte) Verdict {
		close(taken)
		return Taken
	}}})
	send(t, r.client(), request(codeTake, 1, codec.FlagOneway, nil))
	<-taken
	if n := r.srv.taken.Load(); n != 0 {
		t.Errorf("%d answers owed", n)
	}
}

func TestRepliesToOnewayRequestsDoNotDisturbTheCount(t *testing.T) {
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, _ []byte) Verdict {
		if h.IsOneway() {
			p.Reply(reply(h.Opaque, nil))
		}
		return Taken
	}}})
	client, other := r.client(), r.client()
	send(t, client, request(codeTake, 1, codec.FlagOneway, nil), request(codeTake, 2, codec.FlagOneway, nil))
	for range 2 {
		readFrame(t, client)
	}
	send(t, other, request(codeTake, 3, 0, nil))
	eventually(t, "one answer is owed", func() bool { return r.srv.taken.Load() == 1 })
}

func TestHandlerCloses(t *testing.T) {
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(Peer, codec.Head, []byte) Verdict { return Close }}})
	client, up := r.pair()
	send(t, client, request(codeTake, 1, 0, nil))
	wantEnd(t, client)
	wantEnd(t, up)
}

func TestPanicClosesThatConnectionOnly(t *testing.T) {
	for _, where := range []string{"Wants", "Handle"} {
		t.Run(where, func(t *testing.T) {
			r := newRig(t, Options{Loops: 1, Handler: &handler{
				wants: func(_ Peer, h codec.Head, _ []byte) bool {
					if h.Code == 666 && where == "Wants" {
						panic("boo")
					}
					return h.Code == 666
				},
				handle: func(Peer, codec.Head, []byte) Verdict { panic("boo") },
			}})
			other, otherUp := r.pair()
			client, up := r.pair()
			send(t, client, request(666, 1, 0, nil))
			wantEnd(t, client)
			wantEnd(t, up)
			send(t, other, request(codeRelay, 2, 0, nil))
			readFrame(t, otherUp)
			if log := r.log.String(); !strings.Contains(log, "boo") || !strings.Contains(log, "handler_test.go") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

func TestNameServerPort(t *testing.T) {
	r := newRig(t, Options{Handler: &handler{
		wants: func(_ Peer, h codec.Head, _ []byte) bool { return h.Code == 105 || h.Code == 106 },
		handle: func(p Peer, h codec.Head, frame []byte) Verdict {
			if p.Broker() != "" {
				t.Errorf("broker %q", p.Broker())
			}
			if h.Code == 106 {
				return Pass
			}
			p.Reply(reply(h.Opaque, []byte("route")))
			return Taken
		},
	}})
	port, err := r.srv.ListenNameServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client := dialPort(t, port)
	send(t, client, jsonRequest(105, 1, 0, nil))
	if f := readFrame(t, client); string(f.Body) != "route" {
		t.Fatalf("got %+v", f)
	}
	for _, code := range []int32{106, 107} { // nothing can be relayed there
		send(t, client, jsonRequest(code, code, 0, make([]byte, 300_000)))
		f := readFrame(t, client)
		if f.Code != codec.RespNotSupported || f.Opaque != code || f.Serialize != codec.JSON {
			t.Fatalf("got %+v", f)
		}
	}
	send(t, client, jsonRequest(105, 2, 0, nil))
	if f := readFrame(t, client); f.Opaque != 2 {
		t.Fatalf("got %+v", f)
	}
	r.stop()
}

func TestRepliesThatAreNotFramesAreDropped(t *testing.T) {
	f := reply(1, nil)
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, _ codec.Head, _ []byte) Verdict {
		p.Reply(f[:len(f)-1])
		p.Reply(append(bytes.Clone(f), 0, 0))
		p.Relay(f[:10])
		p.Reply(f)
		return Taken
	}}})
	client := r.client()
	send(t, client, request(codeTake, 9, 0, nil))
	if o := readFrame(t, client).Opaque; o != 1 {
		t.Fatalf("opaque %d", o)
	}
	if n := strings.Count(r.log.String(), "dropped"); n != 3 {
		t.Errorf("%d log lines about dropped frames, want 3", n)
	}
}

func TestOverBudgetGatheringIsRefused(t *testing.T) {
	handled := make(chan int32, 10)
	r := newRig(t, Options{Budget: 1 << 20, Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, _ []byte) Verdict {
		handled <- h.Opaque
		p.Reply(reply(h.Opaque, nil))
		return Taken
	}}})
	hog := r.client()
	f := request(codeTake, 1, 0, make([]byte, 8<<20))
	send(t, hog, f[:7<<20])
	eventually(t, "the budget is used up", func() bool { return r.srv.Buffered() > 7<<20-1<<16 })

	client, up := r.pair()
	send(t, client, jsonRequest(codeTake, 2, 0, make([]byte, 1<<20)))
	if g := readFrame(t, client); g.Code != codec.RespSystemBusy || g.Opaque != 2 || g.Serialize != codec.JSON {
		t.Fatalf("got %+v", g)
	}
	send(t, client, request(codeTake, 3, codec.FlagOneway, make([]byte, 1<<20)), request(codeTake, 4, 0, nil)) // 4 needs no gathering
	if g := readFrame(t, client); g.Opaque != 4 {
		t.Fatalf("got %+v", g)
	}
	send(t, client, request(codeRelay, 5, 0, make([]byte, 2<<20))) // what is relayed goes on
	if g := readFrame(t, up); g.Opaque != 5 {
		t.Fatalf("got %+v", g)
	}
	send(t, hog, f[7<<20:]) // what has begun to be gathered is finished
	if g := readFrame(t, hog); g.Opaque != 1 {
		t.Fatalf("got %+v", g)
	}
	send(t, client, request(codeTake, 6, 0, make([]byte, 1<<20)))
	if g := readFrame(t, client); g.Opaque != 6 || g.Code != 0 {
		t.Fatalf("got %+v", g)
	}
	r.stop()
	close(handled)
	if got := fmt.Sprint(drain(handled)); got != "[4 1 6]" {
		t.Errorf("handled %s", got)
	}
}

func drain[T any](ch chan T) (all []T) {
	for v := range ch {
		all = append(all, v)
	}
	return all
}
