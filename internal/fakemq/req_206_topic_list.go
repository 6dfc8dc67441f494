package fakemq

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/delaygate/delaygate/codec"
)

// topicList answers GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206) with every topic of a registered broker.
func (n *NameServer) topicList(r *call) *codec.Command {
	topics := make(map[string]bool)
	for _, b := range n.cluster.registered() {
		for _, t := range b.Topics() {
			topics[t] = true
		}
	}
	body := struct {
		Topics []string `json:"topicList"`
	}{slices.Sorted(maps.Keys(topics))}
	return r.successJSON(body)
}

func (r *call) successJSON(body any) *codec.Command {
	b, err := json.Marshal(body)
	if err != nil {
		return r.refuse(codec.RespSystemError, "encode the reply to %d: %v", r.Code, err)
	}
	reply := r.success()
	reply.Body = b
	return reply
}
