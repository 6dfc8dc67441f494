package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Written by TopicRouteData.encode of RocketMQ 5.5.0: ids without quotes.
const goldenRoute = `{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"[2001:db8::2]:10911"},` +
	`"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],` +
	`"filterServerTable":{"10.0.0.1:10911":["10.0.0.9:1"]},"orderTopicConf":"broker-a:4",` +
	`"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}],` +
	`"topicQueueMappingByBroker":{"broker-a":{"bname":"broker-a","currIdMap":{0:3},"dirty":false,` +
	`"epoch":1700000000123,"scope":"__global__","topic":"T","totalQueues":8}}}`

func goldenRouteValue() *Route {
	return &Route{
		OrderTopicConf: "broker-a:4",
		Queues:         []QueueData{{BrokerName: "broker-a", ReadQueueNums: 8, WriteQueueNums: 4, Perm: 6}},
		Brokers: []BrokerData{{
			Cluster: "DefaultCluster", BrokerName: "broker-a",
			BrokerAddrs: map[int64]string{0: "10.0.0.1:10911", 1: "[2001:db8::2]:10911"},
		}},
	}
}

// ported gives every address a port on the loopback.
func ported(addr string) (string, error) {
	switch addr {
	case "10.0.0.1:10911":
		return "127.0.0.1:30000", nil
	case "[2001:db8::2]:10911":
		return "127.0.0.1:30010", nil
	}
	return "", errors.New("not known")
}

