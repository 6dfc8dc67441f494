package fakemq

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/delaygate/delaygate/codec"
)

func twoBrokers() Options {
	return Options{
		NameServers: []string{"127.0.0.1:0", "127.7.7.8:0"},
		Brokers:     []BrokerOptions{{Addr: "127.7.7.7:0"}, {Addr: "127.7.7.7:0"}},
	}
}

func routeOf(t *testing.T, addr, topic string) *codec.Route {
	t.Helper()
	reply := dial(t, addr).call(codec.ReqGetRouteInfoByTopic, fields("topic", topic), nil)
	if reply.Code == codec.RespTopicNotExist {
		return nil
	}
	route, err := codec.ParseRoute(reply.Body)
	if err != nil {
		t.Fatalf("code %d, body %q: %v", reply.Code, reply.Body, err)
	}
	return route
}

func TestRouteNamesEveryBrokerThatHasTheTopic(t *testing.T) {
	c := startCluster(t, twoBrokers())
	c.CreateTopic("both", 3)
	c.Broker("broker-b").CreateTopic("one", 2, 6)
	for _, ns := range c.NameServerAddrs() {
		route := routeOf(t, ns, "both")
		if len(route.Queues) != 2 || len(route.Brokers) != 2 || route.Queues[0].WriteQueueNums != 3 {
			t.Errorf("route %+v", route)
		}
		if addr := route.Brokers[1].BrokerAddrs[0]; addr != c.Broker("broker-b").Addr() || !strings.HasPrefix(addr, "127.7.7.7:") {
			t.Errorf("address %s", addr)
		}
		if route := routeOf(t, ns, "one"); len(route.Brokers) != 1 || route.Brokers[0].BrokerName != "broker-b" {
			t.Errorf("route %+v", route)
		}
		if route := routeOf(t, ns, "none"); route != nil {
			t.Errorf("route %+v", route)
		}
		if route := routeOf(t, ns, "TBW102"); route == nil || route.Queues[0].Perm != 7 {
			t.Errorf("route %+v", route)
		}
	}
}

func TestClusterInfo(t *testing.T) {
	c := startCluster(t, twoBrokers())
	reply := dial(t, c.NameServerAddrs()[1]).must(codec.ReqGetBrokerClusterInfo, nil, nil)
	info, err := codec.ParseClusterInfo(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Clusters["DefaultCluster"]; !slices.Equal(got, []string{"broker-a", "broker-b"}) {
		t.Errorf("clusters %v", info.Clusters)
	}
	if got := info.Brokers["broker-a"].BrokerAddrs[0]; got != c.Broker("broker-a").Addr() {
		t.Errorf("brokers %v", info.Brokers)
	}
}

func TestOtherNameServerRequests(t *testing.T) {
	c := startCluster(t, Options{})
	c.CreateTopic("mine", 1)
	cl := dial(t, c.NameServerAddrs()[0])
	if body := string(cl.must(codec.ReqGetAllTopicListFromNameServer, nil, nil).Body); !strings.Contains(body, `"mine"`) {
		t.Errorf("topics %s", body)
	}
	if reply := cl.call(codec.ReqGetKVConfig, fields("namespace", "n", "key", "k"), nil); reply.Code != codec.RespQueryNotFound {
		t.Errorf("KV config: code %d", reply.Code)
	}
	if reply := cl.call(103, nil, nil); reply.Code != codec.RespNotSupported {
		t.Errorf("broker registration: code %d", reply.Code)
	}
	c.Brokers()[0].DeleteTopic("mine")
	if routeOf(t, c.NameServerAddrs()[0], "mine") != nil {
		t.Error("a deleted topic has a route")
	}
}

func TestBrokerGoesAndComesBack(t *testing.T) {
	c := startCluster(t, twoBrokers())
	c.CreateTopic("t", 4)
	b := c.Broker("broker-a")
	addr := b.Addr()
	cl := dial(t, addr)
	cl.heartbeat("c", "g", "t", "*", 1)
	cl.mustSend(message{body: "kept"})
	lock := func(cl *client, owner string) string {
		body := `{"consumerGroup":"g","clientId":"` + owner + `","mqSet":[{"topic":"t","brokerName":"broker-a","queueId":0}]}`
		return string(cl.must(codec.ReqLockBatchMQ, nil, []byte(body)).Body)
	}
	lock(cl, "c")

	b.Stop()
	if left := cl.closed(); len(left) > 0 {
		cl.t.Logf("%d bytes were still under way", len(left))
	}
	if nc, err := net.Dial("tcp", addr); err == nil {
		nc.Close()
		t.Error("a stopped broker accepts connections")
	}
	if route := routeOf(t, c.NameServerAddrs()[0], "t"); len(route.Brokers) != 1 {
		t.Errorf("route while it is stopped: %+v", route)
	}
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	if b.Addr() != addr {
		t.Errorf("address %s, was %s", b.Addr(), addr)
	}
	dial(t, addr).mustSend(message{body: "new"})
	if got := bodies(c.Messages("t")); !slices.Equal(got, []string{"kept", "new"}) {
		t.Errorf("messages %q", got)
	}
	if clients := b.Clients("g"); len(clients) != 0 {
		t.Errorf("clients of before: %q", clients)
	}
	if got := lock(dial(t, addr), "other"); !strings.Contains(got, `"t"`) {
		t.Errorf("a lock of before still holds: %s", got)
	}
	b.Kill()
	if route := routeOf(t, c.NameServerAddrs()[0], "t"); len(route.Brokers) != 2 {
		t.Errorf("route after a kill that nobody has noticed: %+v", route)
	}
}

func TestNameServerGoesAndComesBack(t *testing.T) {
	c := startCluster(t, twoBrokers())
	n := c.NameServers()[0]
	n.Stop()
	if nc, err := net.Dial("tcp", n.Addr()); err == nil {
		nc.Close()
		t.Error("a stopped name server accepts connections")
	}
	routeOf(t, c.NameServerAddrs()[1], "TBW102")
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	if routeOf(t, n.Addr(), "TBW102") == nil {
		t.Error("no route after the restart")
	}
}

func TestStartRefusesWhatCannotWork(t *testing.T) {
	for name, o := range map[string]Options{
		"two of one name":    {Brokers: []BrokerOptions{{Name: "a"}, {Name: "a"}}},
		"no concrete IP":     {Brokers: []BrokerOptions{{Addr: "0.0.0.0:0"}}},
		"no port":            {NameServers: []string{"127.0.0.1"}},
		"bad levels":         {Brokers: []BrokerOptions{{DelayLevels: "soon"}}},
		"address of no host": {NameServers: []string{"203.0.113.1:0"}},
	} {
		if c, err := Start(o); err == nil {
			c.Close()
			t.Errorf("%s: no error", name)
		}
	}
}
