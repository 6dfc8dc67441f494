package clients

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// scenarios run in a child process with the name servers of the cluster, and end it when something is
// wrong.
var scenarios = map[string]func([]string){
	"produce":   produce,
	"cluster":   clustering,
	"broadcast": broadcast,
	"tags":      tags,
	"orderly":   orderly,
	"retry":     retry,
	"delay":     delay,
	"restart":   restart,
}

func newProducer(ns []string, opts ...producer.Option) rocketmq.Producer {
	p, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNameServer(ns), producer.WithInstanceName("producer"), producer.WithGroupName("pg"),
	}, opts...)...)
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		log.Fatal(err)
	}
	return p
}

func send(p rocketmq.Producer, msgs ...*primitive.Message) *primitive.SendResult {
	r, err := p.SendSync(context.Background(), msgs...)
	if err != nil || r.Status != primitive.SendOK {
		log.Fatalf("send: %v, %v", r, err)
	}
	return r
}

func text(topic, body string) *primitive.Message { return primitive.NewMessage(topic, []byte(body)) }

// sink collects what a consumer gets.
type sink struct {
	mu   sync.Mutex
	msgs []*primitive.MessageExt
}

func (s *sink) add(msgs ...*primitive.MessageExt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.msgs = append(s.msgs, msgs...)
}

func (s *sink) all() []*primitive.MessageExt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.msgs)
}

func (s *sink) bodies() []string {
	var b []string
	for _, m := range s.all() {
		b = append(b, string(m.Body))
	}
	return b
}

func (s *sink) accept(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	s.add(msgs...)
	return consumer.ConsumeSuccess, nil
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func consume(ns []string, instance, expression string, f listener, opts ...consumer.Option) {
	c, err := rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNameServer(ns), consumer.WithInstance(instance), consumer.WithGroupName("g"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, opts...)...)
	if err == nil {
		err = c.Subscribe("t", consumer.MessageSelector{Type: consumer.TAG, Expression: expression}, f)
	}
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		log.Fatal(err)
	}
}

func await(what string, cond func() bool) {
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			log.Fatalf("never: %s", what)
		}
	}
}

// same insists that two lists have the same elements, each as often.
func same(what string, got, want []string) {
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		log.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

func produce(ns []string) {
	p := newProducer(ns)
	r := send(p, text("new", "sync").WithTag("red").WithKeys([]string{"k1"}))
	if len(r.MsgID) != 32 || len(r.OffsetMsgID) != 32 || r.MessageQueue.Topic != "new" {
		log.Fatalf("result %v", r)
	}
	send(p, text("new", "batch 1"), text("new", "batch 2"))
	if err := p.SendOneWay(context.Background(), text("new", "one-way")); err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	err := p.SendAsync(context.Background(), func(_ context.Context, r *primitive.SendResult, err error) {
		if err == nil && r.Status != primitive.SendOK {
			err = fmt.Errorf("status %d", r.Status)
		}
		done <- err
	}, text("new", "async"))
	if err = errors.Join(err, <-done); err != nil {
		log.Fatal(err)
	}
}

func clustering(ns []string) {
	p := newProducer(ns)
	var one, two sink
	consume(ns, "one", "*", one.accept)
	consume(ns, "two", "*", two.accept)
	var want []string
	// Until both have rebalanced, one of them may have all the queues, and messages may come twice.
	await("both consumers get messages", func() bool {
		want = append(want, fmt.Sprint("m", len(want)))
		send(p, text("t", want[len(want)-1]))
		time.Sleep(50 * time.Millisecond)
		return len(one.all()) > 0 && len(two.all()) > 0
	})
	await("all have come", func() bool {
		got := slices.Concat(one.bodies(), two.bodies())
		slices.Sort(got)
		return len(slices.Compact(got)) == len(want)
	})
	point()
}

func broadcast(ns []string) {
	p := newProducer(ns)
	var one, two sink
	consume(ns, "one", "*", one.accept, consumer.WithConsumerModel(consumer.BroadCasting))
	consume(ns, "two", "*", two.accept, consumer.WithConsumerModel(consumer.BroadCasting))
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("m", i))
		send(p, text("t", want[i]))
	}
	await("both get everything", func() bool { return len(one.all()) >= 20 && len(two.all()) >= 20 })
	same("one", one.bodies(), want)
	same("two", two.bodies(), want)
}

func tags(ns []string) {
	p := newProducer(ns)
	for _, tag := range []string{"red", "green", "blue"} {
		for i := range 4 {
			send(p, text("t", fmt.Sprint(tag, i)).WithTag(tag))
		}
	}
	var s sink
	consume(ns, "one", "red || blue", s.accept)
	want := []string{"red0", "red1", "red2", "red3", "blue0", "blue1", "blue2", "blue3"}
	await("red and blue come", func() bool { return len(s.all()) >= len(want) })
	same("tags", s.bodies(), want)
}

func orderly(ns []string) {
	p := newProducer(ns, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	const each = 20
	for i := range each {
		for _, key := range []string{"x", "y", "z"} {
			send(p, text("t", fmt.Sprintf("%s%02d", key, i)).WithShardingKey(key))
		}
	}
	var s sink
	consume(ns, "one", "*", s.accept, consumer.WithConsumerOrder(true))
	await("all come", func() bool { return len(s.all()) >= 3*each })
	perKey := make(map[byte][]string)
	for _, b := range s.bodies() {
		perKey[b[0]] = append(perKey[b[0]], b)
	}
	for key, got := range perKey {
		if len(got) != each || !slices.IsSorted(got) {
			log.Fatalf("%c: %s", key, strings.Join(got, " "))
		}
	}
}

func retry(ns []string) {
	p := newProducer(ns)
	var s sink
	consume(ns, "one", "*", func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		s.add(msgs...)
		if msgs[0].ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	})
	r := send(p, text("t", "x"))
	await("the second attempt", func() bool { return len(s.all()) >= 2 })
	first, second := s.all()[0], s.all()[1]
	if second.ReconsumeTimes != 1 || second.Topic != "t" || second.MsgId != r.MsgID || first.MsgId != r.MsgID {
		log.Fatalf("first %v\nsecond %v", first, second)
	}
	if early := first.StoreTimestamp + 1000 - second.StoreTimestamp; early > 0 {
		log.Fatalf("%d ms early", early)
	}
}

func delay(ns []string) {
	p := newProducer(ns)
	var s sink
	consume(ns, "one", "*", s.accept)
	begin := time.Now()
	send(p, text("t", "level").WithDelayTimeLevel(1))
	send(p, text("t", "timer").WithDelayTimestamp(begin.Add(1500*time.Millisecond)))
	await("both come", func() bool { return len(s.all()) >= 2 })
	due := map[string]time.Duration{"level": time.Second, "timer": 1500 * time.Millisecond}
	for _, m := range s.all() {
		if early := begin.Add(due[string(m.Body)]).UnixMilli() - m.StoreTimestamp; early > 0 {
			log.Fatalf("%s: %d ms early", m.Body, early)
		}
	}
}

func restart(ns []string) {
	p := newProducer(ns, producer.WithRetry(5))
	var s sink
	consume(ns, "one", "*", s.accept)
	send(p, text("t", "before"))
	await("the first message", func() bool { return len(s.all()) >= 1 })
	point()
	send(p, text("t", "after"))
	await("the message after the restart", func() bool { return slices.Contains(s.bodies(), "after") })
}
