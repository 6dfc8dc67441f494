package route

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
)

func (f *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.face.Run(ctx) })
	f.t.Cleanup(func() { cancel(); wg.Wait() })
}

func TestKeptRepliesServeForABoundedTimeWhileAllNameServersAreDown(t *testing.T) {
	f := newFixture(t, 2)
	route, cluster := f.ask(routeRequest("T")), f.ask(request(106))
	f.names.stop()
	f.clock.pass(time.Hour)
	for _, kept := range []*codec.Command{route, cluster} {
		c := routeRequest("T")
		if kept == cluster {
			c = request(106)
		}
		r := f.ask(c)
		f.want(r, codec.RespSuccess, "")
		if string(r.Body) != string(kept.Body) {
			t.Fatalf("body %s, was %s", r.Body, kept.Body)
		}
	}
	f.want(f.ask(routeRequest("U")), codec.RespSystemError, "no name server answers")
	zoned := routeRequest("T")
	zoned.Fields = append(zoned.Fields, codec.Field{Name: "__ZONE_NAME", Value: "z1"})
	f.want(f.ask(zoned), codec.RespSystemError, "no name server answers")
	strict := routeRequest("T")
	strict.Version = 401
	f.want(f.ask(strict), codec.RespSystemError, "no name server answers")
	f.clock.pass(time.Millisecond)
	f.want(f.ask(routeRequest("T")), codec.RespSystemError, "no name server answers")
	f.names.restart()
	eventually(t, "the name servers are asked again", func() bool { return f.ask(routeRequest("T")).Code == codec.RespSuccess })
}

func TestKeptRepliesAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	c := newReplyCache(3, 100, time.Hour)
	reply := func(n int) *codec.Command { return &codec.Command{Body: make([]byte, n)} }
	for i := range 5 {
		c.put(strconv.Itoa(i), reply(10), now)
	}
	if len(c.byKey) != 3 || c.order.Len() != 3 || c.get("1", now) != nil || c.get("2", now) == nil {
		t.Fatalf("%d replies kept", len(c.byKey))
	}
	c.put("big", reply(80), now) // 2 was used last, 3 and 4 go
	if c.get("2", now) == nil || c.get("3", now) != nil || c.get("4", now) != nil || c.size > 100 {
		t.Fatalf("%d bytes kept", c.size)
	}
	c.put("huge", reply(200), now)
	if len(c.byKey) != 0 || c.size != 0 {
		t.Fatalf("%d replies, %d bytes kept", len(c.byKey), c.size)
	}
}

func TestTheBookServesWhileTheUpstreamIsDownAtStart(t *testing.T) {
	f := newFixture(t, 1)
	f.ask(routeRequest("T"))
	known := f.view.Brokers()
	f.names.stop()
	f.opener.opened = map[string]int{}
	f.start()
	if d := cmp.Diff(known, f.view.Brokers()); d != "" || len(known) != 3 {
		t.Fatalf("seeded %v: %s", known, d)
	}
	f.run()
	eventually(t, "all listeners of the book are open", func() bool {
		return f.opener.port("203.0.113.7:10911") == 20000 && f.opener.port("203.0.113.8:10911") == 20010 && f.opener.port("203.0.113.9:10911") == 20020
	})
}

func TestRunFollowsTheView(t *testing.T) {
	f := newFixture(t, 1)
	f.run()
	f.view.Seed([]upstream.Broker{{Name: "z", Addr: "203.0.113.99:1"}})
	eventually(t, "z has a listener", func() bool { return f.opener.port("203.0.113.99:1") == 20000 })
	if err := f.view.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others have one", func() bool { return f.opener.port("203.0.113.9:10911") == 20030 })
	if f.opener.port("203.0.113.99:1") != 20000 {
		t.Fatal("z vanished and lost its listener")
	}
}

func TestATakenPortIsTriedAgainAndNeverReplaced(t *testing.T) {
	const taken = "203.0.113.8:10911"
	f := newFixture(t, 1)
	f.opener.isBroken(taken, true)
	f.want(f.ask(routeRequest("T")), codec.RespSystemError, "no listener yet")
	f.run()
	f.want(f.ask(routeRequest("T")), codec.RespSystemError, "no listener yet")
	tried := f.opener.attempts()
	eventually(t, "Run tries again by itself", func() bool { return f.opener.attempts() > tried+3 })
	f.opener.isBroken(taken, false)
	eventually(t, "the listener is open", func() bool { return f.opener.port(taken) != 0 })
	if p := f.opener.port(taken); p != 20010 {
		t.Fatalf("port %d", p)
	}
	f.want(f.ask(routeRequest("T")), codec.RespSuccess, "")
}

func TestAFullRangeKeepsTheClientsOnTheirRoutes(t *testing.T) {
	f := newFixture(t, 1)
	var many []upstream.Broker
	for i := range 4 {
		many = append(many, upstream.Broker{Name: "a" + strconv.Itoa(i), Addr: secret + strconv.Itoa(100+i) + ":1"})
	}
	f.view.Seed(many)
	f.face.sync()
	f.want(f.ask(routeRequest("T")), codec.RespSystemError, "no listener yet")
	if f.face.sync() {
		t.Fatal("brokers without a port count as served")
	}
}
