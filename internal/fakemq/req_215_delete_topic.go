package fakemq

import "github.com/delaygate/delaygate/codec"

// deleteTopic serves DELETE_TOPIC_IN_BROKER (215).
func (b *Broker) deleteTopic(r *call) *codec.Command {
	b.DeleteTopic(r.field("topic"))
	return r.success()
}
