package remoting

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// writeChunks writes b in pieces of random size, most of them small, some with a pause.
func writeChunks(c net.Conn, b []byte, rnd *rand.Rand) error {
	for len(b) > 0 {
		n := 1 + rnd.IntN(7)
		if rnd.IntN(3) == 0 {
			n = 1 + rnd.IntN(40_000)
		}
		n = min(n, len(b))
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
		if rnd.IntN(8) == 0 {
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond)
		}
	}
	return nil
}

func randomFrames(rnd *rand.Rand, n, maxBody int, flag int32) []byte {
	var all []byte
	for i := range n {
		body := make([]byte, rnd.IntN(maxBody))
		for j := range body {
			body[j] = byte(rnd.Uint32())
		}
		make := request
		if rnd.IntN(2) == 0 {
			make = jsonRequest
		}
		all = append(all, make(codeRelay, int32(i), flag, body)...)
	}
	return all
}

func TestRelaysByteForByteInBothDirections(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, Options{})
		client, up := r.pair()
		toUp := randomFrames(rnd, 60, 9_000, 0)
		toClient := randomFrames(rnd, 60, 9_000, codec.FlagResponse)
		errs := make(chan error, 2)
		r1, r2 := rand.New(rand.NewPCG(seed, 2)), rand.New(rand.NewPCG(seed, 3))
		go func() { errs <- writeChunks(client, toUp, r1) }()
		go func() { errs <- writeChunks(up, toClient, r2) }()
		atUp, atClient := make([]byte, len(toUp)), make([]byte, len(toClient))
		go func() {
			_, err := io.ReadFull(up, atUp)
			errs <- err
		}()
		if _, err := io.ReadFull(client, atClient); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(atUp, toUp) || !bytes.Equal(atClient, toClient) {
			t.Fatalf("seed %d: bytes have changed on the way", seed)
		}
		r.stop()
	}
}

func TestWantedFramesReachTheHandlerWholeInAnyChunks(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var wantTaken, wantUp, all, taken []byte
		for i := range int32(80) {
			body := bytes.Repeat([]byte{byte(i)}, rnd.IntN(6000))
			make := request
			if rnd.IntN(2) == 0 {
				make = jsonRequest
			}
			code := codeRelay + rnd.Int32N(3) // 35: wanted and passed, 36: taken
			f := make(code, i, 0, body)
			all = append(all, f...)
			if code == 36 {
				wantTaken = append(wantTaken, f...)
			} else {
				wantUp = append(wantUp, f...)
			}
		}
		r := newRig(t, Options{Handler: &handler{
			wants: func(_ Peer, h codec.Head, header []byte) bool {
				if len(header) != h.BodyOffset() {
					t.Errorf("header of %d bytes, want %d", len(header), h.BodyOffset())
				}
				return h.Code != codeRelay
			},
			handle: func(p Peer, h codec.Head, frame []byte) Verdict {
				if h.Code == 35 {
					return Pass
				}
				taken = append(taken, frame...)
				p.Reply(reply(h.Opaque, nil))
				return Taken
			},
		}})
		client := r.client()
		errs := make(chan error, 1)
		go func() { errs <- writeChunks(client, all, rnd) }()
		up := r.up.accept()
		atUp := make([]byte, len(wantUp))
		if _, err := io.ReadFull(up, atUp); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		eventually(t, "all taken frames seen", func() bool { return r.srv.taken.Load() == 0 })
		r.stop()
		if !bytes.Equal(atUp, wantUp) {
			t.Fatalf("seed %d: relayed frames differ", seed)
		}
		if !bytes.Equal(taken, wantTaken) {
			t.Fatalf("seed %d: taken frames differ", seed)
		}
	}
}

func TestRepliesMayOvertakeEachOther(t *testing.T) {
	r := newRig(t, Options{})
	client, up := r.pair()
	for i := range int32(10) {
		send(t, client, request(codeRelay, i, 0, nil))
	}
	for range 10 {
		readFrame(t, up)
	}
	for i := int32(9); i >= 0; i-- {
		send(t, up, reply(i, nil))
	}
	for i := int32(9); i >= 0; i-- {
		if f := readFrame(t, client); f.Opaque != i {
			t.Fatalf("opaque %d, want %d", f.Opaque, i)
		}
	}
}

func TestServerToClientRequestsAndTheirReplies(t *testing.T) {
	asked := false
	r := newRig(t, Options{Handler: &handler{wants: func(_ Peer, h codec.Head, _ []byte) bool {
		asked = asked || h.IsResponse()
		return false
	}}})
	client, up := r.pair()
	send(t, up, request(307, 77, 0, []byte("running info?")))
	if f := readFrame(t, client); f.Code != 307 || f.Opaque != 77 {
		t.Fatalf("got %+v", f)
	}
	send(t, client, reply(77, []byte("fine")))
	if f := readFrame(t, up); f.Opaque != 77 || string(f.Body) != "fine" {
		t.Fatalf("got %+v", f)
	}
	r.stop()
	if asked {
		t.Error("the handler was asked about a response")
	}
}

