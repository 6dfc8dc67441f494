package remoting

import "github.com/delaygate/delaygate/codec"

// maxTrackedHeader is the longest header, in bytes, that the tracker puts together when it arrives in
// pieces; a longer one only costs the entry of its reply in the in-flight table.
const maxTrackedHeader = 64 << 10

// tracker is where a session stands in its upstream's byte stream. The bytes are relayed as they arrive;
// only frame boundaries and headers are looked for. Loop only.
type tracker struct {
	size int    // of the current frame; 0 until its length word is whole
	seen int    // bytes of it so far; 0 at a boundary
	end  int    // where its header ends; 0 until that is known
	read bool   // its header has been seen, or is not looked for
	part []byte // its beginning, as long as the header is not whole and has arrived in pieces
}

func (t *tracker) boundary() bool { return t.seen == 0 }

// next takes bytes of p up to the end of a frame, at most. header is set once for each frame, when it is
// whole, and valid until the next call.
func (t *tracker) next(p []byte) (n int, header []byte, err error) {
	if t.seen == 0 {
		t.size, t.end, t.read, t.part = 0, 0, false, t.part[:0]
		if t.size, err = codec.FrameSize(p); err != nil {
			return 0, nil, err
		}
		if t.end, err = codec.HeaderEnd(p); err != nil {
			t.read, err = true, nil
		}
		if t.end > 0 && t.end <= len(p) && !t.read {
			header, t.read = p[:t.end], true
		}
		if t.size > 0 && t.read {
			return t.pass(len(p)), header, nil
		}
	}
	if t.read {
		return t.pass(len(p)), nil, nil
	}
	return t.piece(p)
}

func (t *tracker) pass(n int) int {
	n = min(n, t.size-t.seen)
	if t.seen += n; t.seen == t.size {
		t.seen = 0
		if cap(t.part) > keepBuffer {
			t.part = nil
		}
	}
	return n
}

// piece goes on with a beginning that arrives in pieces.
func (t *tracker) piece(p []byte) (n int, header []byte, err error) {
	want := 4
	if t.seen >= 4 {
		want = 8
	}
	if t.seen >= 8 {
		want = t.end
	}
	n = min(want-t.seen, len(p))
	t.part = append(t.part, p[:n]...)
	t.seen += n
	if t.seen < want {
		return n, nil, nil
	}
	if t.size, err = codec.FrameSize(t.part); err != nil {
		return n, nil, err
	}
	if want >= 8 {
		if t.end, err = codec.HeaderEnd(t.part); err != nil || t.end > maxTrackedHeader {
			t.read, err = true, nil
		} else if t.end == t.seen {
			header, t.read = t.part, true
		}
	}
	t.pass(0)
	return n, header, nil
}

// fromUpstream relays what has arrived from the upstream; our own replies go between two frames.
func (s *session) fromUpstream(p []byte) {
	if s.client.fin || !s.client.open() {
		return
	}
	run, i := 0, 0
	for i < len(p) {
		if s.back.boundary() && s.replies.n > 0 {
			s.client.write(p[run:i])
			run = i
			s.flushReplies()
		}
		n, header, err := s.back.next(p[i:])
		if err != nil {
			s.log().Error("illegal frame from the upstream; both connections are closed", "err", err)
			s.kill()
			return
		}
		s.answered(header)
		i += n
	}
	s.client.write(p[run:])
}

// answered notes the reply with this header.
func (s *session) answered(header []byte) {
	if header == nil {
		return
	}
	if h, err := codec.ParseHead(header); err == nil && h.IsResponse() {
		s.flights.done(h.Opaque)
	}
}
