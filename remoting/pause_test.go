package remoting

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

const (
	pumpFrames = 272
	pumpBody   = 256 << 10 // 68 MiB in all
)

// pump writes numbered frames, as fast as it may.
func pump(c net.Conn, flag int32) error {
	for i := range int32(pumpFrames) {
		if _, err := c.Write(request(codeRelay, i, flag, bytes.Repeat([]byte{byte(i)}, pumpBody))); err != nil {
			return err
		}
	}
	return nil
}

// checkPump reads what pump wrote; a slow reader makes small reads with pauses.
func checkPump(t *testing.T, c net.Conn, slow bool) {
	t.Helper()
	var r io.Reader = bufio.NewReaderSize(c, 64<<10)
	if slow {
		r = &slowReader{r: c, rnd: rand.New(rand.NewPCG(1, 1))}
	}
	for i := range int32(pumpFrames) {
		f, err := readRaw(r)
		if err != nil {
			t.Errorf("frame %d: %v", i, err)
			return
		}
		g, err := codec.Decode(f)
		if err != nil || g.Opaque != i || len(g.Body) != pumpBody || !bytes.Equal(g.Body, bytes.Repeat([]byte{byte(i)}, pumpBody)) {
			t.Errorf("frame %d is not what was sent: %v", i, err)
			return
		}
	}
}

type slowReader struct {
	r   io.Reader
	rnd *rand.Rand
}

func (s *slowReader) Read(p []byte) (int, error) {
	if s.rnd.IntN(64) == 0 {
		time.Sleep(time.Duration(s.rnd.IntN(3000)) * time.Microsecond)
	}
	return s.r.Read(p[:min(len(p), 1+s.rnd.IntN(100<<10))])
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

func stillBuffered(r *rig) int64 {
	r.t.Helper()
	last := int64(-1)
	eventually(r.t, "the sender is stopped", func() bool {
		n := r.srv.Buffered()
		same := n == last && n > 1<<20
		last = n
		time.Sleep(30 * time.Millisecond)
		return same
	})
	return last
}

func TestASideThatIsNotReadPausesTheOther(t *testing.T) {
	const slack = 1 << 20
	for _, tc := range []struct {
		name           string
		toClient, toUp bool
		slow           bool
	}{
		{name: "client does not read", toClient: true},
		{name: "upstream does not read", toUp: true},
		{name: "neither reads", toClient: true, toUp: true},
		{name: "slow client", toClient: true, slow: true},
		{name: "both slow", toClient: true, toUp: true, slow: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, Options{})
			client, up := r.pair()
			before := heap()
			errs := make(chan error, 2)
			sides := int64(0)
			if tc.toClient {
				sides++
				go func() { errs <- pump(up, codec.FlagResponse) }()
			}
			if tc.toUp {
				sides++
				go func() { errs <- pump(client, 0) }()
			}
			if !tc.slow {
				n := stillBuffered(r)
				if limit := sides * (int64(r.srv.o.HighWater) + slack); n > limit {
					t.Errorf("%d bytes buffered, limit %d", n, limit)
				}
				if grown := heap() - before; grown > sides*(16<<20) {
					t.Errorf("the heap has grown by %d bytes", grown)
				}
				if len(errs) > 0 {
					t.Error("the sender got rid of everything")
				}
			}
			var wg sync.WaitGroup
			if tc.toClient {
				wg.Go(func() { checkPump(t, client, tc.slow) })
			}
			if tc.toUp {
				wg.Go(func() { checkPump(t, up, tc.slow) })
			}
			wg.Wait()
			for range sides {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			eventually(t, "nothing waits any more", func() bool { return r.srv.Buffered() == 0 })
			send(t, client, request(codeRelay, 1, 0, nil)) // and all goes on as before
			if f := readFrame(t, up); f.Opaque != 1 {
				t.Fatalf("got %+v", f)
			}
			send(t, up, reply(1, nil))
			if f := readFrame(t, client); f.Opaque != 1 {
				t.Fatalf("got %+v", f)
			}
		})
	}
}

