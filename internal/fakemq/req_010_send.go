package fakemq

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaygate/delaygate/codec"
)

const (
	region       = "DefaultRegion"
	propPopCheck = "POP_CK"
)

// send serves SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320). Whether the body is a
// batch is said by the batch field, not by the code: C++ sends batches with 310.
func (b *Broker) send(r *call) *codec.Command {
	h, err := codec.ParseSendHeader(r.Command)
	if err != nil {
		return markRegion(r.refuse(codec.RespSystemError, "%v", err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if bad := b.checkSend(r, &h); bad != nil {
		return markRegion(r.refuse(bad.code, "%s", bad.remark))
	}
	m := codec.StoredMessage{
		Topic: h.Topic, QueueID: h.QueueID, Flag: h.Flag, SysFlag: h.SysFlag, BornTimestamp: h.BornTimestamp,
		BornHost: r.conn.remote, ReconsumeTimes: max(0, h.ReconsumeTimes), Body: slices.Clone(r.Body),
	}
	props := codec.ParseProperties(h.Properties)
	props.Del(propPopCheck)
	var reply *codec.Command
	var bad *refusal
	if h.Batch {
		reply, bad = b.sendBatch(r, m, props)
	} else {
		reply, bad = b.sendOne(r, &h, m, props)
	}
	if bad != nil {
		return markRegion(r.refuse(bad.code, "%s", bad.remark))
	}
	return markRegion(reply)
}

// markRegion adds what a broker puts into every reply to a send, refusals included.
func markRegion(reply *codec.Command) *codec.Command {
	reply.Fields.Set(codec.PropMsgRegion, region)
	reply.Fields.Set(codec.PropTraceOn, "true")
	return reply
}

// checkSend does what a broker checks before it looks at the message, creates the topic if it may, and picks
// a queue where the client left that to the broker.
func (b *Broker) checkSend(r *call, h *codec.SendHeader) *refusal {
	if bad := checkTopicName(h.Topic); bad != nil {
		return bad
	}
	t := b.topicForSend(h.Topic, h.DefaultTopic, h.DefaultTopicQueueNums)
	if t == nil {
		return refusef(codec.RespTopicNotExist, "topic[%s] not exist, apply first please!", h.Topic)
	}
	if most := max(t.config.WriteQueues, t.config.ReadQueues); h.QueueID >= most {
		code := codec.RespSystemError
		if b.is5() {
			code = codec.RespInvalidParameter
		}
		return refusef(code, "request queueId[%d] is illegal, topic: %s has %d queues, producer: %s", h.QueueID, h.Topic, most, r.conn.remote)
	}
	if h.QueueID < 0 {
		h.QueueID = rand.Int32N(max(1, t.config.WriteQueues))
	}
	return nil
}

func checkTopicName(name string) *refusal {
	longest := maxTopicLength
	if strings.HasPrefix(name, retryPrefix) || strings.HasPrefix(name, dlqPrefix) {
		longest = maxRetryTopicLength
	}
	switch {
	case !topicName.MatchString(name):
		return refusef(codec.RespInvalidParameter, "The specified topic[%s] contains illegal characters, allowing only %s", name, topicName)
	case len(name) > longest:
		return refusef(codec.RespInvalidParameter, "The specified topic is longer than topic max length %d.", longest)
	case slices.Contains(closedTopics, name):
		return refusef(codec.RespNoPermission, "Sending message to topic[%s] is forbidden.", name)
	default:
		return nil
	}
}

func (b *Broker) sendOne(r *call, h *codec.SendHeader, m codec.StoredMessage, props codec.Properties) (*codec.Command, *refusal) {
	if bad := b.deadLetter(h, &m, &props); bad != nil {
		return nil, bad
	}
	uniq := b.addBrokerProperties(&props, m)
	if _, retried := props.Get(codec.PropDelay); isTrue(props, codec.PropTransPrepared) && (m.ReconsumeTimes == 0 || !retried) {
		return b.sendHalf(r, m, props, uniq), nil
	}
	m.Properties = props.String()
	rec, bad := b.put(m)
	if bad != nil {
		return nil, bad
	}
	return r.sent(string(codec.AppendOffsetID(nil, b.addr, rec.offset)), m.QueueID, rec.position, uniq), nil
}

// sent makes the reply to a send; queueID is the one asked for, position that of the first record.
func (r *call) sent(offsetIDs string, queueID int32, position int64, transactionID string) *codec.Command {
	return r.success(
		codec.Field{Name: "msgId", Value: offsetIDs},
		intField("queueId", int64(queueID)),
		intField("queueOffset", position),
		codec.Field{Name: "transactionId", Value: transactionID},
	)
}

// addBrokerProperties adds what a broker adds to a single message and returns its UNIQ_KEY.
func (b *Broker) addBrokerProperties(props *codec.Properties, m codec.StoredMessage) string {
	props.Set(codec.PropMsgRegion, region)
	props.Set(codec.PropTraceOn, "true")
	uniq, ok := props.Get(codec.PropUniqKey)
	if !ok {
		uniq = b.ids.Next(time.UnixMilli(b.nowMs()))
		props.Set(codec.PropUniqKey, uniq)
	}
	props.Set(codec.PropCluster, b.cluster.Name())
	return uniq
}

func isTrue(props codec.Properties, name string) bool {
	v, _ := props.Get(name)
	return strings.EqualFold(v, "true")
}

// deadLetter redirects a send to a retry topic that has had its retries to the group's dead-letter topic
// (RocketMQ SendMessageProcessor.handleRetryAndDLQ). 4.9 counts one retry less and keeps the delay.
func (b *Broker) deadLetter(h *codec.SendHeader, m *codec.StoredMessage, props *codec.Properties) *refusal {
	group, isRetry := strings.CutPrefix(h.Topic, retryPrefix)
	if !isRetry {
		return nil
	}
	config, ok := b.configs[group]
	if !ok {
		return refusef(codec.RespSubscriptionGroupNotExist, "subscription group not exist, %s", group)
	}
	limit := config.RetryMaxTimes
	if h.MaxReconsumeTimes >= 0 {
		limit = h.MaxReconsumeTimes
	}
	dead := h.ReconsumeTimes > limit || b.holdsLock(group)
	if !b.is5() {
		dead = h.ReconsumeTimes >= limit
	}
	if !dead {
		return nil
	}
	b.ensureDLQ(group)
	m.Topic, m.QueueID = dlqPrefix+group, 0
	if b.is5() {
		props.Del(codec.PropDelay)
	}
	return nil
}

// sendBatch stores each inner message on its own. Delays in it are not looked at; 4.9 gives each inner message the batch's own
// properties and CLUSTER, 5.x adds nothing.
func (b *Broker) sendBatch(r *call, m codec.StoredMessage, outer codec.Properties) (*codec.Command, *refusal) {
	level, _ := outer.Get(codec.PropDelay)
	if n, _ := strconv.Atoi(level); n > 0 || strings.HasPrefix(m.Topic, retryPrefix) {
		return nil, refusef(codec.RespMessageIllegal, "batch message can not be delayed or sent to a retry topic: %s", m.Topic)
	}
	inner, err := codec.DecodeBatch(m.Body)
	if err != nil {
		return nil, refusef(codec.RespMessageIllegal, "batch: %v", err)
	}
	if len(inner) == 0 {
		return nil, refusef(codec.RespMessageIllegal, "batch without messages")
	}
	if len(m.Body) > b.opts.MaxMessageSize {
		return nil, refusef(codec.RespMessageIllegal, "the message is illegal: batch of %d bytes, limit %d", len(m.Body), b.opts.MaxMessageSize)
	}
	var ids []string
	first := int64(-1)
	for _, in := range inner {
		one := m
		one.Flag, one.Body, one.Properties = in.Flag, in.Body, in.Properties
		if !b.is5() {
			one.Properties = b.appendOuter(in.Properties, outer)
		}
		rec := b.store(one)
		ids = append(ids, string(codec.AppendOffsetID(nil, b.addr, rec.offset)))
		if first < 0 {
			first = rec.position
		}
	}
	uniq, _ := outer.Get(codec.PropUniqKey)
	return r.sent(strings.Join(ids, ","), m.QueueID, first, uniq), nil
}

func (b *Broker) appendOuter(inner string, outer codec.Properties) string {
	props := codec.ParseProperties(inner)
	for _, p := range outer {
		props.Set(p.Name, p.Value)
	}
	props.Set(codec.PropCluster, b.cluster.Name())
	return props.String()
}
