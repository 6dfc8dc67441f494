package fakemq

import "github.com/delaygate/delaygate/codec"

// clusterInfo answers GET_BROKER_CLUSTER_INFO (106).
func (n *NameServer) clusterInfo(r *call) *codec.Command {
	info := &codec.ClusterInfo{
		Brokers:  make(map[string]codec.BrokerData),
		Clusters: make(map[string][]string),
	}
	name := n.cluster.Name()
	for _, b := range n.cluster.registered() {
		info.Brokers[b.Name()] = b.brokerData()
		info.Clusters[name] = append(info.Clusters[name], b.Name())
	}
	reply := r.success()
	reply.Body = info.Append(nil)
	return reply
}
