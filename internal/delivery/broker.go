package delivery

import (
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/timer"
)

// recheck is the longest pause of a lane whose first entry is not due any more: the clock may come back.
const recheck = time.Second

// broker sends to one broker. Everything is guarded by mu.
type broker struct {
	d    *Delivery
	name string

	mu       sync.Mutex
	topics   map[string]*topic
	ring     []*topic // topics with a ready lane and room, in turn
	inFlight int
	waiting  int
	window   float64 // most requests in flight: 1 to Options.Window
	cutAt    time.Time
	kept     map[*job]*time.Timer

	// While the broker is down one request at a time probes it.
	down      bool
	downSince time.Time
	downTries int
	probeDue  bool
	probe     *time.Timer

	delivered  int64
	retried    int64
	refused    map[int32]int64
	unsendable int64
}

func newBroker(d *Delivery, name string) *broker {
	return &broker{
		d: d, name: name, topics: map[string]*topic{}, window: float64(d.o.Window),
		kept: map[*job]*time.Timer{}, refused: map[int32]int64{},
	}
}

func (b *broker) accept(items []timer.Item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.d.closing.Load() {
		return
	}
	for _, it := range items {
		b.admit(&job{item: it})
	}
	b.pump()
}

// admit puts a job into its lane.
func (b *broker) admit(j *job) {
	name := j.item.Flow.Topic
	t := b.topics[name]
	if t == nil {
		t = &topic{broker: b, name: name, lanes: map[uint16]*lane{}, limit: b.d.o.Window}
		b.topics[name] = t
	}
	l := t.lane(j.item.Lane)
	l.push(j)
	if l.state == laneEmpty {
		t.makeReady(l)
	}
}

// pump sends what may be sent now. Topics take turns; within a topic its lanes do. A run of consecutive
// entries of a lane that goes out as one batch would be taken here.
func (b *broker) pump() {
	for len(b.ring) > 0 && b.inFlight < int(b.window) && !b.d.closing.Load() {
		if b.down && !b.probeDue {
			return
		}
		t := b.ring[0]
		b.ring[0] = nil
		if b.ring = b.ring[1:]; len(b.ring) == 0 {
			b.ring = nil
		}
		t.inRing = false
		if t.inFlight >= t.limit {
			continue
		}
		j := t.next()
		t.enter()
		b.inFlight++
		j.probe, b.probeDue = b.down, false
		b.d.flights.Add(1)
		b.d.work.push(j)
	}
}

// land ends the flight of a job: its lane may go on, or pause. The caller has put the job wherever it
// belongs, calls pump, and in the end flights.Done.
func (b *broker) land(j *job) *lane {
	l := j.lane
	j.lane = nil
	b.inFlight--
	l.topic.inFlight--
	if j.probe {
		j.probe = false
		b.probeDue = b.down
	}
	l.topic.enter()
	return l
}

// pauseLane lets a lane wait.
func (b *broker) pauseLane(l *lane, d time.Duration, reason pauseReason) {
	l.state, l.reason = lanePaused, reason
	if b.d.closing.Load() {
		return
	}
	var own *time.Timer
	own = time.AfterFunc(d, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if l.state == lanePaused && l.pause == own && !b.d.closing.Load() {
			l.topic.makeReady(l)
			b.pump()
		}
	})
	l.pause = own
}

// postpone puts back a job that is not due by the clock of now.
func (b *broker) postpone(j *job, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.land(j)
	l.push(j)
	b.pauseLane(l, min(wait, recheck), pauseEarly)
	b.pump()
}

// drop forgets a job that needs no sending.
func (b *broker) drop(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.land(j)
	l.topic.settleDown(l)
	b.pump()
}

// stored counts a delivery and lets the lane go on.
func (b *broker) stored(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard(j)
	b.delivered++
	b.window = min(b.window+1/b.window, float64(b.d.o.Window))
	l := b.land(j)
	l.topic.settleDown(l)
	b.pump()
}

