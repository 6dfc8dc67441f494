package remoting

import "github.com/delaygate/delaygate/codec"

// waiting is a request that waits for the upstream's dial.
type waiting struct {
	opaque    int32
	serialize codec.Serialize
}

// admit prepares the relaying of a request: it has the upstream dialled if there is none yet, and notes
// the request. On the name-server port nothing is relayed: the request is answered, and admit is false.
func (s *session) admit(h codec.Head) bool {
	if s.broker == "" {
		s.answer(h, codec.RespNotSupported, remarkNoUpstream)
		return false
	}
	if s.up == nil {
		s.dial()
	}
	s.flights.add(h)
	if s.up.state == wireDialing && !h.IsOneway() && !h.IsResponse() {
		s.waiting = append(s.waiting, waiting{h.Opaque, h.Serialize})
	}
	return true
}

// toUpstream sends admitted bytes.
func (s *session) toUpstream(p []byte) {
	if len(p) > 0 {
		s.up.write(p)
	}
}

// flushRelays sends what Peer.Relay was given, unless a frame is half relayed.
func (s *session) flushRelays() {
	if len(s.relays) == 0 || s.in.mode == streaming {
		return
	}
	relays := s.relays
	s.relays = nil
	_ = eachFrame(relays, func(h codec.Head, frame []byte) { // whole: Relay has checked
		switch {
		case s.phase == live || (s.up != nil && s.up.open()):
			if s.admit(h) {
				s.toUpstream(frame)
			}
		default:
			s.answer(h, codec.RespServiceNotAvailable, remarkEnded)
		}
	}, true)
	s.srv.mem.used.Add(-int64(len(relays)))
	s.relays = spent(relays)
}

// flushReplies sends our own replies, unless a frame of the upstream is half relayed.
func (s *session) flushReplies() {
	if s.replies.n > 0 && s.back.boundary() {
		s.client.writeAll(&s.replies)
	}
}
