package upstream

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Options configure a Client. A zero field takes its default.
type Options struct {
	// Dial opens a connection; default: TCP by net.Dialer. The context carries DialTimeout.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Log takes connection trouble; default: nothing is logged.
	Log *slog.Logger
	// Conns is the most connections to one address; default 2. The second one is opened only while the
	// first one has requests unanswered.
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

// Client sends requests and matches replies. All methods may be called from any goroutine.
type Client struct{ o Options }

// NewClient returns a client without connections: they are opened on demand.
func NewClient(o Options) *Client { return &Client{o: o} }

// Call sends c and waits for the reply, until ctx ends or Options.Timeout has passed when ctx has no
// deadline. c is not changed, and its opaque is replaced on the wire: the reply carries the client's.
func (cl *Client) Call(ctx context.Context, addr string, c *codec.Command) (*codec.Command, error) {
	return nil, ErrNotSent
}

// Send sends a whole Binary frame without waiting. Its opaque is replaced on the wire; frame itself is
// only read, until done was called. done is called exactly once, on a goroutine of the client and never
// from within Send, with the reply or with an error; it must not block.
func (cl *Client) Send(addr string, frame []byte, timeout time.Duration, done func(*codec.Command, error)) {
}

// Close fails what is open with ErrClosed, closes all connections and waits for the client's goroutines.
func (cl *Client) Close() {}
