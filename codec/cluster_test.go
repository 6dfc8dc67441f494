package codec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Written by ClusterInfo, GetBrokerMemberGroupResponseBody and TopicList of RocketMQ 5.5.0.
const (
	goldenCluster = `{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"[2001:db8::2]:10911"},` +
		`"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}`
	goldenMemberGroup = `{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"[2001:db8::2]:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}}`
	goldenTopicList   = `{"brokerAddr":"10.0.0.1:10911","topicList":["SELF_TEST_TOPIC"]}`
)

var (
	realAddrs   = `{0:"10.0.0.1:10911",1:"[2001:db8::2]:10911"}`
	portedAddrs = `{"0":"127.0.0.1:30000","1":"127.0.0.1:30010"}`
)

func TestParseClusterInfo(t *testing.T) {
	want := &ClusterInfo{
		Brokers:  map[string]BrokerData{"broker-a": goldenRouteValue().Brokers[0]},
		Clusters: map[string][]string{"DefaultCluster": {"broker-a"}},
	}
	for name, text := range map[string]string{
		"as a name server writes it": goldenCluster,
		"ids in quotes":              strings.Replace(goldenCluster, realAddrs, `{"0":"10.0.0.1:10911","1":"[2001:db8::2]:10911"}`, 1),
		"without inner name":         strings.Replace(goldenCluster, `"brokerName":"broker-a",`, "", 1),
		"unknown members":            strings.Replace(goldenCluster, `"clusterAddrTable"`, `"x":{1:2},"clusterAddrTable"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseClusterInfo([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseClusterInfoWithoutMembers(t *testing.T) {
	for _, text := range []string{`{}`, `{"brokerAddrTable":null,"clusterAddrTable":null}`, `{"clusterAddrTable":{}}`} {
		got, err := ParseClusterInfo([]byte(text))
		if err != nil || got.Brokers == nil || got.Clusters == nil || len(got.Brokers)+len(got.Clusters) != 0 {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
}

var badClusters = []struct{ text, reason string }{
	{``, "expected a value"},
	{`[]`, "cluster info: expected a JSON object"},
	{`{"brokerAddrTable":[]}`, "brokerAddrTable: expected an object"},
	{`{"brokerAddrTable":{"a":null}}`, "broker data: expected an object"},
	{`{"brokerAddrTable":{"a":{"brokerAddrs":"x"}}}`, "brokerAddrs: expected an object"},
	{`{"brokerAddrTable":{"a":{"brokerAddrs":{0:{}}}}}`, "string"},
}

func TestClusterInfoRefuses(t *testing.T) {
	for _, tc := range badClusters {
		info, err := ParseClusterInfo([]byte(tc.text))
		wantFrameError(t, err, tc.reason)
		b, err := RewriteClusterInfo([]byte(tc.text), ported)
		wantFrameError(t, err, tc.reason)
		if info != nil || b != nil {
			t.Errorf("%s: got %+v, %s with the errors", tc.text, info, b)
		}
	}
	for _, tc := range []struct{ text, reason string }{
		{`{"clusterAddrTable":[]}`, "clusterAddrTable: expected an object"},
		{`{"clusterAddrTable":{"c":"a"}}`, "clusterAddrTable: expected an array"},
	} {
		_, err := ParseClusterInfo([]byte(tc.text))
		wantFrameError(t, err, tc.reason)
	}
}

func TestClusterInfoIsWrittenInOrder(t *testing.T) {
	info := &ClusterInfo{
		Brokers:  map[string]BrokerData{"b": {BrokerName: "b"}, "a": {Cluster: "c", BrokerName: "a", BrokerAddrs: map[int64]string{10: "z", 2: "y", 0: "x"}}},
		Clusters: map[string][]string{"d": nil, "c": {"b", "a"}},
	}
	want := `{"brokerAddrTable":{"a":{"brokerAddrs":{"0":"x","2":"y","10":"z"},"brokerName":"a","cluster":"c"},` +
		`"b":{"brokerAddrs":{},"brokerName":"b","cluster":""}},"clusterAddrTable":{"c":["b","a"],"d":[]}}`
	if got := string(info.Append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRewritesKeepAllButAddresses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		rewrite func([]byte, func(string) (string, error)) ([]byte, error)
		text    string
		want    string
	}{
		{"cluster", RewriteClusterInfo, goldenCluster, strings.Replace(goldenCluster, realAddrs, portedAddrs, 1)},
		{"empty cluster", RewriteClusterInfo, `{"brokerAddrTable":null}`, `{"brokerAddrTable":null}`},
		{"cluster, doubles", RewriteClusterInfo, `{"brokerAddrTable":{"a":{"brokerAddrs":{0:"real:1"}}},"brokerAddrTable":{}}`, `{"brokerAddrTable":{}}`},
		{"member group", RewriteMemberGroup, goldenMemberGroup, strings.Replace(goldenMemberGroup, realAddrs, portedAddrs, 1)},
		{"no member group", RewriteMemberGroup, `{"brokerMemberGroup":null}`, `{"brokerMemberGroup":null}`},
		{"topic list", RewriteSystemTopicList, goldenTopicList, strings.Replace(goldenTopicList, "10.0.0.1:10911", "127.0.0.1:30000", 1)},
		{"topic list, doubles", RewriteSystemTopicList, `{"brokerAddr":"real:1","brokerAddr":"10.0.0.1:10911"}`, `{"brokerAddr":"127.0.0.1:30000"}`},
		{"topic list without address", RewriteSystemTopicList, `{"topicList":["a"]}`, `{"topicList":["a"]}`},
		{"topic list, null address", RewriteSystemTopicList, `{"brokerAddr":null}`, `{"brokerAddr":null}`},
		{"topic list, empty address", RewriteSystemTopicList, `{"brokerAddr":""}`, `{"brokerAddr":""}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.rewrite([]byte(tc.text), ported)
			if err != nil || string(got) != tc.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tc.want)
			}
		})
	}
}

