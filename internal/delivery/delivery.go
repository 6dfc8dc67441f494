package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/timer"
)

// Store is what a Delivery needs of the timer store. SettleThen must not block.
type Store interface {
	Load(timer.Item) ([]byte, error)
	SettleThen(it timer.Item, written func())
}

// Backoff is an exponential pause: it starts at First, doubles, and stays at Max. A random part of up to
// a half is taken off each.
type Backoff struct {
	First time.Duration
	Max   time.Duration
}

// after returns the pause after the nth failure in a row (1, 2, ...); r in [0, 1) chooses the part taken off.
func (b Backoff) after(n int, r float64) time.Duration {
	d := b.First
	for i := 1; i < n && d < b.Max; i++ {
		d *= 2
	}
	d = min(d, b.Max)
	return d - time.Duration(r*float64(d)/2)
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
	o    Options
	work workQueue

	closing atomic.Bool // nothing new is sent
	closed  atomic.Bool // answers are ignored
	flights sync.WaitGroup
	workers sync.WaitGroup

	mu      sync.RWMutex
	brokers map[string]*broker
}

// New returns a running Delivery. Close ends its goroutines.
func New(o Options) *Delivery {
	d := &Delivery{o: o.withDefaults(), brokers: map[string]*broker{}}
	d.work.init()
	for range d.o.Loaders {
		d.workers.Go(func() {
			for j := d.work.pop(); j != nil; j = d.work.pop() {
				d.send(j)
			}
		})
	}
	return d
}

// Fire takes due entries over from the store. It never blocks. After Close it does nothing.
func (d *Delivery) Fire(items []timer.Item) {
	for len(items) > 0 {
		name := items[0].Flow.Broker
		n := 1
		for n < len(items) && items[n].Flow.Broker == name {
			n++
		}
		d.broker(name).accept(items[:n])
		items = items[n:]
	}
}

func (d *Delivery) broker(name string) *broker {
	d.mu.RLock()
	b := d.brokers[name]
	d.mu.RUnlock()
	if b != nil {
		return b
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b = d.brokers[name]; b == nil {
		b = newBroker(d, name)
		d.brokers[name] = b
	}
	return b
}

func (d *Delivery) all() []*broker {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.SortedFunc(maps.Values(d.brokers), func(a, b *broker) int { return strings.Compare(a.name, b.name) })
}

// Close stops sending, waits for the answers to what is unanswered and settles them. What was not sent or
// not answered stays in the store. When answers are still missing at the end of ctx it returns ctx's
// error, and ignores them when they come.
func (d *Delivery) Close(ctx context.Context) error {
	d.closing.Store(true)
	for _, b := range d.all() {
		b.stop()
	}
	ended := make(chan struct{})
	go func() {
		d.flights.Wait()
		d.work.close()
		d.workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		d.closed.Store(true)
		d.work.close()
		return fmt.Errorf("delivery: brokers still owe answers: %w", context.Cause(ctx))
	}
}

// Stats returns a snapshot.
func (d *Delivery) Stats() Stats {
	s := Stats{Refused: map[int32]int64{}}
	for _, b := range d.all() {
		b.addTo(&s)
	}
	return s
}
