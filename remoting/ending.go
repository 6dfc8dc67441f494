package remoting

import (
	"time"

	"github.com/delaygate/delaygate/codec"
)

// end begins the end of both sides.
func (s *session) end() {
	s.phase = ending
	s.startLinger()
}

// kill closes both sides in this turn.
func (s *session) kill() {
	s.client.dead = true
	if s.up != nil {
		s.up.dead = true
	}
}

// startLinger bounds the time that is left to this session.
func (s *session) startLinger() {
	if s.lingering != nil {
		return
	}
	s.lingering = time.AfterFunc(s.srv.o.Linger, func() { s.post(task{s, s.kill}) })
}

// stop is the end by the server.
func (s *session) stop() { s.stopping = true }

// advance lets what has happened to one side have its consequences; true when there may be more.
//
// When the client has ended, the upstream is given what still waits for it, then it is told; what it
// sends until it ends, too, still goes to the client, which may have closed one direction only. When the
// upstream has ended, the client is given what waits for it and error 14 for each request without a
// reply, then it is told. What the client sends in the meantime is read and dropped: closing a socket
// with unread bytes in it makes the peer lose what was on its way there.
func (s *session) advance() (changed bool) {
	c, u := s.client, s.up
	changed = c.fail()
	if u != nil && u.fail() {
		changed = true
	}
	upGone := u == nil || u.dead || u.eof
	if s.phase == live {
		if !c.dead && !c.eof && !s.stopping && (u == nil || !upGone) {
			return changed
		}
		s.end()
		changed = true
	}
	if u != nil {
		u.fin = true
		changed = u.conclude(true) || changed
	}
	if (upGone || s.stopping) && !c.fin {
		s.fail14()
		c.fin = true
		changed = true
	}
	cut := !s.back.boundary() // inside a frame that will never be whole: nothing of ours can follow
	return c.conclude(cut || (s.taken <= 0 && s.replies.n == 0)) || changed
}

// fail14 answers what the upstream has left unanswered, if the client is between two frames.
func (s *session) fail14() {
	if s.flights == nil || !s.back.boundary() {
		return
	}
	remark := remarkEnded
	if s.stopping {
		remark = remarkStopping
	}
	s.flights.take(func(h codec.Head) { s.answer(h, codec.RespServiceNotAvailable, remark) })
	s.waiting = nil // they are among the flights
	s.flushReplies()
}

// fail notices that the socket has failed.
func (w *wire) fail() bool {
	if !w.broken || w.dead {
		return false
	}
	w.dead = true
	return true
}

// conclude ends the sending side of a wire once nothing more is coming for it and all has gone out, and
// the wire itself when its peer has ended, too.
func (w *wire) conclude(nothingComing bool) bool {
	if w.dead || !w.fin || w.out.n > 0 || !nothingComing {
		return false
	}
	if w.eof || w.fd < 0 {
		w.dead = true
		return true
	}
	if w.shut {
		return false
	}
	w.finish()
	return true
}

// stillNeeds reports whether a wire whose peer has sent its last byte has more to get.
func (s *session) stillNeeds(w *wire) bool {
	if w.out.n > 0 {
		return true
	}
	if w != s.client {
		return false
	}
	s.takePending()
	return s.taken > 0 || s.replies.n > 0 || (s.up != nil && s.up.open() && !s.up.eof)
}
