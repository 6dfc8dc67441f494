package fakemq

import (
	"slices"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Bits of a pull's sysFlag (RocketMQ common, PullSysFlag).
const (
	pullCommits      = 1 // commitOffset is valid
	pullSuspends     = 2 // hold the pull while there is nothing
	pullSubscription = 4 // the subscription stands in the request
)

const (
	maxPullMessages = 32
	maxPullBytes    = 256 << 10
)

// pullRequest is a PULL_MESSAGE (11) or LITE_PULL_MESSAGE (361), which are served alike.
type pullRequest struct {
	call   *call
	group  string
	topic  string
	queue  int32
	offset int64
	most   int
	filter tagFilter
}

// parkedPull waits in its queue for a message that passes its filter. over is closed, under b.mu, by who answers it.
type parkedPull struct {
	pullRequest
	over chan struct{}
}

func (b *Broker) pull(r *call) *codec.Command {
	p := pullRequest{
		call: r, group: r.field("consumerGroup"), topic: r.field("topic"), queue: int32(r.int("queueId", -1)),
		offset: r.int("queueOffset", 0), most: int(min(max(1, r.int("maxMsgNums", 1)), maxPullMessages)),
	}
	sysFlag := r.int("sysFlag", 0)
	suspend := time.Duration(r.int("suspendTimeoutMillis", 0)) * time.Millisecond
	b.mu.Lock()
	defer b.mu.Unlock()
	if bad := b.checkPull(&p, sysFlag); bad != nil {
		return r.refuse(bad.code, "%s", bad.remark)
	}
	if committed := r.int("commitOffset", -1); sysFlag&pullCommits != 0 && committed >= 0 {
		b.offsets[offsetKey{p.group, p.topic, p.queue}] = committed
	}
	reply := b.pullNow(p)
	if reply.Code == codec.RespPullNotFound && sysFlag&pullSuspends != 0 && suspend > 0 {
		b.park(p, suspend)
		return nil
	}
	return reply
}

// checkPull refuses what a broker refuses and finds the filter.
func (b *Broker) checkPull(p *pullRequest, sysFlag int64) *refusal {
	t, ok := b.topics[p.topic]
	if !ok {
		return refusef(codec.RespTopicNotExist, "topic[%s] not exist, apply first please!", p.topic)
	}
	if t.config.Perm&permRead == 0 {
		return refusef(codec.RespNoPermission, "the topic[%s] pulling message is forbidden", p.topic)
	}
	if p.queue < 0 || p.queue >= t.config.ReadQueues {
		code := codec.RespSystemError
		if b.is5() {
			code = codec.RespInvalidParameter
		}
		return refusef(code, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d]", p.queue, p.topic, t.config.ReadQueues)
	}
	if sysFlag&pullSubscription != 0 {
		return b.filterOfRequest(p)
	}
	return b.filterOfGroup(p)
}

func (b *Broker) filterOfRequest(p *pullRequest) *refusal {
	kind := p.call.field("expressionType")
	if !isTagExpression(kind) {
		return refusef(codec.RespSystemError, "The broker does not support consumer to filter message by %s", kind)
	}
	p.filter = newTagFilter(p.call.field("subscription"), nil)
	return nil
}

func (b *Broker) filterOfGroup(p *pullRequest) *refusal {
	g, ok := b.groups[p.group]
	if !ok {
		return refusef(codec.RespSubscriptionNotExist, "the consumer's group info not exist: %s", p.group)
	}
	sub, ok := g.subscriptions[p.topic]
	if !ok {
		return refusef(codec.RespSubscriptionNotExist, "the consumer's subscription not exist: group %s, topic %s", p.group, p.topic)
	}
	if sub.version < p.call.int("subVersion", 0) {
		return refusef(codec.RespSubscriptionNotLatest, "the consumer's subscription not latest: group %s, topic %s", p.group, p.topic)
	}
	if !isTagExpression(sub.kind) {
		return refusef(codec.RespSystemError, "The broker does not support consumer to filter message by %s", sub.kind)
	}
	p.filter = sub.filter
	return nil
}

// pullNow answers from what is stored at this moment: SUCCESS, PULL_NOT_FOUND at the end of the queue,
// PULL_RETRY_IMMEDIATELY when the filter let nothing pass, PULL_OFFSET_MOVED outside of the queue. b.mu is
// held.
func (b *Broker) pullNow(p pullRequest) *codec.Command {
	q := b.topics[p.topic].existing(p.queue)
	if q == nil {
		q = &queue{}
	}
	switch {
	case p.offset < q.min:
		return p.reply(codec.RespPullOffsetMoved, q, q.min, nil)
	case p.offset > q.max():
		return p.reply(codec.RespPullOffsetMoved, q, q.max(), nil)
	case p.offset == q.max():
		return p.reply(codec.RespPullNotFound, q, p.offset, nil)
	}
	var body []byte
	found := 0
	next := p.offset
	for _, rec := range q.records[p.offset-q.min:] {
		if p.filter.passes(rec.tagsCode) {
			if found > 0 && len(body)+len(rec.raw) > maxPullBytes {
				break
			}
			body = append(body, rec.raw...)
			found++
		}
		next++
		if found == p.most {
			break
		}
	}
	if found == 0 {
		return p.reply(codec.RespPullRetryImmediately, q, next, nil)
	}
	return p.reply(codec.RespSuccess, q, next, body)
}

var pullRemarks = map[int32]string{
	codec.RespSuccess:              "FOUND",
	codec.RespPullNotFound:         "OFFSET_OVERFLOW_ONE",
	codec.RespPullRetryImmediately: "NO_MATCHED_MESSAGE",
	codec.RespPullOffsetMoved:      "OFFSET_OVERFLOW_BADLY",
}

func (p pullRequest) reply(code int32, q *queue, next int64, body []byte) *codec.Command {
	return &codec.Command{Code: code, Remark: pullRemarks[code], Body: body, Fields: codec.Fields{
		intField("suggestWhichBrokerId", 0),
		intField("nextBeginOffset", next),
		intField("minOffset", q.min),
		intField("maxOffset", q.max()),
	}}
}

// park holds a pull until a message arrives, its time is over or its connection ends. b.mu is held.
func (b *Broker) park(p pullRequest, suspend time.Duration) {
	parked := &parkedPull{p, make(chan struct{})}
	q := b.topics[p.topic].queue(p.queue)
	q.parked = append(q.parked, parked)
	b.ep.wg.Go(func() {
		t := time.NewTimer(suspend)
		defer t.Stop()
		select {
		case <-parked.over:
			return
		case <-p.call.conn.done:
			b.unpark(q, parked)
		case <-t.C:
			if b.unpark(q, parked) {
				b.answerPull(p)
			}
		}
	})
}

// unpark takes a pull out of its queue; false if somebody else was quicker.
func (b *Broker) unpark(q *queue, p *parkedPull) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(q.parked, p)
	if i < 0 {
		return false
	}
	q.parked = slices.Delete(q.parked, i, i+1)
	return true
}

func (b *Broker) answerPull(p pullRequest) {
	b.mu.Lock()
	reply := b.pullNow(p)
	b.mu.Unlock()
	p.call.answer(reply)
}

// wakePulls answers the pulls that wait in q for a record like this one. b.mu is held.
func (b *Broker) wakePulls(q *queue, rec *record) {
	var still []*parkedPull
	for _, p := range q.parked {
		if !p.filter.passes(rec.tagsCode) {
			still = append(still, p)
			continue
		}
		close(p.over)
		p.call.answer(b.pullNow(p.pullRequest))
	}
	q.parked = still
}
