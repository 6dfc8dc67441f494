package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/internal/upstream/peertest"
)

// cluster is a name server and a broker in one peer.
type cluster struct {
	mu       sync.Mutex
	info     string            // body of 106
	routes   map[string]string // topic -> body of 105
	config   string            // body of 26
	code     int32             // of every answer, when not 0
	requests map[int32]int
	last     *codec.Command
	gate     chan struct{} // when set, answers wait for it

	peer *peertest.Peer
	log  logBuffer
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{info: `{}`, routes: map[string]string{}, requests: map[int32]int{}}
	c.peer = peertest.Start(t, c.answer)
	return c
}

func (c *cluster) answer(r *peertest.Request) {
	c.mu.Lock()
	c.requests[r.Code]++
	c.last = r.Command
	gate, body, code := c.gate, "", c.code
	switch r.Code {
	case codec.ReqGetBrokerClusterInfo:
		body = c.info
	case codec.ReqGetBrokerConfig:
		body = c.config
	case codec.ReqGetRouteInfoByTopic:
		topic, _ := r.Fields.Get("topic")
		if body = c.routes[topic]; body == "" && code == 0 {
			code = codec.RespTopicNotExist
		}
	}
	c.mu.Unlock()
	if gate != nil {
		<-gate
	}
	r.ReplyWith(&codec.Command{Code: code, Version: 407, Body: []byte(body), Remark: "remark"})
}

func (c *cluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) count(code int32) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[code]
}

func (c *cluster) view(t *testing.T, o upstream.ViewOptions) *upstream.View {
	o.Client = newClient(t, upstream.Options{DialBackoff: time.Millisecond})
	o.NameServers = upstream.NewNameServers(o.Client, []string{c.peer.Addr()})
	o.Log = c.log.logger()
	return upstream.NewView(o)
}

