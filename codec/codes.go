package codec

// Request codes (RequestCode of RocketMQ 5.5.0).
const (
	ReqSendMessage                      int32 = 10
	ReqPullMessage                      int32 = 11
	ReqQueryMessage                     int32 = 12
	ReqQueryConsumerOffset              int32 = 14
	ReqUpdateConsumerOffset             int32 = 15
	ReqUpdateAndCreateTopic             int32 = 17
	ReqGetAllTopicConfig                int32 = 21
	ReqUpdateBrokerConfig               int32 = 25
	ReqGetBrokerConfig                  int32 = 26
	ReqGetBrokerRuntimeInfo             int32 = 28
	ReqSearchOffsetByTimestamp          int32 = 29
	ReqGetMaxOffset                     int32 = 30
	ReqGetMinOffset                     int32 = 31
	ReqGetEarliestMsgStoreTime          int32 = 32
	ReqViewMessageByID                  int32 = 33
	ReqHeartBeat                        int32 = 34
	ReqUnregisterClient                 int32 = 35
	ReqConsumerSendMsgBack              int32 = 36
	ReqEndTransaction                   int32 = 37
	ReqGetConsumerListByGroup           int32 = 38
	ReqCheckTransactionState            int32 = 39
	ReqNotifyConsumerIDsChanged         int32 = 40
	ReqLockBatchMQ                      int32 = 41
	ReqUnlockBatchMQ                    int32 = 42
	ReqGetAllDelayOffset                int32 = 45
	ReqCheckClientConfig                int32 = 46
	ReqGetTimerCheckPoint               int32 = 60
	ReqGetTimerMetrics                  int32 = 61
	ReqPutKVConfig                      int32 = 100
	ReqGetKVConfig                      int32 = 101
	ReqDeleteKVConfig                   int32 = 102
	ReqRegisterBroker                   int32 = 103
	ReqUnregisterBroker                 int32 = 104
	ReqGetRouteInfoByTopic              int32 = 105
	ReqGetBrokerClusterInfo             int32 = 106
	ReqUpdateAndCreateSubscriptionGroup int32 = 200
	ReqGetAllSubscriptionGroupConfig    int32 = 201
	ReqWipeWritePermOfBroker            int32 = 205
	ReqGetAllTopicListFromNameServer    int32 = 206
	ReqDeleteTopicInBroker              int32 = 215
	ReqDeleteTopicInNameServer          int32 = 216
	ReqRegisterTopicInNameServer        int32 = 217
	ReqGetKVListByNamespace             int32 = 219
	ReqGetTopicsByCluster               int32 = 224
	ReqGetSystemTopicListFromNameServer int32 = 304
	ReqSendMessageV2                    int32 = 310
	ReqGetUnitTopicList                 int32 = 311
	ReqGetHasUnitSubTopicList           int32 = 312
	ReqGetHasUnitSubUnunitTopicList     int32 = 313
	ReqUpdateNameServerConfig           int32 = 318
	ReqGetNameServerConfig              int32 = 319
	ReqSendBatchMessage                 int32 = 320
	ReqQueryDataVersion                 int32 = 322
	ReqSendReplyMessage                 int32 = 324
	ReqSendReplyMessageV2               int32 = 325
	ReqAddWritePermOfBroker             int32 = 327
	ReqGetTopicConfig                   int32 = 351
	ReqGetSubscriptionGroupConfig       int32 = 352
	ReqLitePullMessage                  int32 = 361
	ReqRecallMessage                    int32 = 370
	ReqQueryAssignment                  int32 = 400
	ReqGetBrokerMemberGroup             int32 = 901
	ReqBrokerHeartbeat                  int32 = 904
)

// Response codes (ResponseCode and RemotingSysResponseCode of RocketMQ 5.5.0).
const (
	RespSuccess                   int32 = 0
	RespSystemError               int32 = 1
	RespSystemBusy                int32 = 2
	RespNotSupported              int32 = 3
	RespFlushDiskTimeout          int32 = 10
	RespSlaveNotAvailable         int32 = 11
	RespFlushSlaveTimeout         int32 = 12
	RespMessageIllegal            int32 = 13
	RespServiceNotAvailable       int32 = 14
	RespVersionNotSupported       int32 = 15
	RespNoPermission              int32 = 16
	RespTopicNotExist             int32 = 17
	RespPullNotFound              int32 = 19
	RespPullRetryImmediately      int32 = 20
	RespPullOffsetMoved           int32 = 21
	RespQueryNotFound             int32 = 22
	RespSubscriptionParseFailed   int32 = 23
	RespSubscriptionNotExist      int32 = 24
	RespSubscriptionNotLatest     int32 = 25
	RespSubscriptionGroupNotExist int32 = 26
	RespInvalidParameter          int32 = 29
	RespIllegalOperation          int32 = 604
	RespGoAway                    int32 = 1500
)
