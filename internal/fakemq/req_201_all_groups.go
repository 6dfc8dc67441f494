package fakemq

import "github.com/delaygate/delaygate/codec"

// allGroups serves GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201).
func (b *Broker) allGroups(r *call) *codec.Command {
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.successJSON(struct {
		Groups  map[string]GroupConfig `json:"subscriptionGroupTable"`
		Version map[string]int64       `json:"dataVersion"`
	}{b.configs, map[string]int64{"counter": 1, "timestamp": 0}})
}
