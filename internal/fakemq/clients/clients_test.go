package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"

	"github.com/delaygate/delaygate/internal/fakemq"
)

// patience bounds what a client does within its own periods: rebalance 20 s, route poll 30 s.
const patience = 45 * time.Second

func TestMain(m *testing.M) {
	rlog.SetLogLevel("fatal")
	os.Exit(m.Run())
}

func start(t *testing.T) *fakemq.Cluster {
	t.Helper()
	c, err := fakemq.Start(fakemq.Options{
		Brokers: []fakemq.BrokerOptions{{DelayLevels: "1s 2s 1s 2s"}, {DelayLevels: "1s 2s 1s 2s"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.CreateTopic("t", 4)
	return c
}

func newProducer(t *testing.T, c *fakemq.Cluster, opts ...producer.Option) rocketmq.Producer {
	t.Helper()
	p, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNameServer(c.NameServerAddrs()),
		producer.WithInstanceName(t.Name() + "-producer"),
		producer.WithGroupName("pg"),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Shutdown() })
	return p
}

func send(t *testing.T, p rocketmq.Producer, msgs ...*primitive.Message) *primitive.SendResult {
	t.Helper()
	r, err := p.SendSync(context.Background(), msgs...)
	if err != nil || r.Status != primitive.SendOK {
		t.Fatalf("send: %v, %v", r, err)
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

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func (s *sink) accept(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	s.add(msgs...)
	return consumer.ConsumeSuccess, nil
}

func startConsumer(t *testing.T, c *fakemq.Cluster, group, instance, expression string, f listener, opts ...consumer.Option) rocketmq.PushConsumer {
	t.Helper()
	pc, err := rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNameServer(c.NameServerAddrs()),
		consumer.WithInstance(t.Name() + "-" + instance),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := pc.Subscribe("t", consumer.MessageSelector{Type: consumer.TAG, Expression: expression}, f); err != nil {
		t.Fatal(err)
	}
	if err := pc.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pc.Shutdown() })
	return pc
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// same checks that two lists have the same elements, each as often.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestProducer(t *testing.T) {
	c := start(t)
	p := newProducer(t, c)
	r := send(t, p, text("new", "sync").WithTag("red").WithKeys([]string{"k1"}))
	send(t, p, text("new", "batch 1"), text("new", "batch 2"))
	if err := p.SendOneWay(context.Background(), text("new", "one-way")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	err := p.SendAsync(context.Background(), func(_ context.Context, r *primitive.SendResult, err error) {
		if err == nil && r.Status != primitive.SendOK {
			err = fmt.Errorf("status %d", r.Status)
		}
		done <- err
	}, text("new", "async"))
	if err = errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, err := c.Await(ctx, "new", 5)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list {
		got = append(got, string(m.Body))
	}
	same(t, "stored", got, []string{"sync", "batch 1", "batch 2", "one-way", "async"})
	if uniq, _ := list[0].Property("UNIQ_KEY"); uniq != r.MsgID {
		t.Errorf("UNIQ_KEY %s, the client says %s", uniq, r.MsgID)
	}
}

func TestClusteringOfTwo(t *testing.T) {
	c := start(t)
	p := newProducer(t, c)
	var one, two sink
	startConsumer(t, c, "g", "one", "*", one.accept)
	startConsumer(t, c, "g", "two", "*", two.accept)
	var want []string
	// Until both have rebalanced, one of them may have all the queues, and messages may come twice.
	await(t, "both consumers get messages", func() bool {
		body := fmt.Sprint("m", len(want))
		send(t, p, text("t", body))
		want = append(want, body)
		time.Sleep(50 * time.Millisecond)
		return len(one.all()) > 0 && len(two.all()) > 0
	})
	await(t, "all have come", func() bool {
		got := slices.Concat(one.bodies(), two.bodies())
		slices.Sort(got)
		return len(slices.Compact(got)) == len(want)
	})
}

func TestBroadcasting(t *testing.T) {
	c := start(t)
	p := newProducer(t, c)
	t.Setenv("ROCKETMQ_GO_HOME", t.TempDir())
	var one, two sink
	startConsumer(t, c, "gb", "one", "*", one.accept, consumer.WithConsumerModel(consumer.BroadCasting))
	startConsumer(t, c, "gb", "two", "*", two.accept, consumer.WithConsumerModel(consumer.BroadCasting))
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("m", i))
		send(t, p, text("t", want[i]))
	}
	await(t, "both get everything", func() bool { return len(one.all()) >= 20 && len(two.all()) >= 20 })
	same(t, "one", one.bodies(), want)
	same(t, "two", two.bodies(), want)
}

func TestTags(t *testing.T) {
	c := start(t)
	p := newProducer(t, c)
	for _, tag := range []string{"red", "green", "blue"} {
		for i := range 4 {
			send(t, p, text("t", fmt.Sprint(tag, i)).WithTag(tag))
		}
	}
	var s sink
	startConsumer(t, c, "gt", "one", "red || blue", s.accept)
	want := []string{"red0", "red1", "red2", "red3", "blue0", "blue1", "blue2", "blue3"}
	await(t, "red and blue come", func() bool { return len(s.all()) >= len(want) })
	same(t, "tags", s.bodies(), want)
}

func TestOrderly(t *testing.T) {
	c := start(t)
	p := newProducer(t, c, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	const each = 20
	for i := range each {
		for _, key := range []string{"x", "y", "z"} {
			send(t, p, text("t", fmt.Sprintf("%s%02d", key, i)).WithShardingKey(key))
		}
	}
	var s sink
	startConsumer(t, c, "go", "one", "*", s.accept, consumer.WithConsumerOrder(true))
	await(t, "all come", func() bool { return len(s.all()) >= 3*each })
	perKey := make(map[byte][]string)
	for _, b := range s.bodies() {
		perKey[b[0]] = append(perKey[b[0]], b)
	}
	for key, got := range perKey {
		if len(got) != each || !slices.IsSorted(got) {
			t.Errorf("%c: %s", key, strings.Join(got, " "))
		}
	}
	if n := c.Requests(41); n == 0 {
		t.Error("the consumer has locked no queue")
	}
}

func TestRetry(t *testing.T) {
	c := start(t)
	c.CreateGroup("gr")
	p := newProducer(t, c)
	var s sink
	startConsumer(t, c, "gr", "one", "*", func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		s.add(msgs...)
		for _, m := range msgs {
			if m.ReconsumeTimes == 0 {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	r := send(t, p, text("t", "x"))
	await(t, "the second attempt", func() bool { return len(s.all()) >= 2 })
	first, second := s.all()[0], s.all()[1]
	if second.ReconsumeTimes != 1 || second.Topic != "t" || second.MsgId != r.MsgID || first.MsgId != r.MsgID {
		t.Errorf("first %v\nsecond %v", first, second)
	}
	if early := first.StoreTimestamp + 1000 - second.StoreTimestamp; early > 0 {
		t.Errorf("%d ms early", early)
	}
}

func TestDelays(t *testing.T) {
	c := start(t)
	p := newProducer(t, c)
	var s sink
	startConsumer(t, c, "gd", "one", "*", s.accept)
	begin := time.Now()
	send(t, p, text("t", "level").WithDelayTimeLevel(1))
	send(t, p, text("t", "timer").WithDelayTimestamp(begin.Add(1500*time.Millisecond)))
	await(t, "both come", func() bool { return len(s.all()) >= 2 })
	due := map[string]time.Duration{"level": time.Second, "timer": 1500 * time.Millisecond}
	for _, m := range s.all() {
		if early := begin.Add(due[string(m.Body)]).UnixMilli() - m.StoreTimestamp; early > 0 {
			t.Errorf("%s: %d ms early", m.Body, early)
		}
	}
}

func TestConsumerGoesOnAfterABrokerRestart(t *testing.T) {
	c := start(t)
	p := newProducer(t, c, producer.WithRetry(5))
	var s sink
	startConsumer(t, c, "gx", "one", "*", s.accept)
	send(t, p, text("t", "before"))
	await(t, "the first message", func() bool { return len(s.all()) >= 1 })
	for _, b := range c.Brokers() {
		b.Stop()
		if err := b.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	send(t, p, text("t", "after"))
	await(t, "the message after the restart", func() bool { return slices.Contains(s.bodies(), "after") })
}
