package remoting

// balance decides which side is read. A side is paused while too much waits for the other, and the client
// also while it does not take the answers to its own requests. What waits for a frame boundary never
// pauses the side that would bring the boundary.
func (s *session) balance() {
	high, low := s.srv.marks()
	c, u := s.client, s.up
	s.clientFull = beyond(s.clientFull, c.out.n, high, low)
	s.answersFull = beyond(s.answersFull, c.out.n+s.replies.n, high, low)
	if u == nil {
		s.upFull = false
	} else {
		if u.state == wireDialing {
			high = min(high, s.srv.o.WaitingLimit)
			low = min(low, high)
		}
		s.upFull = beyond(s.upFull, u.out.n, high, low)
		u.hold = s.clientFull && c.open() && !c.fin
	}
	c.hold = s.phase == live && (s.upFull || s.answersFull)
}

func beyond(was bool, n, high, low int) bool {
	if was {
		return n > low
	}
	return n > high
}
