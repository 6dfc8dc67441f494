package delivery

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/timer"
)

// workQueue hands jobs to the goroutines that load and send. The windows of the brokers bound it.
type workQueue struct {
	mu     sync.Mutex
	filled *sync.Cond
	jobs   []*job
	closed bool
}

func (q *workQueue) init() { q.filled = sync.NewCond(&q.mu) }

func (q *workQueue) push(j *job) {
	q.mu.Lock()
	q.jobs = append(q.jobs, j)
	q.mu.Unlock()
	q.filled.Signal()
}

// pop waits for a job; nil when the queue was closed.
func (q *workQueue) pop() *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 {
		if q.closed {
			return nil
		}
		q.filled.Wait()
	}
	j := q.jobs[0]
	q.jobs[0] = nil
	if q.jobs = q.jobs[1:]; len(q.jobs) == 0 {
		q.jobs = nil
	}
	return j
}

func (q *workQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.filled.Broadcast()
}

var (
	errNoMaster = errors.New("no master of this broker is known")
	errNoSend   = errors.New("not a SEND_MESSAGE_V2 frame")
)

// send loads a job's frame and sends it.
func (d *Delivery) send(j *job) {
	b := j.lane.topic.broker
	if d.closing.Load() {
		b.drop(j)
		d.flights.Done()
		return
	}
	if d.early(j) {
		return
	}
	addr, ok := d.o.Master(b.name)
	if !ok {
		b.unreachable(j, errNoMaster)
		d.flights.Done()
		return
	}
	frame, err := d.frame(j)
	switch {
	case errors.Is(err, timer.ErrSettled), errors.Is(err, timer.ErrCorrupt): // the store has given it up, and says so
		b.drop(j)
		d.flights.Done()
		return
	case err != nil:
		d.unsendable(j, nil, err)
		d.flights.Done()
		return
	case d.early(j):
		return
	}
	j.sentAt = time.Now()
	d.o.Send(addr, frame, d.o.Timeout, func(r *codec.Command, err error) {
		defer d.flights.Done()
		if !d.closed.Load() {
			d.answered(j, frame, r, err)
		}
	})
}

// early puts a job back that is not due: the wall clock may have gone back since it fired.
func (d *Delivery) early(j *job) bool {
	wait := j.item.Due - d.o.Now()
	if wait <= 0 {
		return false
	}
	j.lane.topic.broker.postpone(j, time.Duration(min(wait, recheck.Milliseconds()))*time.Millisecond)
	d.flights.Done()
	return true
}

// frame returns what is to be sent: the stored frame, with another queue id where its queue is gone.
func (d *Delivery) frame(j *job) ([]byte, error) {
	frame, err := d.o.Store.Load(j.item)
	if err != nil || !j.moved {
		return frame, err
	}
	c, err := codec.Decode(frame)
	if err != nil {
		return nil, err
	}
	if _, ok := c.Fields.Get("e"); !ok {
		return nil, errNoSend
	}
	c.Fields.Set("e", fmt.Sprint(j.queue))
	return c.Append(nil)
}

func (d *Delivery) answered(j *job, frame []byte, r *codec.Command, err error) {
	b := j.lane.topic.broker
	switch {
	case errors.Is(err, upstream.ErrBadFrame):
		d.unsendable(j, frame, err)
	case errors.Is(err, upstream.ErrQueueFull):
		b.backlogged(j)
	case errors.Is(err, upstream.ErrNotSent):
		b.unreachable(j, err)
	case err != nil:
		b.lost(j)
	default:
		d.replied(j, frame, r)
	}
}

func (d *Delivery) replied(j *job, frame []byte, r *codec.Command) {
	b := j.lane.topic.broker
	switch r.Code {
	case codec.RespSuccess, codec.RespFlushDiskTimeout, codec.RespSlaveNotAvailable, codec.RespFlushSlaveTimeout:
		d.o.OnDelivered(j.item, d.o.Now())
		d.settle(j)
	case codec.RespSystemBusy, codec.RespServiceNotAvailable, codec.RespGoAway:
		b.busy(j, r.Code)
	default:
		if queueGone(r) && d.otherQueue(j) {
			b.again(j)
			return
		}
		d.refused(j, frame, r)
	}
}

// settleWait is how long a lane waits at most until its settle is written. A disk that is held up makes
// repeats after a kill more likely, but nothing late by more.
const settleWait = time.Second

// settle ends the flight of a message that is stored. Its lane goes on when a killed process would not forget
// that: of what a lane has sent, only the last request can then repeat.
func (d *Delivery) settle(j *job) {
	b := j.lane.topic.broker
	d.flights.Add(1)
	goOn := sync.OnceFunc(func() {
		defer d.flights.Done()
		b.stored(j)
	})
	patience := time.AfterFunc(settleWait, goOn)
	d.o.Store.SettleThen(j.item, func() {
		patience.Stop()
		goOn()
	})
}

// queueGone: 5.x answers 29 INVALID_PARAMETER, 4.x 1 SYSTEM_ERROR, both with this remark, to a queue id
// past the topic's queues (AbstractSendMessageProcessor.msgCheck).
func queueGone(r *codec.Command) bool {
	return r.Code == codec.RespInvalidParameter || r.Code == codec.RespSystemError && strings.Contains(r.Remark, "request queueId")
}

// otherQueue chooses a queue that exists, else lets the broker pick; false when it has refused even that.
func (d *Delivery) otherQueue(j *job) bool {
	if j.moved && j.queue < 0 {
		return false
	}
	queue := int32(-1)
	if n, ok := d.o.WriteQueues(j.item.Flow.Broker, j.item.Flow.Topic); ok && n > 0 && !j.moved {
		if q := int32(j.item.Lane) % n; q != int32(j.item.Lane) {
			queue = q
		}
	}
	j.moved, j.queue = true, queue
	return true
}
