package gate

import (
	"context"
	"sync"
)

// pool runs tasks on at most max goroutines, which live only while there is work. What waits is bounded in
// number and in bytes.
type pool struct {
	max, limit int
	budget     int64

	mu      sync.Mutex
	running int
	waiting []task
	bytes   int64
	closed  bool
	idle    chan struct{} // closed when the pool is closed and nothing runs
}

type task struct {
	size int64
	run  func()
}

func newPool(max, limit int, budget int64) *pool {
	return &pool{max: max, limit: limit, budget: budget, idle: make(chan struct{})}
}

// submit takes a task that holds size bytes; false when too much waits or the pool is closed. It never
// blocks.
func (p *pool) submit(size int, run func()) bool {
	t := task{int64(size), run}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || p.bytes+t.size > p.budget:
		return false
	case p.running < p.max:
		p.running++
		p.bytes += t.size
		go p.work(t)
		return true
	case len(p.waiting) >= p.limit:
		return false
	}
	p.bytes += t.size
	p.waiting = append(p.waiting, t)
	return true
}

func (p *pool) work(t task) {
	for ok := true; ok; {
		t.run()
		t, ok = p.next(t)
	}
}

// next ends one task and returns the next.
func (p *pool) next(done task) (task, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= done.size
	if len(p.waiting) > 0 {
		t := p.waiting[0]
		p.waiting[0] = task{}
		if p.waiting = p.waiting[1:]; len(p.waiting) == 0 {
			p.waiting = nil
		}
		return t, true
	}
	if p.running--; p.closed && p.running == 0 {
		close(p.idle)
	}
	return task{}, false
}

// close refuses new tasks and waits until those taken have run.
func (p *pool) close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		if p.running == 0 {
			close(p.idle)
		}
	}
	p.mu.Unlock()
	select {
	case <-p.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
