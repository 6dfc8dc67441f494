package fakemq

import "github.com/delaygate/delaygate/codec"

// route answers GET_ROUTEINFO_BY_TOPIC (105). A topic that no registered broker has is TOPIC_NOT_EXIST,
// which sends a producer on to the route of TBW102.
func (n *NameServer) route(r *call) *codec.Command {
	topic := r.field("topic")
	route := &codec.Route{}
	for _, b := range n.cluster.registered() {
		config, ok := b.Topic(topic)
		if !ok {
			continue
		}
		route.Queues = append(route.Queues, codec.QueueData{
			BrokerName: b.Name(), ReadQueueNums: config.ReadQueues, WriteQueueNums: config.WriteQueues, Perm: config.Perm,
		})
		route.Brokers = append(route.Brokers, b.brokerData())
	}
	if len(route.Queues) == 0 {
		return r.refuse(codec.RespTopicNotExist, "No topic route info in name server for the topic: %s", topic)
	}
	reply := r.success()
	reply.Body = route.Append(nil)
	return reply
}
