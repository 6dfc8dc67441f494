package delivery

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/timer"
)

// Store is what a Delivery needs of the timer store. Settle must not block.
type Store interface {
	Load(timer.Item) ([]byte, error)
	Settle(timer.Item)
}

// Backoff is an exponential pause: it starts at First, doubles, and stays at Max. A random part of up to
// a half is taken off each.
type Backoff struct {
	First time.Duration
	Max   time.Duration
}

// Options configure a Delivery. Store, Send, Master and Now are required; every other zero field takes its
// default.
type Options struct {
	Store Store
	// Send sends a SEND_MESSAGE_V2 frame; see upstream.Client.Send.
	Send func(addr string, frame []byte, timeout time.Duration, done func(*codec.Command, error))
	// Master returns the address of a broker's master. It must not block.
	Master func(broker string) (addr string, ok bool)
	// WriteQueues returns how many queues of a topic a broker lets be written, when that is known. It must
	// not block. Default: never known, so that the broker picks a queue where one is gone.
	WriteQueues func(broker, topic string) (n int32, ok bool)
	// Now is the wall clock, Unix ms.
	Now func() int64
	// OnDelivered is told of every stored message with the wall clock (Unix ms) at which the broker's answer
	// came. It must not block.
	OnDelivered func(item timer.Item, now int64)
	// Log takes refusals, and brokers that go and come; default: nothing is logged.
	Log *slog.Logger
	// Window is the most requests of one broker that are unanswered; default 64.
	Window int
	// Loaders is the number of bodies that are read at a time; default 4.
	Loaders int
	// Timeout is how long an answer is awaited; default 10 s, more than a broker with SYNC_FLUSH and
	// SYNC_MASTER needs to say 10, 11 or 12 (5 s and 3 s).
	Timeout time.Duration
	// Retry is the pause before a lane, or a broker that is down, is tried again; default 100 ms to 3 s.
	Retry Backoff
	// Refused is the pause before a message is tried again that was refused or cannot be read; default 5 s
	// to 5 min.
	Refused Backoff
	// Rand returns a number in [0, 1) for the jitter; default: a random one.
	Rand func() float64
}

func (o Options) withDefaults() Options {
	if o.WriteQueues == nil {
		o.WriteQueues = func(string, string) (int32, bool) { return 0, false }
	}
	if o.OnDelivered == nil {
		o.OnDelivered = func(timer.Item, int64) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Window <= 0 {
		o.Window = 64
	}
	if o.Loaders <= 0 {
		o.Loaders = 4
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Retry == (Backoff{}) {
		o.Retry = Backoff{First: 100 * time.Millisecond, Max: 3 * time.Second}
	}
	if o.Refused == (Backoff{}) {
		o.Refused = Backoff{First: 5 * time.Second, Max: 5 * time.Minute}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

// Stats is a snapshot of a Delivery. Counts are since New.
type Stats struct {
	Delivered  int64           // messages stored by their broker
	Retried    int64           // sends that were answered by 2, 14, 1500 or not at all
	Refused    map[int32]int64 // refusals by response code
	Unsendable int64           // bodies that could not be read or are no frame of at most 16 MiB
	InFlight   int             // messages being loaded or unanswered
	Waiting    int             // fired messages in lanes that wait for their turn
	Kept       int             // refused and unsendable messages that wait to be tried again
	Down       []string        // brokers that cannot be reached, sorted
}

// Delivery sends what Fire brings. All methods may be called from any goroutine.
type Delivery struct {
	o Options
}

// New returns a running Delivery.
func New(o Options) *Delivery { return &Delivery{o: o.withDefaults()} }

// Fire takes due entries over from the store. It never blocks. After Close it does nothing.
func (d *Delivery) Fire(items []timer.Item) {}

// Close stops sending, waits for the answers to what is unanswered and settles them. What was not sent or
// not answered stays in the store. It returns ctx's error when answers are still missing then; later ones
// are ignored.
func (d *Delivery) Close(ctx context.Context) error { return nil }

// Stats returns a snapshot.
func (d *Delivery) Stats() Stats { return Stats{} }
