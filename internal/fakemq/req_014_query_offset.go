package fakemq

import "github.com/delaygate/delaygate/codec"

// offsetKey names a group's place in a queue.
type offsetKey struct {
	group, topic string
	queue        int32
}

func (r *call) offsetKey() offsetKey {
	return offsetKey{r.field("consumerGroup"), r.field("topic"), int32(r.int("queueId", -1))}
}

// queryOffset serves QUERY_CONSUMER_OFFSET (14). A group that is new to a queue whose first message is still
// there starts at it, whatever its consumeFromWhere (RocketMQ ConsumerManageProcessor: offset 0 still in
// memory).
func (b *Broker) queryOffset(r *call) *codec.Command {
	key := r.offsetKey()
	b.mu.Lock()
	defer b.mu.Unlock()
	if offset, ok := b.offsets[key]; ok {
		return r.success(intField("offset", offset))
	}
	if r.field("setZeroIfNotFound") == "false" {
		return r.refuse(codec.RespQueryNotFound, "Not found, do not set to zero, maybe this group boot first")
	}
	q := b.topics[key.topic].existing(key.queue)
	if q != nil && q.min == 0 && q.max() > 0 {
		return r.success(intField("offset", 0))
	}
	return r.refuse(codec.RespQueryNotFound, "Not found, maybe this group consumer boot first")
}
