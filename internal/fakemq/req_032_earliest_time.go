package fakemq

import "github.com/delaygate/delaygate/codec"

// earliestTime serves GET_EARLIEST_MSG_STORETIME (32): ms, -1 in an empty queue.
func (b *Broker) earliestTime(r *call) *codec.Command {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queueOf(r); q != nil && len(q.records) > 0 {
		return r.success(intField("timestamp", q.records[0].storedMs))
	}
	return r.success(intField("timestamp", -1))
}
