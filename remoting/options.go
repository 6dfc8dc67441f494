package remoting

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"time"
)

// Options configure a Server. A zero field takes its default; only Handler must be set.
type Options struct {
	Handler Handler
	// Log takes refused frames, failed dials and accept errors; default: nothing is logged.
	Log *slog.Logger
	// Loops is the number of event loops; default GOMAXPROCS.
	Loops int
	// Dial opens a TCP (or unix) connection to an upstream; its context carries DialTimeout. Default: net.Dialer.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// DialTimeout bounds one connection attempt; default 2 s, inside the 3 s that clients give a request.
	DialTimeout time.Duration
	// Linger is how long a side that ends is given what is still left for it; default 3 s.
	Linger time.Duration
	// HighWater and LowWater, in bytes, pause and resume the reading of one side by what waits for the
	// other; defaults 4 MiB and 1 MiB.
	HighWater, LowWater int
	// WaitingLimit, in bytes, pauses a client whose upstream is being dialled; default 1 MiB.
	WaitingLimit int
	// Budget, in bytes, bounds what all connections buffer together; default 256 MiB. Over it, requests
	// that would have to be gathered are answered SYSTEM_BUSY (2), and a side is paused
	// at 1/64 of the marks.
	Budget int64
}

func (o Options) withDefaults() (Options, error) {
	if o.Handler == nil {
		return o, errors.New("remoting: Options.Handler is not set")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		var d net.Dialer
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	setDefault(&o.Loops, runtime.GOMAXPROCS(0))
	setDefault(&o.DialTimeout, 2*time.Second)
	setDefault(&o.Linger, 3*time.Second)
	setDefault(&o.HighWater, 4<<20)
	setDefault(&o.LowWater, o.HighWater/4)
	setDefault(&o.WaitingLimit, 1<<20)
	setDefault(&o.Budget, 256<<20)
	return o, nil
}

func setDefault[T int | int64 | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}
