package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// readBuffer is the most, in bytes, that a loop reads from one connection before it looks at the next.
const readBuffer = 128 << 10

// killWait bounds the closing of connections that did not end in time.
const killWait = 2 * time.Second

// Server owns the event loops, the listeners and the sessions. All methods may be called from any goroutine.
type Server struct {
	o      Options
	mem    memory
	engine *gnet.Client
	watch  *watcher
	ctx    context.Context // of the dials
	cancel context.CancelFunc

	taken    atomic.Int64 // requests that the handler owes an answer
	draining atomic.Bool
	trouble  atomic.Int64 // when a failed dial was logged last, Unix ns

	accepts sync.WaitGroup // accept loops
	work    sync.WaitGroup // dials and enrolments

	mu       sync.Mutex
	sessions map[*session]struct{}
	brokers  map[string]*opening
	servers  []net.Listener // on name-server addresses
	stopped  bool
}

var errStopped = errors.New("the server has been shut down")

// Start starts the event loops; listeners are added afterwards.
func Start(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, sessions: map[*session]struct{}{}, brokers: map[string]*opening{}}
	s.mem.budget = o.Budget
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.watch, err = newWatcher(); err != nil {
		return nil, fmt.Errorf("remoting: start: %w", err)
	}
	s.engine, err = gnet.NewClient(&events{},
		gnet.WithNumEventLoop(o.Loops), gnet.WithReadBufferCap(readBuffer), gnet.WithLogger(engineLog{o.Log}))
	if err == nil {
		err = s.engine.Start()
	}
	if err != nil {
		s.watch.close()
		return nil, fmt.Errorf("remoting: start %d event loops: %w", o.Loops, err)
	}
	return s, nil
}

// Connections is the number of client connections, those about to end included.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Buffered is what all connections buffer together, in bytes.
func (s *Server) Buffered() int64 { return s.mem.used.Load() }

func (s *Server) add(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.sessions[x] = struct{}{}
	return true
}

func (s *Server) forget(x *session) {
	s.mu.Lock()
	delete(s.sessions, x)
	s.mu.Unlock()
}

// marks are the high and low water marks, in bytes.
func (s *Server) marks() (high, low int) {
	high, low = s.o.HighWater, s.o.LowWater
	if s.mem.over() {
		high, low = high/64, low/64
	}
	return high, low
}

// dialTrouble logs a failed dial, once a second at most.
func (s *Server) dialTrouble(x *session, err error) {
	now, last := time.Now().UnixNano(), s.trouble.Load()
	if now-last < int64(time.Second) || !s.trouble.CompareAndSwap(last, now) {
		return
	}
	x.log().Warn("cannot connect to the broker; waiting requests are answered 14", "err", err)
}

// Shutdown stops accepting, waits until every request that the handler took has been answered (new ones
// it would have taken are answered 14 meanwhile), answers 14 to what the upstreams still owe, sends what
// is left, and closes everything. When ctx ends first, the rest is closed as it is, and its error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.stopListening() {
		return nil
	}
	s.draining.Store(true)
	err := s.until(ctx, func() bool { return s.taken.Load() <= 0 })
	s.each(func(x *session) { x.post(task{x, x.stop}) })
	if err == nil {
		err = s.until(ctx, s.empty)
	}
	s.cancel()
	s.each(func(x *session) { x.post(task{x, x.kill}) })
	killed, done := context.WithTimeout(context.Background(), killWait)
	defer done()
	if s.until(killed, s.empty) != nil {
		s.o.Log.Error("connections did not close", "connections", s.Connections())
	}
	s.work.Wait()
	s.watch.close()
	if stop := s.engine.Stop(); stop != nil && err == nil {
		err = stop
	}
	if err != nil {
		return fmt.Errorf("remoting: shutdown: %w", err)
	}
	return nil
}

func (s *Server) empty() bool { return s.Connections() == 0 }

func (s *Server) each(f func(*session)) {
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for x := range s.sessions {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		f(x)
	}
}

// until waits for cond.
func (s *Server) until(ctx context.Context, cond func() bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