func TestRewritesOfSmallBodiesRefuse(t *testing.T) {
	for _, text := range []string{``, `7`, `{"brokerMemberGroup":[]}`, `{"brokerMemberGroup":{"brokerAddrs":{0:1}}}`} {
		_, err := RewriteMemberGroup([]byte(text), ported)
		wantFrameError(t, err, "expected")
	}
	for _, text := range []string{``, `[]`, `{"brokerAddr":17}`, `{"brokerAddr":{}}`} {
		_, err := RewriteSystemTopicList([]byte(text), ported)
		wantFrameError(t, err, "expected")
	}
}

func TestClusterInfosReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &ClusterInfo{Brokers: map[string]BrokerData{}, Clusters: map[string][]string{}}
		for range rapid.IntRange(0, 3).Draw(t, "brokers") {
			d := drawBroker(t)
			want.Brokers[d.BrokerName] = d
		}
		for range rapid.IntRange(0, 3).Draw(t, "clusters") {
			want.Clusters[rapid.String().Draw(t, "cluster")] = rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "names")
		}
		text := want.Append(nil)
		got, err := ParseClusterInfo(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		same, err := RewriteClusterInfo(text, func(addr string) (string, error) { return addr, nil })
		if err != nil || string(same) != string(text) {
			t.Fatalf("rewritten without change: %s, %v; want %s", same, err, text)
		}
	})
}

func FuzzClusterInfo(f *testing.F) {
	f.Add([]byte(goldenCluster))
	f.Add([]byte(`{"brokerAddrTable":{"a":{"brokerAddrs":{0:"real:1"}},"a":{}}}`))
	for _, tc := range badClusters {
		f.Add([]byte(tc.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		info, parseErr := ParseClusterInfo(b)
		rewritten, err := RewriteClusterInfo(b, func(string) (string, error) { return "proxy", nil })
		if err == nil {
			checkStrict(t, rewritten)
		}
		if parseErr != nil {
			return
		}
		if err != nil {
			t.Fatalf("%q parses and is not rewritten: %v", b, err)
		}
		mapped, err := ParseClusterInfo(rewritten)
		if err != nil {
			t.Fatal(err)
		}
		for name, d := range mapped.Brokers {
			for id, addr := range d.BrokerAddrs {
				if addr != "proxy" {
					t.Fatalf("broker %q, %d keeps its address %q", name, id, addr)
				}
			}
		}
		again, err := ParseClusterInfo(info.Append(nil))
		if diff := cmp.Diff(info, again, cmpopts.EquateEmpty()); err != nil || diff != "" && validNames(b) {
			t.Fatalf("%v %s", err, diff)
		}
	})
}

func FuzzSmallBodies(f *testing.F) {
	f.Add([]byte(goldenMemberGroup))
	f.Add([]byte(goldenTopicList))
	f.Add([]byte(`{"brokerAddr":null,"brokerMemberGroup":{"brokerAddrs":null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		mapped := func(string) (string, error) { return "proxy", nil }
		if out, err := RewriteMemberGroup(b, mapped); err == nil {
			checkStrict(t, out)
		}
		if out, err := RewriteSystemTopicList(b, mapped); err == nil {
			checkStrict(t, out)
		}
	})
}
