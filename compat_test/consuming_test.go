package compat_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/delaygate/delaygate/compat_test/client"
)

func TestTagFilterSelects(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		topic := f.ownTopic(t, "tags", brokerA, 2)
		c := f.consume(t, client.ConsumerOptions{Name: "tags-" + p.String(), Topic: topic, Expr: "red || green"})
		var wanted []sent
		for i := range 4 {
			for _, tag := range []string{"red", "green", "blue", ""} {
				level := i % 2 // every other one is delayed by a second
				s := f.send(t, client.Message{Topic: topic, Tags: tag, Keys: fmt.Sprintf("%s%d", tag, i), Level: level})
				if tag == "red" || tag == "green" {
					wanted = append(wanted, s)
				}
			}
		}
		for i, d := range await(t, c, wanted...) {
			checkContent(t, wanted[i], d)
		}
		if got := len(c.All()); got != len(wanted) {
			t.Errorf("%d deliveries, want %d", got, len(wanted))
		}
	})
}

func TestBroadcastingReachesEveryConsumer(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		topic := f.ownTopic(t, "broadcast", brokerA, 2)
		var consumers []*client.Consumer
		for i := range 2 {
			consumers = append(consumers, f.consume(t, client.ConsumerOptions{
				Name: fmt.Sprintf("broadcast-%d-%s", i, p), Topic: topic, Broadcast: true,
			}))
		}
		var all []sent
		for i := range 6 {
			all = append(all, f.send(t, client.Message{Topic: topic, Level: i % 2}))
		}
		for _, c := range consumers {
			for i, d := range await(t, c, all...) {
				checkContent(t, all[i], d)
			}
		}
	})
}

func TestClusteringSharesQueues(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		const queues = 4
		topic := f.ownTopic(t, "share", brokerA, queues)
		var consumers []*client.Consumer
		for i := range 2 {
			consumers = append(consumers, f.consume(t, client.ConsumerOptions{
				Name: fmt.Sprintf("share-%d-%s", i, p), Topic: topic,
			}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		round := func() []sent {
			var all []sent
			for q := range queues {
				all = append(all, f.send(t, client.Message{Topic: topic, Broker: brokerA, Queue: &q}))
			}
			for missing(consumers[0].All(), all)+missing(consumers[1].All(), all) > len(all) {
				if ctx.Err() != nil {
					t.Fatalf("a round of %d was not consumed", len(all))
				}
				time.Sleep(50 * time.Millisecond)
			}
			return all
		}
		shared := func(all []sent) bool {
			return missing(consumers[0].All(), all) == len(all)/2 && missing(consumers[1].All(), all) == len(all)/2
		}
		for !shared(round()) {
			if ctx.Err() != nil {
				t.Fatalf("the consumers never shared the %d queues", queues)
			}
			time.Sleep(time.Second)
		}
		for range 3 { // balanced from here on: each message comes to exactly one of them
			if all := round(); !shared(all) {
				t.Errorf("after both had joined, one of them lost queues")
			}
		}
	})
}

func TestOrderedSendsToOneQueueStayInOrder(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		topic := f.ownTopic(t, "order", brokerA, 4)
		c := f.consume(t, client.ConsumerOptions{Name: "order-" + p.String(), Topic: topic, Orderly: true})
		queue := 2
		var plain, byKey, timed []sent
		due := time.Now().UnixMilli() + 4000
		for i := range 20 {
			plain = append(plain, f.send(t, client.Message{Topic: topic, Keys: fmt.Sprint("plain", i), Broker: brokerA, Queue: &queue}))
			byKey = append(byKey, f.send(t, client.Message{Topic: topic, Keys: fmt.Sprint("key", i), OrderKey: "customer-7"}))
		}
		if !suite.direct { // brokers promise no order among timers
			for i := range 20 {
				timed = append(timed, f.send(t, client.Message{Topic: topic, Keys: fmt.Sprint("timed", i), Broker: brokerA, Queue: &queue, DeliverMs: due}))
			}
		}
		for _, all := range [][]sent{plain, byKey, timed} {
			last := client.Delivery{QueueOffset: -1}
			for i, d := range await(t, c, all...) {
				if d.QueueOffset <= last.QueueOffset || d.QueueID != all[0].QueueID || (i > 0 && d.At < last.At) {
					t.Errorf("message %d: %s came as offset %d of queue %d after offset %d", i, d.Keys, d.QueueOffset, d.QueueID, last.QueueOffset)
				}
				last = d
			}
		}
	})
}
