package route

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
)

func brokerAddrs(t *testing.T, body []byte) map[int64]string {
	t.Helper()
	r, err := codec.ParseRoute(body)
	if err != nil || len(r.Brokers) != 1 {
		t.Fatalf("route %q: %v", body, err)
	}
	return r.Brokers[0].BrokerAddrs
}

func TestRoutesAreRewrittenWhateverTheKeys(t *testing.T) {
	for name, body := range map[string]string{"quoted": quotedRoute, "bare": bareRoute} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			f.names.set(105, body)
			r := f.ask(routeRequest("T"))
			f.want(r, codec.RespSuccess, "")
			want := map[int64]string{0: "127.0.0.1:20000", 1: "127.0.0.1:20010"}
			if d := cmp.Diff(want, brokerAddrs(t, r.Body)); d != "" {
				t.Fatal(d)
			}
			if f.opener.port("203.0.113.7:10911") != 20000 || f.opener.port("203.0.113.8:10911") != 20010 {
				t.Fatalf("listeners %v", f.opener.opened)
			}
			if !f.opener.hosts["0.0.0.0"] {
				t.Fatalf("bound to %v", f.opener.hosts)
			}
			if !json.Valid(r.Body) || strings.ContainsAny(string(r.Body), " \n") {
				t.Fatalf("not compact JSON: %s", r.Body)
			}
			if name == "quoted" && !strings.Contains(string(r.Body), `"unheardOf":{"kept":[1,2]}`) {
				t.Fatalf("unknown members are lost: %s", r.Body)
			}
			if v, _ := r.Fields.Get("from"); v != "upstream" || r.Version != 477 {
				t.Fatalf("fields %v version %d", r.Fields, r.Version)
			}
		})
	}
}

func TestEveryReplyOfANameServerIsFreeOfUpstreamAddresses(t *testing.T) {
	f := newFixture(t, 2)
	for _, serialize := range []codec.Serialize{codec.JSON, codec.Binary} {
		for code := int32(0); code < 1000; code++ {
			if !f.face.Owns(code) {
				continue
			}
			c := request(code, codec.Field{Name: "topic", Value: "T"})
			c.Serialize = serialize
			f.ask(c)
		}
	}
	f.names.stop()
	for code := int32(0); code < 1000; code++ {
		if f.face.Owns(code) {
			f.ask(request(code, codec.Field{Name: "topic", Value: "unseen"}))
		}
	}
}

func TestOwnedCodes(t *testing.T) {
	f := newFixture(t, 1)
	var owned []int32
	for code := int32(-1); code < 2000; code++ {
		if f.face.Owns(code) {
			owned = append(owned, code)
		}
	}
	want := []int32{100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 901, 904}
	if d := cmp.Diff(want, owned); d != "" {
		t.Fatal(d)
	}
	f.want(f.ask(request(310)), codec.RespNotSupported, "request type 310 not supported")
}

func TestClusterGroupAndSystemListAreRewritten(t *testing.T) {
	for code, want := range map[int32][]string{
		106: {`{"0":"127.0.0.1:20000","1":"127.0.0.1:20010"}`, `{"0":"127.0.0.1:20020"}`, `"clusterAddrTable":{"c1":["broker-a","broker-b"]}`},
		901: {`{"0":"127.0.0.1:20000","1":"127.0.0.1:20010"}`, `"brokerMemberGroup"`},
		304: {`"brokerAddr":"127.0.0.1:20020"`, `"topicList":["TBW102","broker-a"]`},
	} {
		f := newFixture(t, 1)
		if err := f.view.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.face.sync()
		r := f.ask(request(code))
		f.want(r, codec.RespSuccess, "")
		for _, w := range want {
			if !strings.Contains(string(r.Body), w) || !json.Valid(r.Body) {
				t.Errorf("code %d: %s lacks %s", code, r.Body, w)
			}
		}
	}
}

func TestPortsFollowTheClusterNotTheFirstQuestion(t *testing.T) {
	f := newFixture(t, 1)
	f.names.set(105, strings.NewReplacer("broker-a", "broker-b", `{"0":"203.0.113.7:10911","1":"203.0.113.8:10911"}`, `{"0":"203.0.113.9:10911"}`).Replace(quotedRoute))
	r := f.ask(routeRequest("T"))
	if d := cmp.Diff(map[int64]string{0: "127.0.0.1:20020"}, brokerAddrs(t, r.Body)); d != "" {
		t.Fatal(d)
	}
}

func TestABrokerThatOnlyARouteNamesBecomesKnown(t *testing.T) {
	f := newFixture(t, 1)
	f.names.set(106, `{"brokerAddrTable":{},"clusterAddrTable":{}}`)
	f.want(f.ask(routeRequest("T")), codec.RespSuccess, "")
	want := upstream.Broker{Name: "broker-a", Cluster: "c1", ID: 1, Addr: "203.0.113.8:10911"}
	if b, ok := f.view.ByAddr(want.Addr); !ok || b != want {
		t.Fatalf("view has %v %v", b, ok)
	}
	if !slices.Contains(f.face.o.Book.Brokers(), want) {
		t.Fatalf("book has %v", f.face.o.Book.Brokers())
	}
}

