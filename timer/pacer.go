package timer

import "time"

const (
	paceStep = 256 << 10             // bytes between two looks at the clock
	paceBusy = 4                     // how much slower a merge is while puts wait or firing lags
	paceLag  = 20 * time.Millisecond // what counts as lagging
)

// pacer keeps a merge to Options.MergeBytesPerSec, and well below it while intake or firing have much to do.
type pacer struct {
	s    *Store    // nil: nothing is held back
	owed int       // bytes since the last pause
	next time.Time // when more may be spent
}

// spend counts n bytes and pauses when it is time to. ErrClosed: the store closes.
func (p *pacer) spend(n int) error {
	if p.owed += n; p.owed < paceStep || p.s == nil {
		return nil
	}
	took := time.Duration(float64(p.owed) / float64(p.s.o.MergeBytesPerSec) * float64(time.Second))
	p.owed = 0
	if p.s.busy() {
		took *= paceBusy
	}
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(took)
	t := time.NewTimer(p.next.Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.s.stop:
		return ErrClosed
	}
}

// busy says whether a merge should step back. With far too many runs it must not.
func (s *Store) busy() bool {
	s.log.mu.Lock()
	waits := s.log.err != nil || len(s.log.open.buf) > s.o.GroupBytes/8
	s.log.mu.Unlock()
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) > s.o.MaxRuns+s.o.MaxRuns/4 {
		return false
	}
	due, armed := s.wheel.nextDue()
	return waits || s.oldestFull() != nil || armed && due < now-paceLag.Milliseconds()
}
