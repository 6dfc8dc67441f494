package compat_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaygate/delaygate/compat_test/client"
	"github.com/delaygate/delaygate/compat_test/proxy"
)

func TestPendingMessagesOutliveTheProxy(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		p := must(suite.startProxy(version, "restarted"))(t)
		clients := attachAll(t, version, p.NameServer, "restart", brokerA)
		t.Run("stopped in order", func(t *testing.T) {
			pending := sendPending(t, clients)
			if err := p.Stop(); err != nil {
				t.Errorf("%v; its log:\n%s", err, p.Log())
			}
			comeBack(t, p)
			checkAllArrive(t, clients, pending)
		})
		t.Run("killed", func(t *testing.T) {
			pending := sendPending(t, clients)
			p.Kill()
			comeBack(t, p)
			checkAllArrive(t, clients, pending)
		})
		t.Run("killed twice and away past the due times", func(t *testing.T) {
			pending := sendPending(t, clients)
			p.Kill()
			comeBack(t, p)
			p.Kill()
			time.Sleep(time.Until(time.UnixMilli(pending[0][len(pending[0])-1].message.DeliverMs)) + time.Second)
			comeBack(t, p)
			checkAllArrive(t, clients, pending)
		})
	})
}

func comeBack(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// attached is a client library that uses one name server address: a producer and a consumer of one topic.
type attached struct {
	*fixture
	consumer *client.Consumer
}

// attachAll connects every client library to a name server address, each with a topic on the given broker.
func attachAll(t *testing.T, version, nameServer, name, broker string) []attached {
	t.Helper()
	all := make([]attached, len(clientKinds))
	var g errgroup.Group
	for i, kind := range clientKinds {
		g.Go(func() (err error) {
			p := pair{kind, version}
			f := &fixture{pair: p, topic: name + "-" + p.String(), nameServer: nameServer}
			if f.cluster, err = suite.clusters[version](); err != nil {
				return err
			}
			if f.driver, err = suite.drivers[kind](); err != nil {
				return err
			}
			if err = createTopic(t.Context(), f.cluster, broker, f.topic, 2); err != nil {
				return err
			}
			if f.producer, err = f.driver.NewProducer(t.Context(), nameServer, name+"-"+p.String()); err != nil {
				return err
			}
			c, err := f.newConsumer(t.Context(), client.ConsumerOptions{Name: name + "-" + p.String(), Topic: f.topic})
			all[i] = attached{f, c}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range all {
			_ = c.consumer.Close(context.Background())
			_ = c.producer.Close(context.Background())
		}
	})
	return all
}

// sendPending lets each client send messages that become due two to eight seconds from now.
func sendPending(t *testing.T, clients []attached) [][]sent {
	t.Helper()
	const each = 12
	pending := make([][]sent, len(clients))
	now := time.Now().UnixMilli()
	for i, c := range clients {
		for n := range each {
			pending[i] = append(pending[i], sendUntilAccepted(t, c, client.Message{
				Topic: c.topic, Keys: fmt.Sprint("pending", n), DeliverMs: now + 2000 + int64(n)*500,
			}))
		}
	}
	return pending
}

// sendUntilAccepted repeats a send that finds the connection of an earlier life broken.
func sendUntilAccepted(t *testing.T, c attached, m client.Message) sent {
	t.Helper()
	give := time.Now().Add(patience)
	for {
		s, err := c.trySend(t, m)
		if err == nil {
			return s
		}
		if time.Now().After(give) {
			t.Fatalf("%s cannot send: %v", c.kind, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// checkAllArrive waits until every message has reached its consumer: at least once and not early.
func checkAllArrive(t *testing.T, clients []attached, pending [][]sent) {
	t.Helper()
	for i, c := range clients {
		t.Run(c.kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			all, err := c.consumer.Wait(ctx, func(all []client.Delivery) bool { return missing(all, pending[i]) == 0 })
			if err != nil {
				t.Fatalf("%d of %d messages are missing: %v", missing(all, pending[i]), len(pending[i]), err)
			}
			repeats := 0
			for _, s := range pending[i] {
				same := withKey(all, s.UniqKey)
				repeats += len(same) - 1
				for _, d := range same {
					if d.StoreTimestamp < s.message.DeliverMs {
						t.Errorf("%s was stored %d ms before it was due", d.Keys, s.message.DeliverMs-d.StoreTimestamp)
					}
				}
			}
			t.Logf("%d messages, %d repeats", len(pending[i]), repeats)
		})
	}
}
