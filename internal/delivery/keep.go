package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/timer"
)

// refused keeps a message that its broker will not take as it is. To park it for an operator, after a
// grace time, belongs here.
func (d *Delivery) refused(j *job, frame []byte, r *codec.Command) {
	b := j.lane.topic.broker
	again := b.keep(j, func() {
		b.heard(j)
		b.refused[r.Code]++
	})
	d.logKept("message refused, kept and tried again later", j.item, frame, again,
		slog.Int("code", int(r.Code)), slog.String("remark", r.Remark))
}

// unsendable keeps an entry whose body cannot be read, or is no frame that a broker would take.
func (d *Delivery) unsendable(j *job, frame []byte, err error) {
	b := j.lane.topic.broker
	again := b.keep(j, func() { b.unsendable++ })
	d.logKept("message cannot be sent, kept and tried again later", j.item, frame, again, slog.Any("err", err))
}

// logKept warns of the first failure of a message; later ones are detail.
func (d *Delivery) logKept(text string, it timer.Item, frame []byte, again keeping, why ...slog.Attr) {
	level := slog.LevelDebug
	if again.failures == 1 {
		level = slog.LevelWarn
	}
	if !d.o.Log.Enabled(context.Background(), level) {
		return
	}
	attrs := append([]slog.Attr{
		slog.String("broker", it.Flow.Broker), slog.String("topic", it.Flow.Topic), slog.Int("queue", int(it.Lane)),
		slog.String("key", uniqKey(frame)), slog.Int64("due", it.Due), slog.Uint64("lsn", uint64(it.LSN)),
		slog.Int("failures", again.failures), slog.Duration("next_try", again.pause),
	}, why...)
	d.o.Log.LogAttrs(context.Background(), level, text, attrs...)
}

func uniqKey(frame []byte) string {
	c, err := codec.Decode(frame)
	if err != nil {
		return ""
	}
	h, err := codec.ParseSendHeader(c)
	if err != nil {
		return ""
	}
	key, _ := codec.ParseProperties(h.Properties).Get(codec.PropUniqKey)
	return key
}

// keeping says how a kept message goes on.
type keeping struct {
	failures int
	pause    time.Duration
}

// keep takes a job out of its lane for a while; those behind it go on. count runs under the mutex, before
// the lane goes on.
func (b *broker) keep(j *job, count func()) keeping {
	b.mu.Lock()
	defer b.mu.Unlock()
	count()
	j.refusals++
	j.tries, j.moved = 0, false
	k := keeping{failures: j.refusals, pause: b.d.o.Refused.after(j.refusals, b.d.o.Rand())}
	l := b.land(j)
	l.topic.settleDown(l)
	if !b.d.closing.Load() {
		b.kept[j] = time.AfterFunc(k.pause, func() { b.readmit(j) })
		b.pump()
	}
	return k
}

// readmit returns a kept job to its lane: in front, since it is the oldest.
func (b *broker) readmit(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.d.closing.Load() {
		return
	}
	delete(b.kept, j)
	b.admit(j)
	b.pump()
}
