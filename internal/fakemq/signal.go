package fakemq

import "sync"

// signal wakes all who wait for the next change. The zero value is ready for use.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that the next raise closes. Take it before looking at what may change.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
