package gate

import (
	"testing"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/timer"
)

// discard is a store that keeps nothing, and a client that hears nothing.
type discard struct {
	*fakePeer
	fakeStore
}

func (*discard) Reply([]byte) {}
func (*discard) Put(_ *timer.Entry, done func(error)) (timer.LSN, error) {
	done(nil)
	return 1, nil
}

// BenchmarkHold is the path of a timed send through an event loop, without the disk.
func BenchmarkHold(b *testing.B) {
	for name, binary := range map[string]bool{"json": false, "binary": true} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, func(o *Options) { o.Store = &discard{} })
			m := message{binary: binary, body: make([]byte, 1000), props: props{"TIMER_DELAY_MS": "60000", "UNIQ_KEY": "0A01020300070000000000000000ABCD", "KEYS": "k"}}
			frame, err := m.command().Append(nil)
			if err != nil {
				b.Fatal(err)
			}
			h, err := codec.ParseHead(frame)
			if err != nil {
				b.Fatal(err)
			}
			p := &discard{fakePeer: w.peer}
			b.ReportAllocs()
			for b.Loop() {
				w.Handle(p, h, frame)
			}
		})
	}
}
