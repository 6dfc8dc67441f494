package fakemq

import (
	"github.com/delaygate/delaygate/codec"
)

// NameServer answers from the state of the cluster's brokers at that moment: a broker that is stopped is
// gone from routes at once, as when a name server sees its channel close.
//
// It serves 105 (route), 106 (cluster info), 206 (topic list), 216 (delete topic) and 101 (KV
// configuration, always empty). Route and cluster info are strict JSON for every client.
type NameServer struct {
	cluster *Cluster
	ep      *endpoint
}

func newNameServer(c *Cluster, position int, addr string) *NameServer {
	n := &NameServer{cluster: c}
	n.ep = &endpoint{
		cluster: c, addr: addr, version: Version533, serve: n.serve,
		log: c.opts.Log.With("nameserver", position),
	}
	return n
}

// Addr is the address it listens on; it keeps it while stopped.
func (n *NameServer) Addr() string { return n.ep.address() }

// Stop closes the port and all connections.
func (n *NameServer) Stop() { n.ep.stop() }

// Restart serves again on the same address; nothing happens if it already does.
func (n *NameServer) Restart() error { return n.ep.start() }

// Requests counts the requests of a code that it has received.
func (n *NameServer) Requests(code int32) int64 { return n.ep.requests(code) }

// Connections counts its open client connections.
func (n *NameServer) Connections() int { return n.ep.connections() }

func (n *NameServer) serve(r *call) *codec.Command {
	switch r.Code {
	case codec.ReqGetRouteInfoByTopic:
		return n.route(r)
	case codec.ReqGetBrokerClusterInfo:
		return n.clusterInfo(r)
	case codec.ReqGetAllTopicListFromNameServer:
		return n.topicList(r)
	case codec.ReqDeleteTopicInNameServer:
		return r.success()
	case codec.ReqGetKVConfig:
		return r.refuse(codec.RespQueryNotFound, "No config item, Namespace: %s Key: %s", r.field("namespace"), r.field("key"))
	default:
		return r.notSupported()
	}
}

func (r *call) notSupported() *codec.Command {
	return r.refuse(codec.RespNotSupported, " request type %d not supported", r.Code)
}
