package delivery

import (
	"container/heap"
	"time"

	"github.com/delaygate/delaygate/timer"
)

// job is one fired entry on its way.
type job struct {
	item     timer.Item
	lane     *lane // while in flight
	sentAt   time.Time
	tries    int  // sends in a row that came to nothing
	refusals int  // refusals and failures to read it
	probe    bool // the one request that tries whether its broker is back

	moved bool  // its queue is gone: it goes to queue instead
	queue int32 // -1: the broker picks
}

func before(a, b *job) bool {
	if a.item.Due != b.item.Due {
		return a.item.Due < b.item.Due
	}
	return a.item.LSN < b.item.LSN
}

// jobs is a heap by (due, LSN). Entries mostly come in that order, which costs a heap nothing; one that was
// put with a due time in the past, or that was kept aside, comes in front of those still waiting.
type jobs []*job

func (h jobs) Len() int           { return len(h) }
func (h jobs) Less(i, k int) bool { return before(h[i], h[k]) }
func (h jobs) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *jobs) Push(x any)        { *h = append(*h, x.(*job)) }
func (h *jobs) Pop() any {
	old := *h
	last := len(old) - 1
	j := old[last]
	old[last] = nil
	*h = old[:last]
	return j
}

type laneState int

const (
	laneEmpty  laneState = iota
	laneActive           // in the topic's ready list, or its first entry is in flight
	lanePaused           // waits for its timer
)

// Why a lane is paused decides what ends the pause before its time.
type pauseReason int

const (
	pauseBusy  pauseReason = iota // the broker asked for patience
	pauseLost                     // no answer: an answer to another one ends it
	pauseEarly                    // the clock went back: the first entry is not due
)

// lane is one queue of a topic on a broker.
type lane struct {
	topic   *topic
	queue   uint16
	waiting jobs
	state   laneState
	reason  pauseReason
	pause   *time.Timer
}

func (l *lane) push(j *job) {
	j.lane = nil
	heap.Push(&l.waiting, j)
	l.topic.broker.waiting++
}

func (l *lane) pop() *job {
	l.topic.broker.waiting--
	j := heap.Pop(&l.waiting).(*job)
	j.lane = l
	return j
}

// topic holds the lanes of one topic on a broker.
type topic struct {
	broker   *broker
	name     string
	lanes    map[uint16]*lane
	ready    []*lane
	inRing   bool
	inFlight int
	// limit is the most requests in flight: 1 after a request was lost while nothing else of the topic was
	// answered, so that a broker that hangs is not sent the same messages again and again; doubled by each
	// answer.
	limit   int
	heardAt time.Time
}

func (t *topic) lane(queue uint16) *lane {
	l := t.lanes[queue]
	if l == nil {
		l = &lane{topic: t, queue: queue}
		t.lanes[queue] = l
	}
	return l
}

// makeReady queues a lane that has entries for its turn.
func (t *topic) makeReady(l *lane) {
	l.state = laneActive
	t.ready = append(t.ready, l)
	t.enter()
}

// enter puts the topic into the broker's ring when it has something to send.
func (t *topic) enter() {
	if !t.inRing && len(t.ready) > 0 && t.inFlight < t.limit {
		t.inRing = true
		t.broker.ring = append(t.broker.ring, t)
	}
}

// next takes the first entry of the lane whose turn it is.
func (t *topic) next() *job {
	l := t.ready[0]
	t.ready[0] = nil
	if t.ready = t.ready[1:]; len(t.ready) == 0 {
		t.ready = nil
	}
	t.inFlight++
	return l.pop()
}

// settleDown decides how a lane goes on that is no longer busy or paused.
func (t *topic) settleDown(l *lane) {
	if len(l.waiting) > 0 {
		t.makeReady(l)
		return
	}
	l.state = laneEmpty
	delete(t.lanes, l.queue)
	if len(t.lanes) == 0 {
		delete(t.broker.topics, t.name)
	}
}

// resume ends pauses of one reason.
func (t *topic) resume(reason pauseReason) {
	for _, l := range t.lanes {
		if l.state == lanePaused && l.reason == reason {
			l.pause.Stop()
			t.makeReady(l)
		}
	}
}
