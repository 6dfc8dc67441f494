package gate

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/levels"
	"github.com/delaygate/delaygate/remoting"
	"github.com/delaygate/delaygate/timer"
)

// Store keeps messages until they are due. Put must not block; Cancel and Find may read the disk. See timer.Store.
type Store interface {
	Put(e *timer.Entry, done func(error)) (timer.LSN, error)
	Cancel(due int64, lsn timer.LSN, done func(timer.Outcome, error))
	Find(q timer.Search) ([]timer.Row, error)
	Identity() uint64
}

// View is what is known about the cluster. The Cached methods and ByAddr must not block. See upstream.View.
type View interface {
	ByAddr(addr string) (upstream.Broker, bool)
	CachedTopic(broker upstream.Broker, topic string) (upstream.Topic, bool)
	Topic(ctx context.Context, broker upstream.Broker, topic string) (upstream.Topic, error)
	CreateTopic(ctx context.Context, broker upstream.Broker, topic string, queues, perm int32) error
	CachedSettings(broker upstream.Broker) (upstream.Settings, bool)
	Settings(ctx context.Context, broker upstream.Broker) (upstream.Settings, error)
}

// Face answers name-server requests. Owns must not block. See route.Face.
type Face interface {
	Owns(code int32) bool
	Answer(ctx context.Context, c *codec.Command, local netip.AddrPort) *codec.Command
}

// Options configure a Gate. Store, View, Face and IDs are required; every other zero field takes its default.
type Options struct {
	Store Store
	View  View
	Face  Face
	// IDs makes the UNIQ_KEY of held messages that come without one.
	IDs *codec.UniqueIDs
	// Levels serves for a broker that has not told its table; default: the table of RocketMQ.
	Levels levels.Table
	// MaxDelay is the longest delay of a timer message; default 40 days.
	MaxDelay time.Duration
	// Now is the wall clock; default time.Now.
	Now func() time.Time
	// Pick returns a number in [0, n) and chooses the queue when a client leaves that open; default: at random.
	Pick func(n int32) int32
	// CheckWorkers is how many sends wait for the upstream at a time, NameWorkers how many name-server requests;
	// default 64 each.
	CheckWorkers, NameWorkers int
	// Waiting is how many more of each may wait for a worker; default 4096. Their frames are bounded
	// by WaitingBytes; default 64 MiB.
	Waiting      int
	WaitingBytes int64
	// Log takes what goes wrong; default: nothing is logged.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Levels.Max() == 0 {
		o.Levels = levels.Default()
	}
	if o.MaxDelay <= 0 {
		o.MaxDelay = 40 * 24 * time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pick == nil {
		o.Pick = rand.Int32N
	}
	if o.CheckWorkers <= 0 {
		o.CheckWorkers = 64
	}
	if o.NameWorkers <= 0 {
		o.NameWorkers = 64
	}
	if o.Waiting <= 0 {
		o.Waiting = 4096
	}
	if o.WaitingBytes <= 0 {
		o.WaitingBytes = 64 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Gate is the remoting.Handler of the proxy. All methods may be called from any goroutine.
type Gate struct {
	o        Options
	checks   *pool // sends that need the upstream
	names    *pool // name-server requests
	tables   tableCache
	memory   topicMemory
	creating singleflight.Group

	held, refused, unstored, recalled atomic.Int64
}

var _ remoting.Handler = (*Gate)(nil)

// New returns a gate. Close waits for its goroutines.
func New(o Options) *Gate {
	o = o.withDefaults()
	return &Gate{
		o:      o,
		checks: newPool(o.CheckWorkers, o.Waiting, o.WaitingBytes),
		names:  newPool(o.NameWorkers, o.Waiting, o.WaitingBytes),
		tables: tableCache{log: o.Log, fallback: o.Levels, byText: map[string]levels.Table{}},
		memory: topicMemory{max: rememberedTopics, seen: map[topicKey]upstream.Topic{}},
	}
}

// Close takes no more work and waits for what was taken, until ctx ends. Requests that come later and need
// the upstream are answered with 2.
func (g *Gate) Close(ctx context.Context) error {
	if err := g.checks.close(ctx); err != nil {
		return err
	}
	return g.names.close(ctx)
}

// Stats counts what has happened since New.
type Stats struct {
	Held     int64 // messages acknowledged, one-way ones included
	Refused  int64 // sends and recalls answered with an error of the gate's own
	Recalled int64 // messages taken back
	Unstored int64 // sends that the store did not take, one-way ones included
}

// Stats returns a snapshot.
func (g *Gate) Stats() Stats {
	return Stats{Held: g.held.Load(), Refused: g.refused.Load(), Recalled: g.recalled.Load(), Unstored: g.unstored.Load()}
}

// Wants reports whether Handle must see a request. It allocates nothing.
func (g *Gate) Wants(p remoting.Peer, h codec.Head, header []byte) bool {
	if p.Broker() == "" {
		return true
	}
	switch h.Code {
	case codec.ReqSendMessage, codec.ReqSendMessageV2:
		return codec.MayDelay(header)
	case codec.ReqRecallMessage:
		return true
	default:
		return g.o.Face.Owns(h.Code)
	}
}

// Handle decides about a request. It never blocks.
func (g *Gate) Handle(p remoting.Peer, h codec.Head, frame []byte) remoting.Verdict {
	switch {
	case g.o.Face.Owns(h.Code):
		return g.handleName(p, h, frame)
	case p.Broker() == "":
		return g.unknown(p, h)
	}
	switch h.Code {
	case codec.ReqSendMessage, codec.ReqSendMessageV2:
		return g.handleSend(p, h, frame)
	case codec.ReqRecallMessage:
		return g.handleRecall(p, h, frame)
	default:
		return remoting.Pass
	}
}