func run(t *testing.T, v *upstream.View) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { v.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// Bare integer keys, as a name server writes them whoever asks.
const twoBrokers = `{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"a","cluster":"C"},` +
	`"b":{"brokerAddrs":{0:"10.0.0.3:10911"},"brokerName":"b","cluster":"C"}},"clusterAddrTable":{"C":["a","b"]}}`

func info(name string, addrs string) string {
	return fmt.Sprintf(`{"brokerAddrTable":{%q:{"brokerAddrs":{%s},"brokerName":%q,"cluster":"C"}},"clusterAddrTable":{"C":[%q]}}`, name, addrs, name, name)
}

func TestViewLearnsBrokersAndNeverForgetsOne(t *testing.T) {
	c := newCluster(t)
	v := c.view(t, upstream.ViewOptions{})
	var changes [][]upstream.Broker
	v.OnChange(func(all []upstream.Broker) { changes = append(changes, all) })
	refresh := func(body string) {
		t.Helper()
		c.set(func() { c.info = body })
		if err := v.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refresh(`{"brokerAddrTable":{},"clusterAddrTable":{}}`)
	if v.Known() || len(changes) != 0 {
		t.Error("an empty cluster is not known")
	}
	refresh(twoBrokers)
	want := []upstream.Broker{
		{Name: "a", Cluster: "C", ID: 0, Addr: "10.0.0.1:10911"},
		{Name: "a", Cluster: "C", ID: 1, Addr: "10.0.0.2:10911"},
		{Name: "b", Cluster: "C", ID: 0, Addr: "10.0.0.3:10911"},
	}
	if d := cmp.Diff(want, v.Brokers()); d != "" || !v.Known() {
		t.Error(d)
	}
	refresh(twoBrokers)
	refresh(`{"brokerAddrTable":{},"clusterAddrTable":{}}`)
	if d := cmp.Diff(want, v.Brokers()); d != "" {
		t.Error("brokers were forgotten", d)
	}
	if addr, ok := v.Master("b"); !ok || addr != "10.0.0.3:10911" {
		t.Errorf("master of a vanished broker: %q %v", addr, ok)
	}
	if b, ok := v.ByAddr("10.0.0.2:10911"); !ok || b != want[1] {
		t.Error(b, ok)
	}
	if len(changes) != 1 {
		t.Errorf("%d changes told, want 1", len(changes))
	}
	// The slave becomes the master.
	refresh(info("a", `0:"10.0.0.2:10911"`))
	if addr, _ := v.Master("a"); addr != "10.0.0.2:10911" {
		t.Errorf("master is %s", addr)
	}
	if len(changes) != 2 || len(changes[1]) != 3 {
		t.Errorf("changes %v", changes)
	}
	if _, ok := v.Master("nobody"); ok {
		t.Error("a master of nobody")
	}
}

func TestViewSurvivesBadAnswers(t *testing.T) {
	c := newCluster(t)
	c.info = twoBrokers
	v := c.view(t, upstream.ViewOptions{})
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []func(){
		func() { c.info = "{" },
		func() { c.info, c.code = twoBrokers, 1 },
		func() { go c.peer.Stop() },
	} {
		c.set(bad)
		if bad != nil && v.Refresh(within(t, time.Second)) == nil {
			eventually(t, "an error", func() bool { return v.Refresh(within(t, time.Second)) != nil })
		}
		if len(v.Brokers()) != 3 || !v.Known() {
			t.Error("brokers were lost")
		}
	}
	if n := strings.Count(c.log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings for one outage:\n%s", n, c.log.String())
	}
}

func TestSeedServesUntilTheUpstreamSpeaks(t *testing.T) {
	c := newCluster(t)
	v := c.view(t, upstream.ViewOptions{})
	var told int
	v.OnChange(func([]upstream.Broker) { told++ })
	v.Seed([]upstream.Broker{{Name: "a", Cluster: "C", ID: 0, Addr: "10.0.0.2:10911"}, {Name: "old", ID: 0, Addr: "10.0.0.9:10911"}, {Addr: "10.0.0.8:10911"}})
	if addr, ok := v.Master("a"); !ok || addr != "10.0.0.2:10911" || v.Known() || told != 1 {
		t.Errorf("seeded master %q %v, known %v, told %d", addr, ok, v.Known(), told)
	}
	c.set(func() { c.info = twoBrokers })
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if addr, _ := v.Master("a"); addr != "10.0.0.1:10911" {
		t.Error("the seed won over the upstream: ", addr)
	}
	v.Seed([]upstream.Broker{{Name: "a", ID: 0, Addr: "10.0.0.2:10911"}, {Name: "a", ID: 0, Addr: "10.0.0.7:10911"}})
	if addr, _ := v.Master("a"); addr != "10.0.0.1:10911" {
		t.Error("a late seed won over the upstream: ", addr)
	}
	if b, _ := v.ByAddr("10.0.0.2:10911"); b.ID != 1 {
		t.Error("a late seed won over the upstream: ", b)
	}
	if len(v.Brokers()) != 5 {
		t.Error(v.Brokers())
	}
}

func TestRunPollsQuickerWhileNothingIsKnown(t *testing.T) {
	c := newCluster(t)
	v := c.view(t, upstream.ViewOptions{Refresh: 4 * time.Second})
	run(t, v)
	eventually(t, "four polls", func() bool { return c.count(codec.ReqGetBrokerClusterInfo) >= 4 })
	c.set(func() { c.info = twoBrokers })
	eventually(t, "brokers", v.Known)
	n := c.count(codec.ReqGetBrokerClusterInfo)
	time.Sleep(300 * time.Millisecond)
	if more := c.count(codec.ReqGetBrokerClusterInfo) - n; more > 1 {
		t.Errorf("%d polls in 300 ms after brokers were known", more)
	}
}

func route(topic string, queues ...string) string {
	return `{"brokerDatas":[],"filterServerTable":{},"queueDatas":[` + strings.Join(queues, ",") + `]}`
}

func queues(broker string, write int) string {
	return fmt.Sprintf(`{"brokerName":%q,"perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":%d}`, broker, write)
}

var brokerA = upstream.Broker{Name: "a", Addr: "10.0.0.1:10911"}

func TestTopicsAreCachedAndMissesAskedAgain(t *testing.T) {
	c := newCluster(t)
	c.routes["T"] = route("T", queues("a", 4), queues("b", 2))
	v := c.view(t, upstream.ViewOptions{TopicTTL: time.Hour})
	if _, ok := v.CachedTopic(brokerA, "T"); ok {
		t.Error("cached before it was asked for")
	}
	want := upstream.Topic{Exists: true, Perm: 6, ReadQueues: 8, WriteQueues: 4}
	for range 3 {
		if got, err := v.Topic(t.Context(), brokerA, "T"); err != nil || got != want {
			t.Fatal(got, err)
		}
	}
	if got, ok := v.CachedTopic(brokerA, "T"); !ok || got != want {
		t.Error(got, ok)
	}
	if got, ok := v.CachedTopic(upstream.Broker{Name: "b"}, "T"); !ok || got.WriteQueues != 2 {
		t.Error("one route tells of all brokers", got, ok)
	}
	if n, ok := v.WriteQueues("b", "T"); !ok || n != 2 {
		t.Error(n, ok)
	}
	if n := c.count(codec.ReqGetRouteInfoByTopic); n != 1 {
		t.Errorf("asked %d times, want 1", n)
	}
	for i, topic := range []string{"none", "none", "T", "T"} {
		broker := brokerA
		if topic == "T" {
			broker.Name = "other" // which does not have it
		}
		if got, err := v.Topic(t.Context(), broker, topic); err != nil || got.Exists {
			t.Error(got, err)
		}
		if n := c.count(codec.ReqGetRouteInfoByTopic); n != i+2 {
			t.Errorf("%s: asked %d times, want %d", topic, n, i+2)
		}
	}
	c.set(func() { c.routes["none"] = c.routes["T"] })
	if got, err := v.Topic(t.Context(), brokerA, "none"); err != nil || !got.Exists {
		t.Error("a topic that appeared is not seen", got, err)
	}
}

func TestLastKnownTopicServesWhileNameServersFail(t *testing.T) {
	c := newCluster(t)
	c.routes["T"] = route("T", queues("a", 4))
	v := c.view(t, upstream.ViewOptions{TopicTTL: 20 * time.Millisecond})
	ask := func(topic string) (upstream.Topic, error) {
		time.Sleep(30 * time.Millisecond)
		return v.Topic(within(t, 5*time.Second), brokerA, topic)
	}
	if got, err := ask("T"); err != nil || !got.Exists {
		t.Fatal(got, err)
	}
	if got, err := ask("none"); err != nil || got.Exists {
		t.Fatal(got, err)
	}
	gate := make(chan struct{})
	for _, trouble := range []func(){func() { c.code = 1 }, func() { c.routes["T"], c.code = "{", 0 }, func() { c.gate = gate }} {
		c.set(trouble)
		start := time.Now()
		if got, err := ask("T"); err != nil || got.WriteQueues != 4 {
			t.Error("the last answer did not serve: ", got, err)
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("a known topic took %v", d)
		}
	}
	close(gate)
	c.set(func() { c.code, c.gate = 1, nil })
	if got, err := ask("none"); err != nil || got.Exists {
		t.Error("the last answer did not serve: ", got, err)
	}
	var refused *upstream.ReplyError
	if _, err := ask("never asked"); !errors.As(err, &refused) || refused.Code != 1 || refused.Remark != "remark" {
		t.Errorf("got %v, want the name server's code", err)
	}
}

func TestFailedRefreshIsNotRepeatedAtOnce(t *testing.T) {
	c := newCluster(t)
	c.routes["T"] = route("T", queues("a", 4))
	v := c.view(t, upstream.ViewOptions{TopicTTL: 800 * time.Millisecond})
	for range 2 {
		if got, err := v.Topic(t.Context(), brokerA, "T"); err != nil || !got.Exists {
			t.Fatal(got, err)
		}
		time.Sleep(time.Second)
		c.set(func() { c.code = 1 })
	}
	if got, ok := v.CachedTopic(brokerA, "T"); ok {
		t.Error("fresh for ever: ", got)
	}
	for range 20 {
		if got, err := v.Topic(t.Context(), brokerA, "T"); err != nil || !got.Exists {
			t.Fatal(got, err)
		}
	}
	if n := c.count(codec.ReqGetRouteInfoByTopic); n > 4 {
		t.Errorf("asked %d times", n)
	}
}

func TestManyAskersMakeOneRequest(t *testing.T) {
	c := newCluster(t)
	c.routes["T"], c.gate = route("T", queues("a", 4)), make(chan struct{})
	v := c.view(t, upstream.ViewOptions{})
	var wg sync.WaitGroup
	var started atomic.Int32
	for range 50 {
		wg.Go(func() {
			started.Add(1)
			if got, err := v.Topic(t.Context(), brokerA, "T"); err != nil || !got.Exists {
				t.Error(got, err)
			}
		})
	}
	eventually(t, "all ask", func() bool { return started.Load() == 50 })
	time.Sleep(20 * time.Millisecond)
	close(c.gate)
	wg.Wait()
	if n := c.count(codec.ReqGetRouteInfoByTopic); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestTopicHonoursItsContext(t *testing.T) {
	c := newCluster(t)
	c.gate = make(chan struct{})
	defer close(c.gate)
	v := c.view(t, upstream.ViewOptions{})
	start := time.Now()
	_, err := v.Topic(within(t, 30*time.Millisecond), brokerA, "T")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

func TestTopicCacheIsBounded(t *testing.T) {
	c := newCluster(t)
	v := c.view(t, upstream.ViewOptions{Topics: 10, TopicTTL: time.Hour})
	for i := range 30 {
		topic := fmt.Sprint("T", i)
		c.set(func() { c.routes[topic] = route(topic, queues("a", 1)) })
		if _, err := v.Topic(t.Context(), brokerA, topic); err != nil {
			t.Fatal(err)
		}
		v.CachedTopic(brokerA, "T0")
	}
	cached := 0
	for i := range 30 {
		if _, ok := v.CachedTopic(brokerA, fmt.Sprint("T", i)); ok {
			cached++
		}
	}
	if cached != 10 {
		t.Errorf("%d topics cached, want 10", cached)
	}
	if _, ok := v.CachedTopic(brokerA, "T0"); !ok {
		t.Error("the topic in use was dropped")
	}
}

func TestCreateTopic(t *testing.T) {
	c := newCluster(t)
	v := c.view(t, upstream.ViewOptions{})
	broker := upstream.Broker{Name: "a", Addr: c.peer.Addr()}
	if err := v.CreateTopic(t.Context(), broker, "new", 4, 6); err != nil {
		t.Fatal(err)
	}
	want := codec.Fields{
		{Name: "topic", Value: "new"}, {Name: "defaultTopic", Value: "TBW102"},
		{Name: "readQueueNums", Value: "4"}, {Name: "writeQueueNums", Value: "4"}, {Name: "perm", Value: "6"},
		{Name: "topicFilterType", Value: "SINGLE_TAG"}, {Name: "topicSysFlag", Value: "0"}, {Name: "order", Value: "false"},
	}
	if c.last.Code != 17 || cmp.Diff(want, c.last.Fields) != "" {
		t.Errorf("request %d %s", c.last.Code, cmp.Diff(want, c.last.Fields))
	}
	exists := upstream.Topic{Exists: true, Perm: 6, ReadQueues: 4, WriteQueues: 4}
	if got, ok := v.CachedTopic(broker, "new"); !ok || got != exists {
		t.Error("the topic just created is not known: ", got, ok)
	}
	// Another broker does not have it, and asking finds a route that does not name it yet.
	if got, err := v.Topic(t.Context(), upstream.Broker{Name: "b"}, "new"); err != nil || got.Exists {
		t.Error(got, err)
	}
	if got, err := v.Topic(t.Context(), broker, "new"); err != nil || got != exists {
		t.Error("a late route hides the topic: ", got, err)
	}
	c.set(func() { c.code = 16 })
	var refused *upstream.ReplyError
	if err := v.CreateTopic(t.Context(), broker, "x", 4, 6); !errors.As(err, &refused) || refused.Code != 16 {
		t.Errorf("got %v", err)
	}
	slave := upstream.Broker{Name: "a", ID: 1, Addr: "10.0.0.2:10911"}
	wantError(t, v.CreateTopic(t.Context(), slave, "x", 4, 6), upstream.ErrNotSent)
	v.Seed([]upstream.Broker{broker})
	c.set(func() { c.code = 0 })
	if err := v.CreateTopic(t.Context(), slave, "y", 4, 6); err != nil {
		t.Error("the master was not asked: ", err)
	}
}
