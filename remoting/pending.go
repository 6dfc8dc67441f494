package remoting

import (
	"context"

	"github.com/delaygate/delaygate/codec"
)

// keepBuffer is the largest buffer, in bytes, that an idle session keeps.
const keepBuffer = 4 << 10

// pending is what other goroutines have left for the loop, and the count of what they still owe.
// Guarded by session.mu.
type pending struct {
	replies outbox
	relays  []byte
	taken   int // requests that Handle took and that have neither been answered nor sent on; not one-way ones
}

// Reply implements Peer. Each frame answers one request that Handle has taken.
func (s *session) Reply(frame []byte) {
	n := 0
	err := eachFrame(frame, func(codec.Head, []byte) { n++ }, false)
	if err != nil {
		s.log().Error("a reply is not made of whole frames; it is dropped", "err", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.pending.replies.push(frame)
	s.settleTaken(n)
	s.ask()
}

// Relay implements Peer.
func (s *session) Relay(frame []byte) {
	n := 0
	err := eachFrame(frame, func(h codec.Head, _ []byte) {
		if !h.IsOneway() {
			n++
		}
	}, true)
	if err != nil {
		s.log().Error("a frame to relay is not whole; it is dropped", "err", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.pending.relays = append(s.pending.relays, frame...)
	s.srv.mem.used.Add(int64(len(frame)))
	s.settleTaken(n)
	s.ask()
}

// ask makes sure that the loop looks at pending.
func (s *session) ask() {
	if s.turning || s.asked {
		return
	}
	s.asked = s.postLocked((*flush)(s))
}

// flush is the turn that other goroutines ask for.
type flush session

func (f *flush) Run(context.Context) error {
	s := (*session)(f)
	s.turn(func() {})
	return nil
}

// taking counts a request before Handle sees it, so that the count never misses one that is answered at once.
func (s *session) taking(n int) {
	s.mu.Lock()
	s.turning = true
	s.settleTaken(-n)
	s.mu.Unlock()
}

// settleTaken takes n off the count, which a reply nobody was owed does not bring below 0.
func (s *session) settleTaken(n int) {
	n = min(n, s.pending.taken)
	s.pending.taken -= n
	s.srv.taken.Add(int64(-n))
}

// takePending moves what is pending to the loop's own side.
func (s *session) takePending() {
	s.mu.Lock()
	s.replies.take(&s.pending.replies)
	s.relays = takeBytes(s.relays, &s.pending.relays)
	s.taken = s.pending.taken
	s.turning, s.asked = false, false
	s.mu.Unlock()
}

func takeBytes(mine []byte, theirs *[]byte) []byte {
	if len(*theirs) == 0 {
		return mine
	}
	if len(mine) == 0 {
		mine, *theirs = *theirs, mine
		return mine
	}
	mine = append(mine, *theirs...)
	*theirs = spent(*theirs)
	return mine
}

// spent empties a buffer, and gives a big one up.
func spent(b []byte) []byte {
	if cap(b) > keepBuffer {
		return nil
	}
	return b[:0]
}

func (s *session) closePending() {
	s.mu.Lock()
	s.closed = true
	s.pending.replies.clear()
	s.srv.mem.used.Add(-int64(len(s.pending.relays)))
	s.pending.relays = nil
	s.settleTaken(s.pending.taken)
	s.mu.Unlock()
}

// eachFrame calls fn for each frame in b, with its header parsed if heads is set.
func eachFrame(b []byte, fn func(h codec.Head, frame []byte), heads bool) error {
	for len(b) > 0 {
		size, err := codec.FrameSize(b)
		if err != nil {
			return err
		}
		if size == 0 || size > len(b) {
			return errPartial
		}
		var h codec.Head
		if heads {
			if _, err := codec.HeaderEnd(b); err != nil {
				return err
			}
			if h, err = codec.ParseHead(b[:size]); err != nil {
				return err
			}
		}
		fn(h, b[:size])
		b = b[size:]
	}
	return nil
}
