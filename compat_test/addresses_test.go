package compat_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/raw"
)

// requests are name-server requests whose replies carry broker addresses; a topic is added where needed.
var requests = []struct {
	name   string
	code   int32
	fields []string
}{
	{"route", raw.CodeRoute, []string{"topic", ""}},
	{"route in standard JSON", raw.CodeRoute, []string{"topic", "", "acceptStandardJsonOnly", "true"}},
	{"route of the default topic", raw.CodeRoute, []string{"topic", "TBW102"}},
	{"route of a topic that is not there", raw.CodeRoute, []string{"topic", "no-such-topic"}},
	{"cluster info", raw.CodeClusterInfo, nil},
	{"broker member group", 901, []string{"clusterName", "DefaultCluster", "brokerName", brokerA}},
	{"system topics", 304, nil},
	{"all topics", 206, nil},
	{"topics of the cluster", 224, []string{"cluster", "DefaultCluster"}},
}

func TestNoUpstreamAddressReachesAClient(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		suite.whole[version].RLock()
		defer suite.whole[version].RUnlock()
		ctx := t.Context()
		p := must(suite.shared[version]())(t)
		c := must(suite.clusters[version]())(t)
		const topic = "addresses"
		for _, b := range []string{brokerA, brokerB} {
			if err := createTopic(ctx, c, b, topic, 3); err != nil {
				t.Fatal(err)
			}
		}
		addrs := []string{p.NameServer, must(raw.MasterAddr(ctx, p.NameServer, brokerA))(t)}
		for _, addr := range addrs {
			for _, r := range requests {
				fields := append([]string{}, r.fields...)
				if len(fields) > 1 && fields[1] == "" {
					fields[1] = topic
				}
				for _, serialize := range []codec.Serialize{codec.JSON, codec.Binary} {
					for _, clientVersion := range []int32{121, 317, 407, 475} {
						cmd := raw.Request(r.code, fields...)
						cmd.Serialize, cmd.Version = serialize, clientVersion
						frame := rawReply(t, addr, cmd)
						checkNoUpstream(t, r.name, frame)
					}
				}
			}
		}
		checkRoute(t, p.NameServer, topic)
	})
}

// rawReply returns the bytes of an answer, undecoded.
func rawReply(t *testing.T, addr string, cmd *codec.Command) []byte {
	t.Helper()
	c := must(net.Dial("tcp", addr))(t)
	defer c.Close()
	if _, err := c.Write(must(cmd.Append(nil))(t)); err != nil {
		t.Fatal(err)
	}
	frame, err := raw.ReadFrame(c)
	if err != nil {
		t.Fatalf("request %d to %s: %v", cmd.Code, addr, err)
	}
	return frame
}

func checkNoUpstream(t *testing.T, what string, frame []byte) {
	t.Helper()
	addr := netip.MustParseAddr(upstreamHost).As4()
	if bytes.Contains(frame, []byte(upstreamHost)) || bytes.Contains(frame, addr[:]) {
		t.Errorf("%s: the reply holds an upstream address: %q", what, frame)
	}
}

// checkRoute checks that the route is complete for all that.
func checkRoute(t *testing.T, ns, topic string) {
	t.Helper()
	r := must(raw.Route(t.Context(), ns, topic))(t)
	if len(r.Queues) != 2 || len(r.Brokers) != 2 {
		t.Errorf("the route of %s is incomplete: %+v", topic, r)
	}
	for _, b := range r.Brokers {
		host := must(netip.ParseAddrPort(b.BrokerAddrs[0]))(t).Addr().String()
		if host != "127.0.0.1" {
			t.Errorf("%s is advertised as %s", b.BrokerName, b.BrokerAddrs[0])
		}
	}
}
