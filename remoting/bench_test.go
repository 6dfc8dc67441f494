package remoting

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/delaygate/delaygate/codec"
)

// BenchmarkReply measures requests that the handler takes: answered within Handle, or by another goroutine.
func BenchmarkReply(b *testing.B) {
	answer := reply(1, make([]byte, 100))
	jobs := make(chan Peer, 1024)
	go func() {
		for p := range jobs {
			p.Reply(answer)
		}
	}()
	defer close(jobs)
	for name, handle := range map[string]func(Peer){
		"within":    func(p Peer) { p.Reply(answer) },
		"elsewhere": func(p Peer) { jobs <- p },
	} {
		b.Run(name, func(b *testing.B) {
			benchRounds(b, &handler{wants: wantsTake, handle: func(p Peer, _ codec.Head, _ []byte) Verdict {
				handle(p)
				return Taken
			}}, jsonRequest(codeTake, 1, 0, make([]byte, 100)), answer)
		})
	}
}

// BenchmarkRelay measures frames that nobody wants, there and back: one client keeps a window of requests
// open, an upstream answers each with its own bytes. Allocations are those of the whole process.
func BenchmarkRelay(b *testing.B) {
	for _, body := range []int{0, 1 << 10, 64 << 10, 4 << 20} {
		b.Run(fmt.Sprintf("body=%d", body), func(b *testing.B) { benchRelay(b, body) })
	}
}

func benchRelay(b *testing.B, body int) {
	benchRounds(b, &handler{}, jsonRequest(codeRelay, 1, 0, make([]byte, body)), jsonRequest(0, 1, codec.FlagResponse, make([]byte, body)))
}

// benchRounds sends frames and reads as many replies, a window at a time.
func benchRounds(b *testing.B, h Handler, frame, reply []byte) {
	up := newFakeBroker(b)
	srv, err := Start(Options{Handler: h, Loops: 1})
	if err != nil {
		b.Fatal(err)
	}
	client := dialPort(b, openBroker(b, srv, up.addr()))
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = client.Close()
		_ = srv.Shutdown(ctx)
	})
	window := max(1, min(64, (1<<20)/len(frame)))
	go answerRounds(b.Context(), up, len(frame), reply, window)

	batch := bytes.Repeat(frame, window)
	in := make([]byte, len(reply)*window)
	round := func(n int) {
		if _, err := client.Write(batch[:n*len(frame)]); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, in[:n*len(reply)]); err != nil {
			b.Fatal(err)
		}
	}
	round(window) // dials, fills the pools
	b.SetBytes(int64(len(frame) + len(reply)))
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= window {
		round(min(left, window))
	}
}

func answerRounds(ctx context.Context, up *fakeBroker, frame int, reply []byte, window int) {
	var c net.Conn
	select {
	case c = <-up.conns:
	case <-ctx.Done():
		return
	}
	defer c.Close()
	buf := make([]byte, frame*window)
	replies := bytes.Repeat(reply, window)
	for have := 0; ; {
		n, err := c.Read(buf[have:])
		if err != nil {
			return
		}
		have += n
		if _, err := c.Write(replies[:have/frame*len(reply)]); err != nil {
			return
		}
		have %= frame
	}
}
