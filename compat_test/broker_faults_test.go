package compat_test

import (
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/compat_test/cluster"
	"github.com/delaygate/delaygate/compat_test/raw"
)

// The tests of one broker's faults run one after the other, while no other test needs that broker.
func TestBrokerFaults(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		ns := must(suite.target(version))(t)
		c := must(suite.clusters[version]())(t)
		clients := attachAll(t, version, ns, "faults", brokerB)
		time.Sleep(time.Second) // lets tests that need the broker begin, and be waited for
		suite.whole[version].Lock()
		defer suite.whole[version].Unlock()
		t.Run("restarted while messages become due", func(t *testing.T) { brokerRestarts(t, c, clients) })
		t.Run("killed, delayed sends go on", func(t *testing.T) { brokerIsDown(t, c, ns) })
	})
}

func brokerRestarts(t *testing.T, c *cluster.Cluster, clients []attached) {
	b := c.Broker(brokerB)
	pending := sendPending(t, clients)
	time.Sleep(time.Until(time.UnixMilli(pending[0][2].message.DeliverMs)))
	if err := b.Stop(); err != nil {
		t.Errorf("%v; its log:\n%s", err, b.Log())
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkAllArrive(t, clients, pending)
}

// brokerIsDown checks that the loss of one broker touches nothing of another's, and loses nothing.
func brokerIsDown(t *testing.T, c *cluster.Cluster, ns string) {
	const messages = 200
	ctx := t.Context()
	real := map[string]string{brokerA: c.Broker(brokerA).Addr, brokerB: c.Broker(brokerB).Addr}
	floods := map[string]*flood{}
	for name, addr := range real {
		topic := "down-" + name
		if err := createTopic(ctx, c, name, topic, 2); err != nil {
			t.Fatal(err)
		}
		listener := must(raw.MasterAddr(ctx, ns, name))(t)
		floods[name] = &flood{addr: listener, reader: raw.NewReader(addr, topic, 2), topic: topic, queues: 2, prefix: "D" + name}
	}
	// What every client does first: a route, and one plain send.
	for _, f := range floods {
		must(raw.Route(ctx, ns, f.topic))(t)
		f.add(0, 1)
		f.send(t, 1)
	}
	c.Broker(brokerB).Kill()
	now := time.Now().UnixMilli()
	for i := range messages {
		for _, f := range floods {
			f.add(now+3000+int64(i)*20, 1)
		}
	}
	var both sync.WaitGroup
	for _, f := range floods {
		both.Go(func() { f.send(t, 16) })
	}
	both.Wait()
	if t.Failed() {
		return
	}
	floods[brokerA].await(t)
	floods[brokerA].check(t, exactly)
	if worst := floods[brokerA].lateness().max; worst > sameMoment.Milliseconds() {
		t.Errorf("a message of the healthy broker was %d ms late", worst)
	}
	if err := c.Broker(brokerB).Start(ctx); err != nil {
		t.Fatal(err)
	}
	floods[brokerB].await(t)
	floods[brokerB].check(t, atLeast)
	for name, f := range floods {
		t.Logf("%s: lateness %v", name, f.lateness())
		f.reader.Close()
	}
}
