package compat_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/raw"
)

func TestAThousandConnectionsNeedNoGoroutineEach(t *testing.T) {
	t.Parallel()
	const connections = 1000
	ctx := t.Context()
	p := must(suite.startProxy("5.5.0", "many"))(t)
	c := must(suite.clusters["5.5.0"]())(t)
	const topic = "many"
	if err := createTopic(ctx, c, brokerA, topic, 4); err != nil {
		t.Fatal(err)
	}
	addr := must(raw.MasterAddr(ctx, p.NameServer, brokerA))(t)
	before := must(p.Metric(ctx, "go_goroutines"))(t)

	open := make([]*raw.Conn, connections)
	var g errgroup.Group
	g.SetLimit(50)
	exchange := func(i, round int) error {
		m := &raw.Message{Topic: topic, Queue: int32(i % 4), Body: []byte("x")}
		m.Props.Set(codec.PropUniqKey, fmt.Sprintf("M%d-%028d", round, i))
		if round > 0 {
			m.Props.Set("TIMER_DELAY_MS", "500")
		}
		_, err := open[i].Send(ctx, m)
		return err
	}
	for i := range connections {
		g.Go(func() (err error) {
			if open[i], err = raw.Dial(ctx, addr); err != nil {
				return err
			}
			return exchange(i, 0) // relayed: now it has an upstream connection too
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("%v; the proxy's log:\n%s", err, p.Log())
	}
	for i := range connections {
		g.Go(func() error { return exchange(i, 1) })
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("%v; the proxy's log:\n%s", err, p.Log())
	}
	during := must(p.Metric(ctx, "go_goroutines"))(t)
	if during-before > 100 {
		t.Errorf("%v goroutines with %d connections, %v without", during, connections, before)
	}
	t.Logf("%v goroutines with %d connections, %v without", during, connections, before)
	reader := raw.NewReader(c.Broker(brokerA).Addr, topic, 4)
	defer reader.Close()
	seen := map[string]bool{}
	give := time.Now().Add(patience)
	err := reader.Until(ctx, func() bool { return len(seen) == 2*connections || time.Now().After(give) },
		func(m *codec.StoredMessage) { seen[uniqKey(*m)] = true })
	if err != nil || len(seen) != 2*connections {
		t.Errorf("%d of %d messages arrived: %v", len(seen), 2*connections, err)
	}
	for _, c := range open {
		c.Close()
	}
	if err := p.Stop(); err != nil {
		t.Errorf("%v; its log:\n%s", err, p.Log())
	}
}
