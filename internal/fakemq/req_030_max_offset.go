package fakemq

import "github.com/delaygate/delaygate/codec"

// maxOffset serves GET_MAX_OFFSET (30): the offset of the next message; 0 where there is no such queue.
func (b *Broker) maxOffset(r *call) *codec.Command {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q := b.queueOf(r); q != nil {
		return r.success(intField("offset", q.max()))
	}
	return r.success(intField("offset", 0))
}