// busy makes a lane wait whose broker asked for patience.
func (b *broker) busy(j *job, code int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard(j)
	// One halving for all that were in flight together.
	if code != codec.RespGoAway && !j.sentAt.Before(b.cutAt) {
		b.window = max(1, b.window/2)
		b.cutAt = time.Now()
	}
	b.putBack(j, pauseBusy)
	b.pump()
}

// backlogged makes a lane wait whose request found no room in the client's queue.
func (b *broker) backlogged(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putBack(j, pauseBusy)
	b.pump()
}

// again sends a job once more at once, as it has been changed after its refusal.
func (b *broker) again(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard(j)
	b.d.flights.Add(1)
	b.d.work.push(j)
}

// lost makes a lane wait whose request may or may not have been processed. To ask the broker whether it has
// the message, before it is sent again, belongs here.
func (b *broker) lost(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := j.lane.topic; t.heardAt.Before(j.sentAt) {
		t.limit = 1
	}
	if j.probe {
		b.probeFailed(j)
		return
	}
	b.putBack(j, pauseLost)
	b.pump()
}

// putBack returns a job to its lane, which pauses.
func (b *broker) putBack(j *job, reason pauseReason) {
	b.retried++
	j.tries++
	pause := b.d.o.Retry.after(j.tries, b.d.o.Rand())
	l := b.land(j)
	l.push(j)
	b.pauseLane(l, pause, reason)
}

// unreachable puts back a job that was not sent: nothing more is sent until the broker is back. To hand the
// job to another broker, once this one has been down for long, belongs here.
func (b *broker) unreachable(j *job, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j.probe {
		b.probeFailed(j)
		return
	}
	b.retried++
	l := b.land(j)
	l.push(j)
	l.topic.makeReady(l)
	if b.down {
		return
	}
	b.down, b.downSince, b.downTries = true, time.Now(), 0
	b.d.o.Log.Warn("broker cannot be reached, its messages wait", "broker", b.name, "waiting", b.waiting, "err", err)
	b.armProbe()
}

func (b *broker) probeFailed(j *job) {
	b.retried++
	l := b.land(j)
	l.push(j)
	l.topic.makeReady(l)
	b.armProbe()
}

func (b *broker) armProbe() {
	b.probeDue = false
	b.downTries++
	if b.d.closing.Load() {
		return
	}
	b.probe = time.AfterFunc(b.d.o.Retry.after(b.downTries, b.d.o.Rand()), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probeDue = b.down
		b.pump()
	})
}

// heard notes that the broker answered. Whatever waited for that goes on.
func (b *broker) heard(j *job) {
	t := j.lane.topic
	t.heardAt = time.Now()
	if t.limit < b.d.o.Window {
		t.limit = min(2*t.limit, b.d.o.Window)
		t.resume(pauseLost)
	}
	if !b.down {
		return
	}
	b.down, b.probeDue = false, false
	if b.probe != nil {
		b.probe.Stop()
	}
	b.d.o.Log.Info("broker answers again", "broker", b.name, "waiting", b.waiting,
		"after", time.Since(b.downSince).Round(time.Millisecond))
	for _, t := range b.topics {
		t.resume(pauseLost)
	}
}

// stop ends all timers. Delivery.closing is set.
func (b *broker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probe != nil {
		b.probe.Stop()
	}
	for _, k := range b.kept {
		k.Stop()
	}
	for _, t := range b.topics {
		for _, l := range t.lanes {
			if l.pause != nil {
				l.pause.Stop()
			}
		}
	}
}

func (b *broker) addTo(s *Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Delivered += b.delivered
	s.Retried += b.retried
	s.Unsendable += b.unsendable
	s.InFlight += b.inFlight
	s.Waiting += b.waiting
	s.Kept += len(b.kept)
	for code, n := range b.refused {
		s.Refused[code] += n
	}
	if b.down {
		s.Down = append(s.Down, b.name)
	}
}
