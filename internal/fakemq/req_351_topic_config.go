package fakemq

import "github.com/delaygate/delaygate/codec"

// topicConfigBody is TopicConfigAndQueueMapping as far as a topic without mapping has it.
type topicConfigBody struct {
	Name        string            `json:"topicName"`
	ReadQueues  int32             `json:"readQueueNums"`
	WriteQueues int32             `json:"writeQueueNums"`
	Perm        int32             `json:"perm"`
	SysFlag     int32             `json:"topicSysFlag"`
	Order       bool              `json:"order"`
	FilterType  string            `json:"topicFilterType"`
	Attributes  map[string]string `json:"attributes"`
}

// getTopicConfig serves GET_TOPIC_CONFIG (351).
func (b *Broker) getTopicConfig(r *call) *codec.Command {
	name := r.field("topic")
	c, ok := b.Topic(name)
	if !ok {
		return r.refuse(codec.RespTopicNotExist, "No topic in this broker. topic: %s", name)
	}
	return r.successJSON(topicConfigBody{
		c.Name, c.ReadQueues, c.WriteQueues, c.Perm, c.SysFlag, c.Order, "SINGLE_TAG", map[string]string{},
	})
}