func TestTheRequestIsForwardedAsTheClientWroteIt(t *testing.T) {
	f := newFixture(t, 1)
	c := routeRequest("T")
	c.Fields = append(c.Fields, codec.Field{Name: "acceptStandardJsonOnly", Value: "true"}, codec.Field{Name: "__ZONE_NAME", Value: "z1"})
	c.Language, c.Version, c.Serialize = codec.LangCPP, 333, codec.Binary
	f.want(f.ask(c), codec.RespSuccess, "")
	got := f.names.got(105)
	if len(got) != 1 || got[0].Language != codec.LangCPP || got[0].Version != 333 || !slices.Equal(got[0].Fields, c.Fields) {
		t.Fatalf("name server got %+v", got[0].Command)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	for _, c := range []struct {
		name      string
		advertise Advertise
		local     string
		want      string
	}{
		{"the address that the client reached", Advertise{}, "192.168.1.5:9876", "192.168.1.5:20000"},
		{"IPv4 in IPv6", Advertise{}, "[::ffff:192.168.1.5]:9876", "192.168.1.5:20000"},
		{"IPv6 without zone", Advertise{}, "[fe80::1%eth0]:9876", "[fe80::1]:20000"},
		{"host and port map", Advertise{Host: "gw.example", Ports: map[int]int{20000: 30000}}, "192.168.1.5:9876", "gw.example:30000"},
		{"port map alone", Advertise{Ports: map[int]int{20000: 30000}}, "192.168.1.5:9876", "192.168.1.5:30000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, 1, func(o *FaceOptions) { o.Advertise = c.advertise })
			r := f.face.Answer(t.Context(), routeRequest("T"), netip.MustParseAddrPort(c.local))
			if got := brokerAddrs(t, r.Body)[0]; got != c.want {
				t.Fatalf("advertised %s, want %s", got, c.want)
			}
		})
	}
	f := newFixture(t, 1)
	f.want(f.face.Answer(t.Context(), routeRequest("T"), netip.AddrPort{}), codec.RespSystemError, "advertise.host")
}

func TestTwoBrokersAreNeverAdvertisedUnderOnePort(t *testing.T) {
	f := newFixture(t, 1, func(o *FaceOptions) { o.Advertise.Ports = map[int]int{20000: 30000, 20010: 30000} })
	f.want(f.ask(routeRequest("T")), codec.RespSystemError, "no listener")
	if p := f.opener.port("203.0.113.8:10911"); p != 0 {
		t.Fatalf("second broker listens on %d", p)
	}
}

func TestChangesReachEveryNameServer(t *testing.T) {
	for _, code := range []int32{100, 102, 205, 327, 216, 217, 318} {
		f := newFixture(t, 3)
		c := request(code)
		c.Body = []byte(`{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:20000"}}]}`)
		f.want(f.ask(c), codec.RespSuccess, "")
		servers := map[int]bool{}
		for _, r := range f.names.got(code) {
			servers[r.server] = true
			if string(r.Body) != string(c.Body) {
				t.Errorf("code %d: body changed to %q", code, r.Body)
			}
		}
		if len(servers) != 3 {
			t.Errorf("code %d reached name servers %v", code, servers)
		}
		f.names.peers[1].Stop()
		f.want(f.ask(c), codec.RespSystemError, "2 of 3 name servers took the change")
		f.names.fail(code, 29)
		f.want(f.ask(c), 29, "said the name server")
	}
}

func TestReadsAskOneNameServer(t *testing.T) {
	f := newFixture(t, 3)
	for _, code := range []int32{101, 219, 206, 224, 311, 312, 313, 319} {
		f.names.set(code, "as it is")
		r := f.ask(request(code))
		f.want(r, codec.RespSuccess, "")
		if string(r.Body) != "as it is" || len(f.names.got(code)) != 1 {
			t.Errorf("code %d: body %q, %d requests", code, r.Body, len(f.names.got(code)))
		}
	}
	f.names.fail(101, codec.RespQueryNotFound)
	f.want(f.ask(request(101)), codec.RespQueryNotFound, "said the name server")
	f.names.stop()
	f.want(f.ask(request(206)), codec.RespSystemError, "no name server answers")
}

func TestRegistrationsAreRefused(t *testing.T) {
	f := newFixture(t, 1)
	for _, code := range []int32{103, 104, 322, 904} {
		f.want(f.ask(request(code)), codec.RespNotSupported, "set namesrvAddr of the broker")
		if len(f.names.got(code)) != 0 {
			t.Errorf("code %d was forwarded", code)
		}
	}
}

func TestUnknownTopicIsPassedOn(t *testing.T) {
	f := newFixture(t, 1)
	f.ask(routeRequest("T"))
	f.names.fail(105, codec.RespTopicNotExist)
	f.want(f.ask(routeRequest("T")), codec.RespTopicNotExist, "said the name server")
	f.names.stop()
	f.want(f.ask(routeRequest("T")), codec.RespSystemError, "no name server answers") // not the route of a deleted topic
}

func TestEmptyAndUnreadableRoutesAreNoSuccess(t *testing.T) {
	f := newFixture(t, 1)
	for _, body := range []string{
		`{"brokerDatas":[],"queueDatas":[]}`,
		`{}`,
		`{"brokerDatas":[{"brokerName":"broker-a","brokerAddrs":{}}],"queueDatas":[{"brokerName":"broker-a"}]}`,
		`{"brokerDatas":[{"brokerName":"broker-a","brokerAddrs":{"0":"203.0.113.7:10911"}}],"queueDatas":[]}`,
		`{"brokerDatas":[{"brokerName":"broker-a","brokerAddrs":{"0":"203.0.113.7:10911"`,
		``,
	} {
		f.names.set(105, body)
		f.want(f.ask(routeRequest("T")), codec.RespSystemError, "keep the route you have")
	}
}

func TestConcurrentQuestions(t *testing.T) {
	f := newFixture(t, 2)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				if r := f.face.Answer(t.Context(), routeRequest("T"), clientSide); r.Code != codec.RespSuccess {
					t.Errorf("reply %d %s", r.Code, r.Remark)
				}
			}
		})
	}
	wg.Wait()
}
