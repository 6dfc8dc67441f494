package remoting

import (
	"errors"

	"github.com/valyala/bytebufferpool"

	"github.com/delaygate/delaygate/codec"
)

var (
	errPartial  = errors.New("the last frame is not whole")
	errOverFull = errors.New("no memory is left for its header (Options.Budget)")
)

type scanMode byte

const (
	atHead    scanMode = iota // at a frame boundary, or inside a header
	streaming                 // the rest of the frame goes to the upstream as it arrives
	skipping                  // the rest of the frame goes nowhere
	gathering                 // the whole frame is for the handler
)

// scanner is where a session stands in its client's byte stream. Loop only.
type scanner struct {
	mode scanMode
	left int                        // streaming, skipping: bytes of the frame still to come
	head codec.Head                 // gathering: of the frame
	buf  *bytebufferpool.ByteBuffer // the beginning of a frame: all of its bytes so far; nil at a boundary
}

// hold adds p to the beginning of a frame.
func (c *scanner) hold(m *memory, p []byte) {
	if c.buf == nil {
		c.buf = m.gathers.Get()
	}
	_, _ = c.buf.Write(p)
	m.used.Add(int64(len(p)))
}

func (c *scanner) release(m *memory) {
	if c.buf == nil {
		return
	}
	m.used.Add(-int64(c.buf.Len()))
	m.gathers.Put(c.buf)
	c.buf = nil
}

// fate is what happens to a frame of the client, known from its header.
type fate byte

const (
	relayed fate = iota
	skipped
	wanted
)

// fromClient sorts the bytes p that have arrived from the client; p[run:i] may go on to the upstream as it is.
func (s *session) fromClient(p []byte) {
	if s.phase != live {
		return
	}
	run, i := 0, 0
	for i < len(p) && !s.client.dead {
		n, goesOn := s.scan(p[i:])
		if !goesOn {
			s.toUpstream(p[run:i])
			run = i + n
		}
		i += n
		if s.in.mode == atHead && len(s.relays) > 0 {
			s.toUpstream(p[run:i])
			run = i
			s.flushRelays()
		}
	}
	s.toUpstream(p[run:i])
}

// scan looks at the bytes in p up to the end of one frame, at most: their number, and whether they go on
// to the upstream. While a frame's beginning is held there is nothing before p that still has to go on.
func (s *session) scan(p []byte) (n int, goesOn bool) {
	switch s.in.mode {
	case streaming:
		return s.in.pass(len(p)), true
	case skipping:
		return s.in.pass(len(p)), false
	case gathering:
		return s.gather(p), false
	}
	if s.in.buf != nil {
		return s.scanHeld(p), false
	}
	end, err := codec.HeaderEnd(p)
	if err != nil {
		s.illegal(err)
		return 0, true
	}
	if end == 0 || end > len(p) {
		s.in.hold(&s.srv.mem, p)
		return len(p), false
	}
	h, f := s.judge(p[:end])
	switch {
	case f == relayed:
		s.in.mode, s.in.left = streaming, h.Size
		return 0, true
	case f == skipped:
		s.in.mode, s.in.left = skipping, h.Size
		return 0, false
	case h.Size <= len(p):
		return h.Size, s.handle(h, p[:h.Size]) == Pass
	case s.refuseGather(h):
		s.in.mode, s.in.left = skipping, h.Size
		return 0, false
	}
	s.in.mode, s.in.head = gathering, h
	return s.gather(p), false
}

// pass takes up to n bytes of the frame that is streamed or skipped.
func (c *scanner) pass(n int) int {
	n = min(n, c.left)
	if c.left -= n; c.left == 0 {
		c.mode = atHead
	}
	return n
}

// scanHeld goes on with a header that did not arrive in one piece.
func (s *session) scanHeld(p []byte) (n int) {
	held := s.in.buf.Len()
	want := 4
	if held >= 4 {
		want = 8
	}
	if held >= 8 {
		want, _ = codec.HeaderEnd(s.in.buf.B) // checked when it became known
	}
	n = min(want-held, len(p))
	s.in.hold(&s.srv.mem, p[:n])
	if held+n < want {
		if held > 4*chunkSize && s.srv.mem.over() {
			s.illegal(errOverFull)
		}
		return n
	}
	end, err := codec.HeaderEnd(s.in.buf.B)
	if err != nil {
		s.illegal(err)
		return n
	}
	if end == want {
		s.headHeld()
	}
	return n
}

// headHeld decides about the frame whose header is now whole in the held bytes.
func (s *session) headHeld() {
	held := s.in.buf.Len()
	h, f := s.judge(s.in.buf.B)
	if f == wanted && s.refuseGather(h) {
		f = skipped
	}
	switch f {
	case wanted:
		s.in.mode, s.in.head = gathering, h
		s.gather(nil)
		return
	case relayed:
		s.toUpstream(s.in.buf.B)
		s.in.mode = streaming
	case skipped:
		s.in.mode = skipping
	}
	s.in.release(&s.srv.mem)
	s.in.left = h.Size - held
	s.in.pass(0)
}

// gather adds to the frame that is for the handler, and calls it when the frame is whole.
func (s *session) gather(p []byte) (n int) {
	held := 0
	if s.in.buf != nil {
		held = s.in.buf.Len()
	}
	n = min(s.in.head.Size-held, len(p))
	s.in.hold(&s.srv.mem, p[:n])
	if held+n < s.in.head.Size {
		return n
	}
	s.in.mode = atHead
	if s.handle(s.in.head, s.in.buf.B) == Pass {
		s.toUpstream(s.in.buf.B)
	}
	s.in.release(&s.srv.mem)
	return n
}

// judge decides about a frame by the bytes up to the end of its header.
func (s *session) judge(header []byte) (codec.Head, fate) {
	h, err := codec.ParseHead(header)
	if err != nil {
		s.illegal(err)
		return h, skipped
	}
	if h.IsResponse() {
		if s.up == nil {
			return h, skipped // an answer to nothing
		}
		return h, relayed
	}
	if s.srv.o.Handler.Wants(s, h, header) {
		if s.srv.draining.Load() {
			s.answer(h, codec.RespServiceNotAvailable, remarkStopping)
			return h, skipped
		}
		return h, wanted
	}
	if !s.admit(h) {
		return h, skipped
	}
	return h, relayed
}

// handle lets the handler decide about a whole frame; what it passes has been admitted.
func (s *session) handle(h codec.Head, frame []byte) Verdict {
	owed := 1
	if h.IsOneway() {
		owed = 0
	}
	s.taking(owed)
	v := s.srv.o.Handler.Handle(s, h, frame)
	if v == Taken {
		return Taken
	}
	s.taking(-owed)
	if v == Pass && s.admit(h) {
		return Pass
	}
	if v != Pass {
		s.kill()
	}
	return Taken
}

// refuseGather answers SYSTEM_BUSY instead of gathering a frame while the server buffers too much.
func (s *session) refuseGather(h codec.Head) bool {
	if !s.srv.mem.over() {
		return false
	}
	s.answer(h, codec.RespSystemBusy, remarkBusy)
	return true
}

// illegal closes the connection after a frame that no RocketMQ server accepts, as the Java server does.
func (s *session) illegal(err error) {
	s.log().Warn("illegal frame from a client; the connection is closed", "err", err)
	s.client.dead = true
}
