package route

import "github.com/delaygate/delaygate/codec"

// kind says how a request is answered.
type kind int

const (
	kindForeign      kind = iota // not a name server's
	kindAddresses                // asked of one name server, addresses replaced
	kindRead                     // asked of one name server, relayed
	kindWrite                    // sent to all
	kindRegistration             // brokers only, refused
)

// kindOf covers the codes that name servers process (RocketMQ 4.x to 5.5.0).
func kindOf(code int32) kind {
	switch code {
	case codec.ReqGetRouteInfoByTopic, codec.ReqGetBrokerClusterInfo,
		codec.ReqGetBrokerMemberGroup, codec.ReqGetSystemTopicListFromNameServer:
		return kindAddresses
	case codec.ReqGetKVConfig, codec.ReqGetKVListByNamespace, codec.ReqGetAllTopicListFromNameServer,
		codec.ReqGetTopicsByCluster, codec.ReqGetUnitTopicList, codec.ReqGetHasUnitSubTopicList,
		codec.ReqGetHasUnitSubUnunitTopicList, codec.ReqGetNameServerConfig:
		return kindRead
	case codec.ReqPutKVConfig, codec.ReqDeleteKVConfig, codec.ReqWipeWritePermOfBroker,
		codec.ReqAddWritePermOfBroker, codec.ReqDeleteTopicInNameServer,
		codec.ReqRegisterTopicInNameServer, codec.ReqUpdateNameServerConfig:
		return kindWrite
	case codec.ReqRegisterBroker, codec.ReqUnregisterBroker, codec.ReqQueryDataVersion, codec.ReqBrokerHeartbeat:
		return kindRegistration
	}
	return kindForeign
}