func TestAClientThatDoesNotTakeItsRepliesIsPaused(t *testing.T) {
	const n = 4000
	body := make([]byte, 16<<10)
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, h codec.Head, _ []byte) Verdict {
		p.Reply(reply(h.Opaque, body))
		return Taken
	}}})
	client := r.client()
	sent := make(chan error, 1)
	go func() {
		for i := range int32(n) {
			if _, err := client.Write(request(codeTake, i, 0, make([]byte, 4000))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	if b := stillBuffered(r); b > 4<<20+2*readBuffer*5 { // one read of requests becomes up to four times as many bytes
		t.Errorf("%d bytes buffered", b)
	}
	for i := range int32(n) {
		if f := readFrame(t, client); f.Opaque != i {
			t.Fatalf("opaque %d, want %d", f.Opaque, i)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// The reply of a taken request has to wait for the end of a frame whose other bytes only come once the
// client has read: waiting must not stop that.
func TestPausesDoNotDeadlock(t *testing.T) {
	peers := make(chan Peer, 1)
	r := newRig(t, Options{Handler: &handler{wants: wantsTake, handle: func(p Peer, _ codec.Head, _ []byte) Verdict {
		peers <- p
		return Taken
	}}})
	client, up := r.pair()
	const big = 15 << 20
	sent := make(chan error, 1)
	go func() {
		_, err := up.Write(reply(1, make([]byte, big)))
		sent <- err
	}()
	stillBuffered(r)
	r.srv.each(func(s *session) {
		for range 10 {
			s.Reply(reply(2, make([]byte, 1<<20)))
		}
	})
	if f := readFrame(t, client); f.Opaque != 1 || len(f.Body) != big {
		t.Fatalf("opaque %d", f.Opaque)
	}
	for range 10 {
		if f := readFrame(t, client); f.Opaque != 2 {
			t.Fatalf("opaque %d", f.Opaque)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestOverBudgetPausesEarlier(t *testing.T) {
	r := newRig(t, Options{Budget: 1 << 20, Handler: &handler{wants: wantsTake}})
	hog := r.client()
	f := request(codeTake, 1, 0, make([]byte, 8<<20))
	send(t, hog, f[:4<<20])
	eventually(t, "the budget is used up", func() bool { return r.srv.Buffered() > 4<<20-1<<16 })
	client, up := r.pair()
	go func() { _ = pump(up, codec.FlagResponse) }()
	time.Sleep(200 * time.Millisecond)
	if n := r.srv.Buffered(); n > 5<<20 {
		t.Errorf("%d bytes buffered", n)
	}
	checkPump(t, client, false)
}

func TestAPauseThatFailsClosesBothSides(t *testing.T) {
	r := newRig(t, Options{Linger: time.Hour})
	client, up := r.pair()
	release := exhaust(t)
	go func() {
		_ = pump(up, codec.FlagResponse)
		closeAfterEnd(up)
	}()
	eventually(t, "the lack is logged", func() bool { return strings.Contains(r.log.String(), "cannot duplicate") })
	go closeAfterEnd(client)
	eventually(t, "the session ends", func() bool { return r.srv.Connections() == 0 })
	release(1000)
}

func TestAResumptionThatFailsClosesBothSides(t *testing.T) {
	r := newRig(t, Options{Linger: time.Hour})
	client, up := r.pair()
	go func() {
		_ = pump(up, codec.FlagResponse)
		closeAfterEnd(up)
	}()
	stillBuffered(r)
	release := exhaust(t)
	go closeAfterEnd(client)
	eventually(t, "the session ends", func() bool { return r.srv.Connections() == 0 })
	if !strings.Contains(r.log.String(), "cannot be resumed") {
		t.Error("not logged")
	}
	release(1000)
}

// closeAfterEnd does what brokers and clients do when the other side has ended.
func closeAfterEnd(c net.Conn) {
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}