func TestParseRoute(t *testing.T) {
	for name, text := range map[string]string{
		"as a name server writes it": goldenRoute,
		"ids in quotes":              strings.NewReplacer("{0:", `{"0":`, ",1:", `,"1":`).Replace(goldenRoute),
		"blanks":                     strings.NewReplacer(":{", " : { ", ",", "\n, ").Replace(goldenRoute),
		"numbers in quotes":          strings.NewReplacer(":6", `:"6"`, ":8", `:"8"`).Replace(goldenRoute),
		"unknown members and nulls":  strings.Replace(goldenRoute, `"brokerDatas"`, `"zone":null,"more":[{1:{}}],"brokerDatas"`, 1),
		"an id without address":      strings.Replace(goldenRoute, `,1:`, `,2:null,3:"",1:`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRoute([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(goldenRouteValue(), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRouteWithoutMembers(t *testing.T) {
	for _, text := range []string{`{}`, `{"brokerDatas":null,"queueDatas":null,"orderTopicConf":null}`, `{"brokerDatas":[],"queueDatas":[]}`} {
		got, err := ParseRoute([]byte(text))
		if err != nil || len(got.Brokers) != 0 || len(got.Queues) != 0 || got.OrderTopicConf != "" {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
}

func TestParseRouteReadsTheOldNameOfTheFlag(t *testing.T) {
	got, err := ParseRoute([]byte(`{"queueDatas":[{"brokerName":"b","topicSynFlag":3}]}`))
	if err != nil || got.Queues[0].TopicSysFlag != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

var badRoutes = []struct{ text, reason string }{
	{``, "expected a value"},
	{`[]`, "route: expected a JSON object"},
	{`null`, "route: expected a JSON object"},
	{`{"brokerDatas":{}}`, "brokerDatas: expected an array"},
	{`{"brokerDatas":[null]}`, "expected an object"},
	{`{"brokerDatas":[{"brokerAddrs":[]}]}`, "brokerAddrs: expected an object"},
	{`{"brokerDatas":[{"brokerAddrs":{"0":17}}]}`, "string"},
}

func TestParseRouteRefuses(t *testing.T) {
	bad := append(badRoutes[:len(badRoutes):len(badRoutes)], []struct{ text, reason string }{
		{`{"brokerDatas":[{"brokerAddrs":{"a":"b"}}]}`, `broker id "a" is no number`},
		{`{"queueDatas":[7]}`, "expected an object"},
		{`{"queueDatas":7}`, "queueDatas: expected an array"},
		{`{"queueDatas":[{"perm":"rw"}]}`, "perm: expected a 32-bit number"},
		{`{"queueDatas":[{"readQueueNums":4294967296}]}`, "readQueueNums: expected a 32-bit number"},
	}...)
	for _, tc := range bad {
		r, err := ParseRoute([]byte(tc.text))
		wantFrameError(t, err, tc.reason)
		if r != nil {
			t.Errorf("%s: got %+v with the error", tc.text, r)
		}
	}
}

// RocketMQ 5.5.0 and 4.9.7 read this as it is meant.
func TestRouteIsWrittenForEveryClient(t *testing.T) {
	want := `{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"[2001:db8::2]:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],` +
		`"filterServerTable":{},"orderTopicConf":"broker-a:4",` +
		`"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}]}`
	if got := string(goldenRouteValue().Append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := string((&Route{}).Append([]byte("x"))), `x{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRewriteRouteKeepsAllButAddresses(t *testing.T) {
	want := strings.NewReplacer(
		`{0:"10.0.0.1:10911",1:"[2001:db8::2]:10911"}`, `{"0":"127.0.0.1:30000","1":"127.0.0.1:30010"}`,
		`{"10.0.0.1:10911":["10.0.0.9:1"]}`, `{}`,
		`{0:3}`, `{"0":3}`,
	).Replace(goldenRoute)
	got, err := RewriteRoute([]byte(goldenRoute), ported)
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	again, err := RewriteRoute(got, func(addr string) (string, error) { return addr, nil })
	if err != nil || string(again) != want {
		t.Errorf("a second time: %s, %v", again, err)
	}
}

func TestRewriteRouteForms(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`{}`, `{"filterServerTable":{}}`},
		{`{"brokerDatas":null}`, `{"brokerDatas":null,"filterServerTable":{}}`},
		{`{"filterServerTable":null,"brokerDatas":[]}`, `{"filterServerTable":{},"brokerDatas":[]}`},
		{`{"brokerDatas":[{"brokerName":"a"}]}`, `{"brokerDatas":[{"brokerName":"a","brokerAddrs":{}}],"filterServerTable":{}}`},
		{
			`{"brokerDatas":[{"brokerAddrs":{2:null,1:"",0:"10.0.0.1:10911"}}]}`,
			`{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:30000"}}],"filterServerTable":{}}`,
		},
		{
			`{"brokerDatas":[{"brokerAddrs":{0:"real:1"},"x":1,"brokerAddrs":{0:"10.0.0.1:10911"}}]}`,
			`{"brokerDatas":[{"x":1,"brokerAddrs":{"0":"127.0.0.1:30000"}}],"filterServerTable":{}}`,
		},
		{
			`{"brokerDatas":[{"brokerAddrs":{0:"real:1"}}],"brokerDatas":[]}`,
			`{"brokerDatas":[],"filterServerTable":{}}`,
		},
	} {
		got, err := RewriteRoute([]byte(tc.text), ported)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s:\ngot  %s, %v\nwant %s", tc.text, got, err, tc.want)
		}
	}
}

func TestRewriteRouteRefuses(t *testing.T) {
	for _, tc := range badRoutes {
		b, err := RewriteRoute([]byte(tc.text), ported)
		wantFrameError(t, err, tc.reason)
		if b != nil {
			t.Errorf("%s: got %s with the error", tc.text, b)
		}
	}
}

func TestRewriteStopsAtAnAddressThatCannotBeMapped(t *testing.T) {
	cause := errors.New("no port left")
	fail := func(string) (string, error) { return "", cause }
	for name, rewrite := range map[string]func() ([]byte, error){
		"route":        func() ([]byte, error) { return RewriteRoute([]byte(goldenRoute), fail) },
		"cluster":      func() ([]byte, error) { return RewriteClusterInfo([]byte(goldenCluster), fail) },
		"member group": func() ([]byte, error) { return RewriteMemberGroup([]byte(goldenMemberGroup), fail) },
		"topic list":   func() ([]byte, error) { return RewriteSystemTopicList([]byte(goldenTopicList), fail) },
	} {
		b, err := rewrite()
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), `"10.0.0.1:10911"`) || b != nil {
			t.Errorf("%s: got %s, %v", name, b, err)
		}
	}
}

func drawBroker(t *rapid.T) BrokerData {
	return BrokerData{
		Cluster: rapid.String().Draw(t, "cluster"), BrokerName: rapid.StringN(1, -1, -1).Draw(t, "broker"),
		BrokerAddrs: rapid.MapOfN(rapid.Int64(), rapid.StringN(1, -1, -1), 0, 3).Draw(t, "addrs"),
	}
}

func drawRoute(t *rapid.T) *Route {
	return &Route{
		OrderTopicConf: rapid.String().Draw(t, "order"),
		Queues: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) QueueData {
			return QueueData{
				BrokerName: rapid.String().Draw(t, "broker"), ReadQueueNums: rapid.Int32().Draw(t, "read"),
				WriteQueueNums: rapid.Int32().Draw(t, "write"), Perm: rapid.Int32().Draw(t, "perm"), TopicSysFlag: rapid.Int32().Draw(t, "flag"),
			}
		}), 0, 3).Draw(t, "queues"),
		Brokers: rapid.SliceOfN(rapid.Custom(drawBroker), 0, 3).Draw(t, "brokers"),
	}
}

func TestRoutesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRoute(t)
		text := want.Append(nil)
		got, err := ParseRoute(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		same, err := RewriteRoute(text, func(addr string) (string, error) { return addr, nil })
		if err != nil || string(same) != string(text) {
			t.Fatalf("rewritten without change: %s, %v; want %s", same, err, text)
		}
	})
}

func FuzzRoute(f *testing.F) {
	f.Add([]byte(goldenRoute))
	f.Add(goldenRouteValue().Append(nil))
	f.Add([]byte(`{"brokerDatas":[{"brokerAddrs":{0:"real:1"},"brokerAddrs":null}],"filterServerTable":null}`))
	for _, tc := range badRoutes {
		f.Add([]byte(tc.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, parseErr := ParseRoute(b)
		rewritten, err := RewriteRoute(b, func(string) (string, error) { return "proxy", nil })
		if parseErr == nil && err != nil {
			t.Fatalf("%q parses and is not rewritten: %v", b, err)
		}
		if err == nil {
			checkStrict(t, rewritten)
		}
		if parseErr != nil {
			return
		}
		mapped, err := ParseRoute(rewritten)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Brokers {
			if err := allMapped(&r.Brokers[i], &mapped.Brokers[i]); err != nil {
				t.Fatal(err)
			}
		}
		again, err := ParseRoute(r.Append(nil))
		if diff := cmp.Diff(r, again, cmpopts.EquateEmpty()); err != nil || diff != "" && validNames(b) {
			t.Fatalf("%v %s", err, diff)
		}
	})
}

func checkStrict(t *testing.T, b []byte) {
	if !json.Valid(b) {
		t.Fatalf("not JSON: %s", b)
	}
}

// validNames is false when strings may hold what a writer has to replace.
func validNames(b []byte) bool { return strings.ToValidUTF8(string(b), "") == string(b) }

func allMapped(real, mapped *BrokerData) error {
	if len(real.BrokerAddrs) != len(mapped.BrokerAddrs) {
		return fmt.Errorf("%v was rewritten to %v", real.BrokerAddrs, mapped.BrokerAddrs)
	}
	for id, addr := range mapped.BrokerAddrs {
		if addr != "proxy" {
			return fmt.Errorf("broker %d keeps its address %q", id, addr)
		}
	}
	return nil
}
