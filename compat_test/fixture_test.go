package compat_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/delaygate/delaygate/compat_test/client"
	"github.com/delaygate/delaygate/compat_test/cluster"
	"github.com/delaygate/delaygate/compat_test/raw"
)

const (
	// patience bounds a wait for something that must happen. A shared two-core machine that runs ten JVMs
	// can be slow; nothing here is a promise about speed.
	patience = 3 * time.Minute
	// sameMoment bounds how late a message may be that nothing holds up.
	sameMoment = 20 * time.Second
)

// fixture is what the tests of one pair share: a topic on brokerA, a producer, and a consumer of all.
type fixture struct {
	pair
	cluster    *cluster.Cluster
	driver     *client.Driver
	nameServer string
	topic      string
	producer   *client.Producer
	consumer   *client.Consumer
}

func newFixture(p pair) (*fixture, error) {
	f := &fixture{pair: p, topic: "all-" + p.String()}
	var err error
	if f.cluster, err = suite.clusters[p.version](); err != nil {
		return nil, err
	}
	if f.nameServer, err = suite.target(p.version); err != nil {
		return nil, err
	}
	if f.driver, err = suite.drivers[p.kind](); err != nil {
		return nil, err
	}
	if err := createTopic(suite.ctx, f.cluster, brokerA, f.topic, 4); err != nil {
		return nil, err
	}
	if f.producer, err = f.driver.NewProducer(suite.ctx, f.nameServer, "all-"+f.String()); err != nil {
		return nil, err
	}
	f.consumer, err = f.newConsumer(suite.ctx, client.ConsumerOptions{Name: "all-" + f.String(), Topic: f.topic})
	return f, err
}

func fixtureOf(t *testing.T, p pair) *fixture {
	t.Helper()
	return must(suite.fixtures[p.String()]())(t)
}

// createTopic makes a topic on one broker, past the proxy.
func createTopic(ctx context.Context, c *cluster.Cluster, broker, topic string, queues int) error {
	return raw.CreateTopic(ctx, c.NameServer, broker, topic, queues)
}

// ownTopic makes a topic for one test.
func (f *fixture) ownTopic(t *testing.T, name, broker string, queues int) string {
	t.Helper()
	topic := name + "-" + f.String()
	if err := createTopic(t.Context(), f.cluster, broker, topic, queues); err != nil {
		t.Fatal(err)
	}
	return topic
}

// newConsumer starts a consumer; its group is the topic's unless it says otherwise. The group's retry topic
// is made first: a client learns of one that the broker makes later only half a minute later.
func (f *fixture) newConsumer(ctx context.Context, o client.ConsumerOptions) (*client.Consumer, error) {
	o.NameServer = f.nameServer
	if o.Group == "" {
		o.Group = "g-" + o.Topic
	}
	route, err := raw.Route(ctx, f.cluster.NameServer, o.Topic)
	if err != nil {
		return nil, err
	}
	for _, b := range route.Brokers {
		if err := createTopic(ctx, f.cluster, b.BrokerName, "%RETRY%"+o.Group, 1); err != nil {
			return nil, err
		}
	}
	return f.driver.NewConsumer(ctx, o)
}

// consume starts a consumer that the test closes at its end.
func (f *fixture) consume(t *testing.T, o client.ConsumerOptions) *client.Consumer {
	t.Helper()
	c, err := f.newConsumer(t.Context(), o)
	if err != nil {
		t.Fatalf("consumer %s: %v; the driver's log:\n%s", o.Name, err, f.driver.Log())
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close consumer %s: %v", o.Name, err)
		}
	})
	return c
}

// sent is a message that was accepted, and when: the client's clock before and after the call, ms.
type sent struct {
	client.Result
	message       client.Message
	before, after int64
}

// send sends to the shared topic unless the message names another. The body defaults to something unique.
func (f *fixture) send(t *testing.T, m client.Message) sent {
	t.Helper()
	s, err := f.trySend(t, m)
	if err != nil {
		t.Fatalf("send %v: %v", m, err)
	}
	return s
}

func (f *fixture) trySend(t *testing.T, m client.Message) (sent, error) {
	if m.Topic == "" {
		m.Topic = f.topic
	}
	if m.Mode == "" {
		m.Mode = client.Sync
	}
	if m.Body == nil {
		m.Body = []byte(t.Name())
	}
	s := sent{message: m, before: time.Now().UnixMilli()}
	var err error
	s.Result, err = f.producer.Send(t.Context(), m)
	s.after = time.Now().UnixMilli()
	if err == nil && m.Mode != client.OneWay && s.Status != "SEND_OK" {
		err = fmt.Errorf("status %s", s.Status)
	}
	return s, err
}

// withKey picks the deliveries of one message.
func withKey(all []client.Delivery, uniqKey string) []client.Delivery {
	var some []client.Delivery
	for _, d := range all {
		if d.UniqKey == uniqKey {
			some = append(some, d)
		}
	}
	return some
}

// await waits until a consumer has every message and returns the deliveries in the order of the messages.
func await(t *testing.T, c *client.Consumer, messages ...sent) []client.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, err := c.Wait(ctx, func(all []client.Delivery) bool { return missing(all, messages) == 0 })
	if err != nil {
		t.Fatalf("%d of %d messages are missing: %v", missing(all, messages), len(messages), err)
	}
	var out []client.Delivery
	for _, m := range messages {
		same := withKey(all, m.UniqKey)
		if len(same) > 1 {
			t.Errorf("%s came %d times: %+v", m.UniqKey, len(same), same)
		}
		out = append(out, same[0])
	}
	return out
}

func missing(all []client.Delivery, messages []sent) int {
	have := map[string]bool{}
	for _, d := range all {
		have[d.UniqKey] = true
	}
	n := 0
	for _, m := range messages {
		if !have[m.UniqKey] {
			n++
		}
	}
	return n
}

// checkContent compares what the application put in with what the application got out.
func checkContent(t *testing.T, m sent, d client.Delivery) {
	t.Helper()
	if d.Problem != nil {
		t.Fatal(d.Problem)
	}
	if d.Topic != m.message.Topic || d.Tags != m.message.Tags || d.Keys != m.message.Keys || d.Flag != m.message.Flag ||
		string(d.Body) != string(m.message.Body) {
		t.Errorf("sent %v\n got %+v", m.message, d)
	}
	if d.BornTimestamp < m.before || d.BornTimestamp > m.after {
		t.Errorf("bornTimestamp %d is not within the send, %d to %d", d.BornTimestamp, m.before, m.after)
	}
	for name, want := range m.message.Props {
		if got := d.Props[name]; got != want {
			t.Errorf("property %s: got %q, want %q", name, got, want)
		}
	}
	if m.message.Mode != client.OneWay && d.Broker != "" && (d.Broker != m.Broker || d.QueueID != m.QueueID) {
		t.Errorf("the result names %s queue %d, the message came from %s queue %d", m.Broker, m.QueueID, d.Broker, d.QueueID)
	}
}

// checkDue fails when a message was stored before due, or so late that it must have been stuck, and
// returns how late it was in ms. Slack is how far due lies before the real due time at most, ms.
func checkDue(t *testing.T, what string, d client.Delivery, due, slack int64) int64 {
	t.Helper()
	late := d.StoreTimestamp - due
	if late < 0 {
		t.Errorf("%s: stored %d ms before it was due", what, -late)
	}
	if late > slack+sameMoment.Milliseconds() {
		t.Errorf("%s: stored %d ms late", what, late)
	}
	return late
}
