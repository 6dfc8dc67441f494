package fakemq

import "github.com/delaygate/delaygate/codec"

// minOffset serves GET_MIN_OFFSET (31): the offset of the oldest message that is still held; 0 where there
// is no such queue.
func (b *Broker) minOffset(r *call) *codec.Command {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queueOf(r); q != nil {
		return r.success(intField("offset", q.min))
	}
	return r.success(intField("offset", 0))
}
