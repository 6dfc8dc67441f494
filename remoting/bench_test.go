package remoting

import (
	"fmt"
	"io"
	"testing"

	"github.com/delaygate/delaygate/codec"
)

// BenchmarkRelay measures frames that nobody wants, there and back: one client keeps a window of requests
// open, an upstream answers each with its own bytes. Allocations are those of the whole process.
func BenchmarkRelay(b *testing.B) {
	for _, body := range []int{0, 1 << 10, 64 << 10, 4 << 20} {
		b.Run(fmt.Sprintf("body=%d", body), func(b *testing.B) { benchRelay(b, body) })
	}
}

func benchRelay(b *testing.B, body int) {
	t := &testing.T{}
	up := newFakeBroker(t)
	defer up.ln.Close()
	srv, err := Start(Options{Handler: &handler{}, Loops: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Shutdown(b.Context())
	client := dialPort(t, openBroker(t, srv, up.addr()))
	defer client.Close()

	frame := jsonRequest(codeRelay, 1, 0, make([]byte, body))
	window := max(1, min(64, (1<<20)/len(frame)))
	go func() {
		c := up.accept()
		defer c.Close()
		reply := jsonRequest(0, 1, codec.FlagResponse, make([]byte, body))
		buf := make([]byte, len(frame)*window)
		replies := make([]byte, 0, len(reply)*window)
		for have := 0; ; {
			n, err := c.Read(buf[have:])
			if err != nil {
				return
			}
			have += n
			replies = replies[:0]
			for ; have >= len(frame); have -= len(frame) {
				replies = append(replies, reply...)
			}
			if _, err := c.Write(replies); err != nil {
				return
			}
		}
	}()
	replyLen := len(jsonRequest(0, 1, codec.FlagResponse, make([]byte, body)))
	batch := make([]byte, 0, len(frame)*window)
	in := make([]byte, replyLen*window)
	round := func(n int) {
		batch = batch[:0]
		for range n {
			batch = append(batch, frame...)
		}
		if _, err := client.Write(batch); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, in[:replyLen*n]); err != nil {
			b.Fatal(err)
		}
	}
	round(window) // dials
	b.SetBytes(int64(len(frame) + replyLen))
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= window {
		round(min(left, window))
	}
}
