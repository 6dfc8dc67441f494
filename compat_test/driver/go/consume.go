package main

import (
	"context"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// consuming is a push consumer that reports each delivery and fails as often as it was told.
type consuming struct {
	name   string
	fail   int
	emit   func(object)
	client rocketmq.PushConsumer

	mu         sync.Mutex
	deliveries map[string]int
}

func newConsuming(r request, emit func(object)) (*consuming, error) {
	model := consumer.Clustering
	if r.Broadcast {
		model = consumer.BroadCasting
	}
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{r.NameSrv})),
		consumer.WithGroupName(r.Group),
		consumer.WithInstance(r.Name),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(r.Orderly),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeGoroutineNums(4),
		consumer.WithSuspendCurrentQueueTimeMillis(time.Second),
	)
	if err != nil {
		return nil, err
	}
	c := &consuming{name: r.Name, fail: r.Fail, emit: emit, client: client, deliveries: map[string]int{}}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: r.Expr}
	if err := client.Subscribe(r.Topic, selector, c.consume(r.Orderly)); err != nil {
		return nil, err
	}
	return c, client.Start()
}

func (c *consuming) consume(orderly bool) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	refuse := consumer.ConsumeRetryLater
	if orderly {
		refuse = consumer.SuspendCurrentQueueAMoment
	}
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		ok := true
		for _, m := range messages {
			c.emit(c.event(m))
			n := c.count(m.MsgId)
			ok = ok && c.fail >= 0 && n > c.fail
		}
		if ok {
			return consumer.ConsumeSuccess, nil
		}
		return refuse, nil
	}
}

func (c *consuming) count(msgID string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveries[msgID]++
	return c.deliveries[msgID]
}

func (c *consuming) event(m *primitive.MessageExt) object {
	return object{
		"event": "msg", "consumer": c.name, "at": time.Now().UnixMilli(),
		"topic": m.Topic, "tags": m.GetTags(), "keys": m.GetKeys(),
		"uniqKey": m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex),
		"body":    m.Body, "flag": m.Flag, "sysFlag": m.SysFlag,
		"bornTimestamp": m.BornTimestamp, "bornHost": m.BornHost,
		"storeTimestamp": m.StoreTimestamp, "storeHost": m.StoreHost,
		"broker": m.Queue.BrokerName, "queueId": m.Queue.QueueId, "queueOffset": m.QueueOffset,
		"reconsumeTimes": m.ReconsumeTimes, "props": m.GetProperties(),
	}
}
