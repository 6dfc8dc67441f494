package fakemq

import "github.com/delaygate/delaygate/codec"

// consumerList serves GET_CONSUMER_LIST_BY_GROUP (38).
func (b *Broker) consumerList(r *call) *codec.Command {
	group := r.field("consumerGroup")
	b.mu.Lock()
	ids := b.clients(group)
	b.mu.Unlock()
	if len(ids) == 0 {
		return r.refuse(codec.RespSystemError, "no consumer for this group, %s", group)
	}
	return r.successJSON(struct {
		IDs []string `json:"consumerIdList"`
	}{ids})
}
