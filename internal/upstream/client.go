package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Options configure a Client. A zero field takes its default.
type Options struct {
	// Dial opens a connection; default: TCP by net.Dialer. Its context carries DialTimeout.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Log takes connection trouble; default: nothing is logged.
	Log *slog.Logger
	// Conns is the most connections to one address; default 2. Another one is opened only while all
	// existing ones have requests unanswered.
	Conns int
	// Queue is the most requests of one connection that wait to be written; default 4096.
	Queue int
	// Timeout bounds a Call whose context has no deadline; default 3 s.
	Timeout time.Duration
	// DialTimeout bounds one connection attempt; default 3 s.
	DialTimeout time.Duration
	// DialBackoff is the first pause after a failed attempt to an address, during which its requests
	// fail at once; it doubles up to 20 times this; default 50 ms.
	DialBackoff time.Duration
	// Idle is how long a connection without requests is kept; default 60 s, below the brokers' 120 s.
	Idle time.Duration
}

func (o Options) withDefaults() Options {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Conns <= 0 {
		o.Conns = 2
	}
	if o.Queue <= 0 {
		o.Queue = 4096
	}
	for _, d := range []struct {
		p *time.Duration
		v time.Duration
	}{{&o.Timeout, 3 * time.Second}, {&o.DialTimeout, 3 * time.Second}, {&o.DialBackoff, 50 * time.Millisecond}, {&o.Idle, time.Minute}} {
		if *d.p <= 0 {
			*d.p = d.v
		}
	}
	return o
}

// Client sends requests and matches replies. All methods may be called from any goroutine.
type Client struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	opaque atomic.Int32
	wg     sync.WaitGroup // connection goroutines

	mu     sync.Mutex
	pools  map[string]*pool
	closed bool
}

// NewClient returns a client without connections: they are opened on demand.
func NewClient(o Options) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{o: o.withDefaults(), ctx: ctx, cancel: cancel, pools: map[string]*pool{}}
}

type outcome struct {
	reply *codec.Command
	err   error
}

// Call sends c and waits for the reply, until ctx ends or Options.Timeout has passed when ctx has no
// deadline. c is only read: on the wire it gets an opaque of the client's own, which the reply carries
// too, and never the one-way bit.
func (cl *Client) Call(ctx context.Context, addr string, c *codec.Command) (*codec.Command, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("request %d to %s: %w: %w", c.Code, addr, ErrNotSent, err)
	}
	timeout := cl.o.Timeout
	if t, ok := ctx.Deadline(); ok {
		timeout = time.Until(t)
	}
	own := *c
	own.Opaque = cl.opaque.Add(1)
	own.Flag &^= codec.FlagResponse | codec.FlagOneway
	frame, err := own.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("request %d to %s: %w: %w", c.Code, addr, ErrNotSent, err)
	}
	ended := make(chan outcome, 1)
	p := cl.pool(addr)
	rq := &call{frame: frame, opaque: own.Opaque, done: func(r *codec.Command, err error) { ended <- outcome{r, err} }}
	p.begin(rq, timeout)
	select {
	case o := <-ended:
		return o.reply, o.err
	case <-ctx.Done():
		p.giveUp(rq, context.Cause(ctx))
		o := <-ended
		return o.reply, o.err
	}
}

// Send sends a whole Binary frame without waiting. Its opaque is replaced on the wire; frame itself is
// only read, until done was called. done is called exactly once, never from within Send, with the reply or
// with an error; it must not block.
func (cl *Client) Send(addr string, frame []byte, timeout time.Duration, done func(*codec.Command, error)) {
	if err := wholeBinary(frame); err != nil {
		go done(nil, fmt.Errorf("send to %s: %w: %w: %w", addr, ErrNotSent, ErrBadFrame, err))
		return
	}
	cl.pool(addr).begin(&call{frame: frame, patch: true, opaque: cl.opaque.Add(1), done: done}, timeout)
}

func wholeBinary(frame []byte) error {
	size, err := codec.FrameSize(frame)
	if err != nil {
		return err
	}
	if size != len(frame) {
		return fmt.Errorf("%d bytes are not one whole frame", len(frame))
	}
	h, err := codec.ParseHead(frame)
	if err != nil {
		return err
	}
	if h.Serialize != codec.Binary {
		return errors.New("the frame's header is not in Binary serialization")
	}
	return nil
}

// repeatable is Call for a request that does no harm when it is processed twice: it is sent once more
// when the connection broke before the reply.
func (cl *Client) repeatable(ctx context.Context, addr string, c *codec.Command) (*codec.Command, error) {
	r, err := cl.Call(ctx, addr, c)
	if errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrTimeout) && ctx.Err() == nil {
		return cl.Call(ctx, addr, c)
	}
	return r, err
}

func (cl *Client) pool(addr string) *pool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	p := cl.pools[addr]
	if p == nil {
		p = &pool{cl: cl, addr: addr, closed: cl.closed}
		cl.pools[addr] = p
	}
	return p
}

// Close fails what is open with ErrClosed, closes all connections and waits for the client's goroutines.
// It must not be called from within a done function.
func (cl *Client) Close() {
	cl.mu.Lock()
	cl.closed = true
	pools := make([]*pool, 0, len(cl.pools))
	for _, p := range cl.pools {
		pools = append(pools, p)
	}
	cl.mu.Unlock()
	for _, p := range pools {
		p.close()
	}
	cl.cancel()
	cl.wg.Wait()
}
