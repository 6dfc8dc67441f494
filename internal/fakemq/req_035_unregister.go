package fakemq

import "github.com/delaygate/delaygate/codec"

// unregister serves UNREGISTER_CLIENT (35): this connection leaves a consumer group.
func (b *Broker) unregister(r *call) *codec.Command {
	b.mu.Lock()
	defer b.mu.Unlock()
	if group := r.field("consumerGroup"); group != "" {
		b.removeMember(group, r.conn)
	}
	return r.success()
}
