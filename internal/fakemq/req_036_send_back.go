package fakemq

import (
	"math/rand/v2"
	"strconv"

	"github.com/delaygate/delaygate/codec"
)

// sendBack serves CONSUMER_SEND_MSG_BACK (36): the message at a physical offset is stored once more in the
// group's retry topic after the delay of a level, or in its dead-letter topic at once when the level is
// negative or the retries are used up (RocketMQ AbstractSendMessageProcessor.consumerSendMsgBack).
func (b *Broker) sendBack(r *call) *codec.Command {
	b.mu.Lock()
	defer b.mu.Unlock()
	config, ok := b.configs[r.field("group")]
	if !ok {
		return r.refuse(codec.RespSubscriptionGroupNotExist, "subscription group not exist, %s", r.field("group"))
	}
	if config.RetryQueues <= 0 {
		return r.success() // a broker drops the message, too
	}
	offset := r.int("offset", -1)
	rec := b.log.at(offset)
	if rec == nil {
		return r.refuse(codec.RespSystemError, "look message by offset failed, %d", offset)
	}
	m := b.backMessage(rec)
	limit := r.int("maxReconsumeTimes", int64(config.RetryMaxTimes))
	level := r.int("delayLevel", 0)
	if int64(m.ReconsumeTimes) >= limit || level < 0 {
		b.ensureDLQ(config.Name)
		m.Topic, m.QueueID, level = dlqPrefix+config.Name, 0, 0
	} else {
		retry := b.ensureRetryTopic(config)
		if retry.config.Perm&permWrite == 0 {
			return r.refuse(codec.RespNoPermission, "the topic[%s] sending message is forbidden", retry.config.Name)
		}
		m.Topic, m.QueueID = retry.config.Name, rand.Int32N(max(1, retry.config.WriteQueues))
		if level == 0 {
			level = int64(b.levels.RetryLevel(int(m.ReconsumeTimes)))
		}
	}
	m.ReconsumeTimes++
	props := codec.ParseProperties(m.Properties)
	props.Set(codec.PropDelay, strconv.FormatInt(level, 10))
	m.Properties = props.String()
	if _, bad := b.put(m); bad != nil {
		return r.refuse(codec.RespSystemError, "%s", bad.remark)
	}
	return r.success()
}

// backMessage is the stored message with the properties that tell where it came from first.
func (b *Broker) backMessage(rec *record) codec.StoredMessage {
	m := rec.message()
	props := codec.ParseProperties(m.Properties)
	if _, ok := props.Get(codec.PropRetryTopic); !ok {
		props.Set(codec.PropRetryTopic, m.Topic)
	}
	if _, ok := props.Get(codec.PropOriginMessageID); !ok {
		props.Set(codec.PropOriginMessageID, string(codec.AppendOffsetID(nil, b.addr, rec.offset)))
	}
	props.Set(codec.PropWait, "false")
	m.Properties = props.String()
	return m
}