func TestResponseWithoutAnUpstreamGoesNowhere(t *testing.T) {
	r := newRig(t, Options{})
	client := r.client()
	send(t, client, reply(1, nil), request(codeRelay, 2, 0, nil))
	if f := readFrame(t, r.up.accept()); f.Opaque != 2 {
		t.Fatalf("upstream got opaque %d", f.Opaque)
	}
}

func TestBigFrameIsStreamedNotGathered(t *testing.T) {
	r := newRig(t, Options{})
	client, up := r.pair()
	f := request(codeRelay, 1, 0, make([]byte, 15<<20))
	half := len(f) / 2
	send(t, client, f[:half])
	if _, err := io.CopyN(io.Discard, up, int64(half)); err != nil { // arrives before the second half is sent
		t.Fatal(err)
	}
	eventually(t, "nothing is kept", func() bool { return r.srv.Buffered() == 0 })
	send(t, client, f[half:])
	if _, err := io.CopyN(io.Discard, up, int64(len(f)-half)); err != nil {
		t.Fatal(err)
	}
}

func TestTwoClientsHaveTwoUpstreamConnections(t *testing.T) {
	r := newRig(t, Options{})
	c1, u1 := r.pair()
	c2, u2 := r.pair()
	send(t, u2, reply(2, nil))
	send(t, u1, reply(1, nil))
	if readFrame(t, c1).Opaque != 1 || readFrame(t, c2).Opaque != 2 {
		t.Fatal("replies went to the wrong client")
	}
}

func TestIllegalFramesCloseTheConnection(t *testing.T) {
	big := []byte{0x01, 0, 0, 0}
	tests := []struct {
		name  string
		bytes []byte
		log   string
	}{
		{"longer than 16 MiB", big, "above"},
		{"negative length", []byte{0xff, 0xff, 0xff, 0xff}, "above"},
		{"zero length", []byte{0, 0, 0, 0}, "below 4"},
		{"unknown serialize type", []byte{0, 0, 0, 100, 7, 0, 0, 10}, "serialize type"},
		{"header longer than the frame", []byte{0, 0, 0, 100, 0, 0, 1, 0}, "header length"},
		{"header that is no JSON", append([]byte{0, 0, 0, 8, 0, 0, 0, 4}, "????"...), ""},
	}
	for _, split := range []bool{false, true} {
		for _, tc := range tests {
			name := tc.name
			if split {
				name += ", byte by byte"
			}
			t.Run(name, func(t *testing.T) {
				r := newRig(t, Options{})
				client, up := r.pair()
				if split {
					for _, b := range tc.bytes {
						if _, err := client.Write([]byte{b}); err != nil {
							break
						}
						time.Sleep(time.Millisecond)
					}
				} else {
					send(t, client, tc.bytes)
				}
				wantEnd(t, client)
				wantEnd(t, up)
				if log := r.log.String(); !strings.Contains(log, "illegal frame from a client") || !strings.Contains(log, tc.log) {
					t.Errorf("log: %s", log)
				}
			})
		}
	}
}

func TestFramesBeforeAnIllegalOneAreRelayed(t *testing.T) {
	r := newRig(t, Options{})
	client, up := r.pair()
	send(t, client, append(request(codeRelay, 5, 0, nil), 0, 0, 0, 0))
	if f := readFrame(t, up); f.Opaque != 5 {
		t.Fatalf("opaque %d", f.Opaque)
	}
	wantEnd(t, up)
}

func TestIllegalLengthFromUpstreamClosesBoth(t *testing.T) {
	r := newRig(t, Options{})
	client, up := r.pair()
	send(t, up, []byte{0x7f, 0, 0, 0})
	wantEnd(t, client)
	wantEnd(t, up)
}

func TestPeerKnowsItsAddresses(t *testing.T) {
	peers := make(chan Peer, 2)
	r := newRig(t, Options{Handler: &handler{wants: func(p Peer, _ codec.Head, _ []byte) bool {
		peers <- p
		return false
	}}})
	for _, port := range []int{r.port, r.port - 2} {
		c := dialPort(t, port)
		send(t, c, request(codeRelay, 1, 0, nil))
		p := <-peers
		if p.Broker() != r.up.addr() || p.Port() != r.port {
			t.Errorf("broker %s port %d, want %s %d", p.Broker(), p.Port(), r.up.addr(), r.port)
		}
		if p.Remote().String() != c.LocalAddr().String() || p.Local().String() != c.RemoteAddr().String() {
			t.Errorf("remote %s local %s, want %s %s", p.Remote(), p.Local(), c.LocalAddr(), c.RemoteAddr())
		}
		if !p.Local().Addr().Is4() {
			t.Errorf("%s is not in its 4-byte form", p.Local())
		}
	}
}
