package fakemq

import "github.com/delaygate/delaygate/codec"

// updateTopic serves UPDATE_AND_CREATE_TOPIC (17).
func (b *Broker) updateTopic(r *call) *codec.Command {
	c := TopicConfig{
		Name:        r.field("topic"),
		ReadQueues:  int32(r.int("readQueueNums", 0)),
		WriteQueues: int32(r.int("writeQueueNums", 0)),
		Perm:        int32(r.int("perm", int64(permRead|permWrite))),
		SysFlag:     int32(r.int("topicSysFlag", 0)),
		Order:       r.field("order") == "true",
	}
	if bad := checkTopicName(c.Name); bad != nil {
		return r.refuse(bad.code, "%s", bad.remark)
	}
	if most := max(c.ReadQueues, c.WriteQueues); min(c.ReadQueues, c.WriteQueues) < 0 || most > maxTopicQueues {
		return r.refuse(codec.RespInvalidParameter, "topic[%s]: %d read and %d write queues, at most %d", c.Name, c.ReadQueues, c.WriteQueues, maxTopicQueues)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setTopic(c)
	return r.success()
}
