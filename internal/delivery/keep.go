package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// refused keeps a message that its broker will not take as it is. To park it for an operator, after a
// grace time, belongs here.
func (d *Delivery) refused(j *job, frame []byte, r *codec.Command) {
	b := j.lane.topic.broker
	next := b.keep(j, func() {
		b.heard(j)
		b.refused[r.Code]++
	})
	d.logKept("message refused, kept and tried again later", j, frame, next,
		slog.Int("code", int(r.Code)), slog.String("remark", r.Remark))
}

// unsendable keeps an entry whose body cannot be read, or is no frame that a broker would take.
func (d *Delivery) unsendable(j *job, frame []byte, err error) {
	b := j.lane.topic.broker
	next := b.keep(j, func() { b.unsendable++ })
	d.logKept("message cannot be sent, kept and tried again later", j, frame, next, slog.Any("err", err))
}

// logKept warns of the first failure of a message; later ones are detail.
func (d *Delivery) logKept(text string, j *job, frame []byte, next time.Duration, why ...slog.Attr) {
	level := slog.LevelDebug
	if j.refusals == 1 {
		level = slog.LevelWarn
	}
	if !d.o.Log.Enabled(context.Background(), level) {
		return
	}
	attrs := append([]slog.Attr{
		slog.String("broker", j.item.Flow.Broker), slog.String("topic", j.item.Flow.Topic), slog.Int("queue", int(j.item.Lane)),
		slog.String("key", uniqKey(frame)), slog.Int64("due", j.item.Due), slog.Uint64("lsn", uint64(j.item.LSN)),
		slog.Duration("next_try", next),
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

// keep takes a job out of its lane for a while; those behind it go on. count runs under the mutex, before
// the lane goes on.
func (b *broker) keep(j *job, count func()) (next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	count()
	j.refusals++
	j.tries, j.moved = 0, false
	next = b.d.o.Refused.after(j.refusals, b.d.o.Rand())
	l := b.land(j)
	l.topic.settleDown(l)
	if b.d.closing.Load() {
		return next
	}
	b.kept[j] = time.AfterFunc(next, func() { b.readmit(j) })
	b.pump()
	return next
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
