package route

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
)

// NameServers asks the real name servers; *upstream.NameServers is one.
type NameServers interface {
	Call(ctx context.Context, c *codec.Command) (*codec.Command, error)
	CallAll(ctx context.Context, c *codec.Command) ([]*codec.Command, error)
}

// View knows the brokers of the cluster; *upstream.View is one.
type View interface {
	Brokers() []upstream.Broker
	ByAddr(addr string) (upstream.Broker, bool)
	Seed([]upstream.Broker)
	OnChange(func([]upstream.Broker))
	Refresh(ctx context.Context) error
}

// Opener opens the listener that stands for a broker, on port and on port-2; *remoting.Server is one.
// Opening what is open already does nothing.
type Opener interface {
	OpenBroker(broker, host string, port int) error
}

// Advertise says under which address clients reach the listeners.
type Advertise struct {
	// Host replaces the local address that the client reached, which is the default.
	Host string
	// Ports maps a listener's port to the port that clients must use; a port that is not in it is
	// advertised as it is. Old Java clients also dial the advertised port - 2.
	Ports map[int]int
}

// FaceOptions configure a Face. The first four are required, of the others a zero field takes its default.
type FaceOptions struct {
	NameServers NameServers
	View        View
	Book        *Book
	Opener      Opener

	// Host is the host or address that broker listeners are bound to; default: all addresses.
	Host      string
	Advertise Advertise
	Log       *slog.Logger // default: nothing is logged
	// Now tells the time for the age of kept replies; default time.Now.
	Now func() time.Time
	// Keep is how long a route or cluster reply serves while no name server answers; default 1 h.
	Keep time.Duration
	// Kept is the most replies kept; default 4096. Their bodies take at most 64 MiB.
	Kept int
	// Retry is the pause after which Run tries again to open a listener; default 2 s.
	Retry time.Duration
}

func (o FaceOptions) withDefaults() FaceOptions {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Keep <= 0 {
		o.Keep = time.Hour
	}
	if o.Kept <= 0 {
		o.Kept = 4096
	}
	if o.Retry <= 0 {
		o.Retry = 2 * time.Second
	}
	return o
}

// Face answers name-server requests. All methods may be called from any goroutine.
type Face struct {
	o         FaceOptions
	kept      *replyCache
	listeners *listeners
	flights   singleflight.Group
	changed   chan struct{} // the view's brokers changed
	down      atomic.Bool   // the last reply came from the cache
}

// NewFace returns a face and seeds the view with the brokers of the book. Their listeners are opened by
// Run, or when the first route with them is asked for.
func NewFace(o FaceOptions) *Face {
	o = o.withDefaults()
	f := &Face{
		o:         o,
		kept:      newReplyCache(o.Kept, keptBytes, o.Keep),
		listeners: newListeners(o),
		changed:   make(chan struct{}, 1),
	}
	o.View.OnChange(func([]upstream.Broker) {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	})
	o.View.Seed(o.Book.Brokers())
	return f
}

// Unopened returns the real addresses of brokers whose listener cannot be opened; clients are not told of
// their routes meanwhile. Any goroutine.
func (f *Face) Unopened() []string { return f.listeners.unopened() }

// Owns reports whether code is a request to a name server. These codes do not overlap with those of
// brokers (RocketMQ up to 5.5.0), so they can be answered on any port.
func (f *Face) Owns(code int32) bool { return kindOf(code) != kindForeign }

// Answer returns the reply to a name-server request that came in on the local address. It blocks while
// the name servers are asked, 3 s at most. The reply to a one-way request is the caller's to drop.
func (f *Face) Answer(ctx context.Context, c *codec.Command, local netip.AddrPort) *codec.Command {
	switch kindOf(c.Code) {
	case kindAddresses:
		return f.answerAddresses(ctx, c, local)
	case kindRead:
		return f.answerRead(ctx, c)
	case kindWrite:
		return f.answerWrite(ctx, c)
	case kindRegistration:
		return refuse(c, codec.RespNotSupported, fmt.Sprintf("request type %d not supported: brokers register with "+
			"the name servers behind this proxy, set namesrvAddr of the broker to those", c.Code))
	default:
		return refuse(c, codec.RespNotSupported, fmt.Sprintf(" request type %d not supported", c.Code))
	}
}

func (f *Face) answerRead(ctx context.Context, c *codec.Command) *codec.Command {
	r, err := f.o.NameServers.Call(ctx, forward(c))
	if err != nil {
		f.o.Log.Warn("no name server answered a request", "code", c.Code, "err", err)
		return refuse(c, codec.RespSystemError, remarkDown)
	}
	return replyTo(c, r)
}

// answerWrite sends a change to every name server, as they do not replicate. The reply is the first
// refusal, if any; success only when all have succeeded.
func (f *Face) answerWrite(ctx context.Context, c *codec.Command) *codec.Command {
	replies, err := f.o.NameServers.CallAll(ctx, forward(c))
	var success *codec.Command
	done := 0
	for _, r := range replies {
		switch {
		case r == nil:
		case r.Code != codec.RespSuccess:
			return replyTo(c, r)
		default:
			done++
			success = r
		}
	}
	if success == nil || done < len(replies) {
		f.o.Log.Warn("a change did not reach every name server", "code", c.Code, "reached", done, "of", len(replies), "err", err)
		return refuse(c, codec.RespSystemError, fmt.Sprintf("%d of %d name servers took the change, the others "+
			"did not answer: repeat it when all are up", done, len(replies)))
	}
	return replyTo(c, success)
}

// forward is the request as the name server gets it: as the client wrote it.
func forward(c *codec.Command) *codec.Command {
	out := *c
	out.Flag = 0
	return &out
}

// replyTo turns the reply of a name server into the reply to the client's request.
func replyTo(c, r *codec.Command) *codec.Command {
	out := codec.NewReply(c.Head(), r.Code, r.Remark)
	out.Language, out.Version = r.Language, r.Version
	out.Fields, out.Body = r.Fields, r.Body
	return out
}

func refuse(c *codec.Command, code int32, remark string) *codec.Command {
	return codec.NewReply(c.Head(), code, remark)
}
