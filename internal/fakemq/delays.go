package fakemq

import (
	"container/heap"
	"strconv"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// delayed is a message that waits for its due time.
type delayed struct {
	due     int64 // wall clock, ms
	seq     int64 // order among equal due times
	since   int64 // accepted at, ms
	message codec.StoredMessage
}

// delayHeap is ordered by (due, seq).
type delayHeap []delayed

func (h delayHeap) Len() int { return len(h) }
func (h delayHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].seq < h[j].seq
}
func (h delayHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *delayHeap) Push(x any)   { *h = append(*h, x.(delayed)) }
func (h *delayHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = delayed{}
	*h = (*h)[:last]
	return x
}

// schedule brings m, whose topic and queue are the real ones, back at due. b.mu is held.
func (b *Broker) schedule(due int64, m codec.StoredMessage) {
	b.delaySeq++
	heap.Push(&b.delays, delayed{due: due, seq: b.delaySeq, since: b.nowMs(), message: m})
	if b.delays[0].seq == b.delaySeq {
		notify(b.earlier)
	}
}

// delayLoop fires what is due until halt is closed.
func (b *Broker) delayLoop(halt <-chan struct{}) {
	for {
		wait := b.fireDue()
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-b.earlier:
		case <-halt:
			t.Stop()
			return
		}
		t.Stop()
	}
}

// fireDue stores everything that is due and returns how long to wait before looking again. Wall clocks
// jump, so it never waits longer than a second.
func (b *Broker) fireDue() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.delays) > 0 {
		if ahead := b.delays[0].due - b.nowMs(); ahead > 0 {
			return time.Duration(min(ahead, 1000)) * time.Millisecond
		}
		b.fire(heap.Pop(&b.delays).(delayed))
	}
	return time.Second
}

func (b *Broker) fire(d delayed) {
	m := d.message
	props := codec.ParseProperties(m.Properties)
	if _, timer := props.Get(codec.PropTimerOutMs); timer {
		if _, level := props.Get(codec.PropDelay); !level {
			props.Set(codec.PropTimerEnqueueMs, strconv.FormatInt(d.since, 10))
			props.Set(codec.PropTimerDequeueMs, strconv.FormatInt(b.nowMs(), 10))
			m.Properties = props.String()
		}
	}
	b.store(m)
}
