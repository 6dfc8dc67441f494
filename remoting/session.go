package remoting

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
)

type phase byte

const (
	live   phase = iota
	ending       // one side has ended, or the server stops: what is left goes out, nothing new is accepted
	gone
)

// session is one client connection and, once a frame must be relayed, its upstream connection on the same
// event loop. All fields below mu are guarded by it; the others belong to the loop, but for those that never change.
type session struct {
	srv           *Server
	broker        string // "" on the name-server port
	port          int
	local, remote netip.AddrPort
	loop          gnet.EventLoop // set before the first turn

	phase  phase
	client *wire
	up     *wire // nil until the first frame must be relayed, and again after a failed dial

	in      scanner   // client -> upstream
	back    tracker   // upstream -> client
	flights *inflight // nil as long as up is
	waiting []waiting // requests that wait for the dial
	replies outbox    // ours, for the client's next frame boundary
	relays  []byte    // taken frames, for the upstream's next frame boundary
	taken   int       // as of the last turn

	clientFull  bool // the client takes too little of what the upstream sends
	answersFull bool // ... or of our own replies
	upFull      bool // the upstream takes too little of what the client sends
	stopping    bool // the server shuts down
	lingering   *time.Timer
	settling    bool // leave is at work

	mu      sync.Mutex
	closed  bool
	turning bool // the loop will look at pending before this turn ends
	asked   bool // a task that will is scheduled
	pending pending
}

func newSession(srv *Server, t target, local, remote netip.AddrPort) *session {
	s := &session{srv: srv, broker: t.broker, port: t.port, local: local, remote: remote}
	s.client = newWire(s)
	s.replies.mem, s.pending.replies.mem = &srv.mem, &srv.mem
	return s
}

func (s *session) Broker() string         { return s.broker }
func (s *session) Port() int              { return s.port }
func (s *session) Local() netip.AddrPort  { return s.local }
func (s *session) Remote() netip.AddrPort { return s.remote }

func (s *session) log() *slog.Logger {
	return s.srv.o.Log.With("client", s.remote.String(), "broker", s.broker)
}

// task is a turn of the loop for one session.
type task struct {
	s *session
	f func()
}

func (t task) Run(context.Context) error {
	t.s.turn(t.f)
	return nil
}

// post schedules r on the loop; false when the session has gone. The loops outlive every session that is
// not closed, and the check and the call are under one lock: gnet writes to a descriptor of its own on a
// call after it has stopped, and that may have become someone else's. Any goroutine.
func (s *session) post(r gnet.Runnable) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.postLocked(r)
}

func (s *session) postLocked(r gnet.Runnable) bool {
	if s.closed || s.loop == nil {
		return false
	}
	return s.loop.Execute(context.Background(), r) == nil
}

// turn is one piece of work on the loop, outside gnet's callbacks.
func (s *session) turn(f func()) {
	defer s.rescue(nil, nil)
	if s.phase == gone {
		return
	}
	f()
	s.leave(nil)
}

// traffic is OnTraffic: p has arrived on w.
func (s *session) traffic(w *wire, p []byte) (action gnet.Action) {
	defer s.rescue(w, &action)
	if w == s.client {
		s.fromClient(p)
	} else {
		s.fromUpstream(p)
	}
	return s.leave(w)
}

// opened is OnOpen.
func (s *session) opened(w *wire, c gnet.Conn) (action gnet.Action) {
	defer s.rescue(w, &action)
	if s.loop == nil {
		s.mu.Lock()
		s.loop = c.EventLoop()
		s.mu.Unlock()
	}
	dialed := w.state == wireDialing && w == s.up
	if !w.opened(c) {
		return gnet.Close
	}
	if dialed {
		s.waiting = nil
	}
	return s.leave(w)
}

// closing is OnClose.
func (s *session) closing(w *wire, err error) {
	defer s.rescue(nil, nil)
	w.closed(err)
	if !s.settling { // else leave has asked for it, and goes on
		s.leave(nil)
	}
}

// rescue keeps a panic inside its connection.
func (s *session) rescue(cur *wire, action *gnet.Action) {
	r := recover()
	if r == nil {
		return
	}
	s.log().Error("panic while handling a connection; it is closed", "panic", r, "stack", string(debug.Stack()))
	s.kill()
	a := s.leave(cur)
	if action != nil {
		*action = a
	}
}

// leave ends every turn: it takes over what other goroutines have left, lets an ending side pull the
// other with it, and pauses, resumes and closes. cur is the wire whose gnet callback is running.
func (s *session) leave(cur *wire) gnet.Action {
	if s.phase == gone {
		return gnet.None
	}
	s.takePending()
	s.flushReplies()
	s.flushRelays()
	s.settling = true
	action := gnet.None
	for again := true; again; again = s.advance() { // again: a pause or resumption has failed
		for s.advance() {
		}
		s.balance()
		if s.client.settle(s.client == cur) == gnet.Close {
			action = gnet.Close
		}
		if s.up != nil && s.up.settle(s.up == cur) == gnet.Close {
			action = gnet.Close
		}
	}
	s.settling = false
	s.depart()
	return action
}

// depart forgets the session once both sockets are closed.
func (s *session) depart() {
	if s.phase == gone || s.client.state != wireClosed || (s.up != nil && s.up.state != wireClosed) {
		return
	}
	s.phase = gone
	if s.lingering != nil {
		s.lingering.Stop()
	}
	s.in.release(&s.srv.mem)
	s.replies.clear()
	s.srv.mem.used.Add(-int64(len(s.relays)))
	s.relays = nil
	s.closePending()
	s.srv.forget(s)
}
