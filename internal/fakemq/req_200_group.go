package fakemq

import (
	"encoding/json"

	"github.com/delaygate/delaygate/codec"
)

// updateGroup serves UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200); what the body does not say keeps its
// default.
func (b *Broker) updateGroup(r *call) *codec.Command {
	config := defaultGroup("")
	if err := json.Unmarshal(r.Body, &config); err != nil {
		return r.refuse(codec.RespSystemError, "subscription group: %v", err)
	}
	if config.Name == "" {
		return r.refuse(codec.RespInvalidParameter, "subscription group without groupName")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.configs[config.Name] = config
	return r.success()
}
