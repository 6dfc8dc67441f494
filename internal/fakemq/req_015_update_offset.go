package fakemq

import "github.com/delaygate/delaygate/codec"

// updateOffset serves UPDATE_CONSUMER_OFFSET (15).
func (b *Broker) updateOffset(r *call) *codec.Command {
	offset := r.int("commitOffset", -1)
	if offset < 0 {
		return r.refuse(codec.RespSystemError, "commitOffset %q is not an offset", r.field("commitOffset"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offsets[r.offsetKey()] = offset
	return r.success()
}
