package fakemq

import "github.com/delaygate/delaygate/codec"

// getGroup serves GET_SUBSCRIPTIONGROUP_CONFIG (352).
func (b *Broker) getGroup(r *call) *codec.Command {
	name := r.field("group")
	b.mu.Lock()
	config, ok := b.configs[name]
	b.mu.Unlock()
	if !ok {
		return r.refuse(codec.RespSubscriptionGroupNotExist, "No group in this broker. group: %s", name)
	}
	return r.successJSON(config)
}
