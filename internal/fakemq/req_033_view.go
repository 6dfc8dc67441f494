package fakemq

import "github.com/delaygate/delaygate/codec"

// viewMessage serves VIEW_MESSAGE_BY_ID (33): the message that starts at a physical offset.
func (b *Broker) viewMessage(r *call) *codec.Command {
	offset := r.int("offset", -1)
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.log.at(offset)
	if rec == nil {
		return r.refuse(codec.RespSystemError, "can not find message by the offset, %d", offset)
	}
	reply := r.success()
	reply.Body = rec.raw
	return reply
}
