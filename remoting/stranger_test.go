package remoting

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Sessions are closed from either side and by the handler in the middle of replies, relays and pauses,
// while other goroutines of the process open and close sockets all the time and so get the descriptor
// numbers that the sessions have just given back. Every frame carries the number of its session; nothing
// may ever arrive at a socket that the proxy does not own, nor at another session.
func TestNoByteReachesAStranger(t *testing.T) {
	var replies sync.WaitGroup
	r := newRig(t, Options{
		HighWater: 64 << 10, // so that pausing takes part
		Linger:    20 * time.Millisecond,
		Handler: &handler{
			wants: func(_ Peer, h codec.Head, _ []byte) bool { return h.Code >= codeTake },
			handle: func(p Peer, h codec.Head, frame []byte) Verdict {
				if h.Code == codeTake+1 {
					return Close
				}
				f := bytes.Clone(frame)
				replies.Go(func() {
					for range 3 {
						time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
						p.Reply(reply(h.Opaque, f[h.BodyOffset():]))
						p.Relay(f)
					}
				})
				return Taken
			},
		},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var strangers, clients atomic.Int64
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				meetStrangers(t)
				strangers.Add(16)
			}
		})
	}
	wg.Go(func() { serveTagged(ctx, t, r.up) })
	for i := range 6 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 5))
			for n := 0; ctx.Err() == nil; n++ {
				taggedClient(t, r.port, uint32(i)<<24|uint32(n), rnd)
				clients.Add(1)
			}
		})
	}
	wg.Wait()
	r.stop() // before Wait: no more replies begin
	replies.Wait()
	t.Logf("%d clients, %d strangers", clients.Load(), strangers.Load())
	if clients.Load() < 20 || strangers.Load() < 100 {
		t.Error("too little has happened to show anything")
	}
}

// meetStrangers opens sockets that have nothing to do with the proxy and expects silence on them.
func meetStrangers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return
	}
	defer ln.Close()
	var conns []net.Conn
	for range 8 {
		a, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Error(err)
			break
		}
		b, err := ln.Accept()
		if err != nil {
			t.Error(err)
			break
		}
		conns = append(conns, a, b)
	}
	time.Sleep(3 * time.Millisecond)
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Microsecond))
		var b [64]byte
		if n, _ := c.Read(b[:]); n > 0 {
			t.Errorf("a stranger got %q", b[:n])
		}
		_ = c.Close()
	}
}

func taggedBody(tag uint32, size int) []byte {
	b := make([]byte, 4+size)
	for i := 0; i+4 <= len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], tag)
	}
	return b
}

func bodyTag(f []byte) (uint32, bool) {
	h, err := codec.ParseHead(f)
	if err != nil || h.Size != len(f) {
		return 0, false
	}
	body := f[h.BodyOffset():]
	if len(body) < 4 {
		return 0, false
	}
	tag := binary.BigEndian.Uint32(body)
	for i := 0; i+4 <= len(body); i += 4 {
		if binary.BigEndian.Uint32(body[i:]) != tag {
			return 0, false
		}
	}
	return tag, true
}

// taggedClient sends frames that bear its tag and goes away at a random moment.
func taggedClient(t *testing.T, port int, tag uint32, rnd *rand.Rand) {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Error(err)
		return
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	done := make(chan struct{})
	go func() {
		defer close(done)
		onlyTag(t, c, &tag)
	}()
	for i := range int32(rnd.IntN(40)) {
		code := codeRelay
		switch rnd.IntN(8) {
		case 0, 1, 2:
			code = codeTake
		case 3:
			if i > 10 {
				code = codeTake + 1
			}
		}
		if _, err := c.Write(request(code, i, 0, taggedBody(tag, rnd.IntN(30_000)&^3))); err != nil {
			break
		}
	}
	if rnd.IntN(2) == 0 {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	_ = c.Close()
	<-done
}

// onlyTag reads frames until the connection ends and expects one tag in all of them: *want, or the first.
func onlyTag(t *testing.T, c net.Conn, want *uint32) {
	for {
		f, err := readRaw(c)
		if err != nil {
			return
		}
		tag, ok := bodyTag(f)
		if want == nil {
			want = &tag
		}
		if !ok || tag != *want {
			t.Errorf("a frame with tag %x (sound: %v) arrived where only %x belongs", tag, ok, *want)
			return
		}
	}
}

// serveTagged answers each request with its own body, more than once, and closes some connections at random.
func serveTagged(ctx context.Context, t *testing.T, b *fakeBroker) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-b.conns:
			wg.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				rnd := rand.New(rand.NewPCG(uint64(c.RemoteAddr().(*net.TCPAddr).Port), 9))
				last := rnd.IntN(60)
				pr, pw := io.Pipe()
				checked := make(chan struct{})
				go func() {
					defer close(checked)
					onlyTag(t, pipeConn{c, pr}, nil)
					_, _ = io.Copy(io.Discard, pr)
				}()
				for n := 0; n != last; n++ {
					f, err := readRaw(c)
					if err != nil {
						break
					}
					_, _ = pw.Write(f)
					f[8+12] |= byte(codec.FlagResponse)
					if _, err := c.Write(bytes.Repeat(f, 1+rnd.IntN(3))); err != nil {
						break
					}
				}
				if rnd.IntN(2) == 0 {
					_ = c.SetLinger(0)
				}
				_ = pw.Close()
				<-checked
			})
		}
	}
}

// pipeConn reads from somewhere else.
type pipeConn struct {
	net.Conn
	r io.Reader
}

func (p pipeConn) Read(b []byte) (int, error) { return p.r.Read(b) }
