package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type producing struct {
	client rocketmq.Producer
}

func newProducing(r request) (*producing, error) {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{r.NameSrv})),
		producer.WithGroupName(r.Group),
		producer.WithInstanceName(r.Name),
		producer.WithRetry(r.Retries),
		producer.WithSendMsgTimeout(time.Duration(r.TimeoutMs)*time.Millisecond),
		producer.WithQueueSelector(chosenQueue{hash: producer.NewHashQueueSelector()}),
	)
	if err != nil {
		return nil, err
	}
	return &producing{client: p}, p.Start()
}

// chosenQueue takes the queue that the request names, else one by the sharding key's hash, else any.
type chosenQueue struct {
	hash producer.QueueSelector
}

func (s chosenQueue) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if m.Queue != nil {
		return m.Queue
	}
	return s.hash.Select(m, queues, last)
}

func (p *producing) send(r request) (object, error) {
	m := message(r)
	ctx := context.Background()
	switch r.Mode {
	case "oneway":
		err := p.client.SendOneWay(ctx, m)
		return object{"uniqKey": m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)}, err
	case "async":
		return p.sendAsync(ctx, m)
	}
	result, err := p.client.SendSync(ctx, m)
	if err != nil {
		return nil, err
	}
	return describe(result, m), nil
}

func (p *producing) sendAsync(ctx context.Context, m *primitive.Message) (object, error) {
	type outcome struct {
		result *primitive.SendResult
		err    error
	}
	done := make(chan outcome, 1)
	err := p.client.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
		done <- outcome{result, err}
	}, m)
	if err != nil {
		return nil, err
	}
	o := <-done
	if o.err != nil {
		return nil, o.err
	}
	return describe(o.result, m), nil
}

func message(r request) *primitive.Message {
	m := primitive.NewMessage(r.Topic, r.Body)
	m.Flag = r.Flag
	m.WithTag(r.Tags)
	m.WithProperty(primitive.PropertyKeys, r.Keys)
	for name, value := range r.Props {
		m.WithProperty(name, value)
	}
	if r.Level > 0 {
		m.WithDelayTimeLevel(r.Level)
	}
	if r.DeliverMs != 0 {
		m.WithDelayTimestamp(time.UnixMilli(r.DeliverMs))
	}
	if r.DelayMs != 0 {
		m.WithProperty("TIMER_DELAY_MS", strconv.FormatInt(r.DelayMs, 10))
	}
	if r.DelaySec != 0 {
		m.WithProperty("TIMER_DELAY_SEC", strconv.FormatInt(r.DelaySec, 10))
	}
	if r.OrderKey != "" {
		m.WithShardingKey(r.OrderKey)
	}
	if r.Queue != nil {
		m.Queue = &primitive.MessageQueue{Topic: r.Topic, BrokerName: r.Broker, QueueId: *r.Queue}
	}
	return m
}

var statusNames = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

func describe(s *primitive.SendResult, m *primitive.Message) object {
	status, ok := statusNames[s.Status]
	if !ok {
		status = fmt.Sprintf("status %d", s.Status)
	}
	return object{
		"status": status, "uniqKey": m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex), "msgId": s.MsgID,
		"offsetMsgId": s.OffsetMsgID, "broker": s.MessageQueue.BrokerName, "queueId": s.MessageQueue.QueueId,
		"queueOffset": s.QueueOffset, "transactionId": s.TransactionID, "regionId": s.RegionID,
	}
}
