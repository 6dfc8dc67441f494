package fakemq

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// notified waits for the next request of the broker.
func (c *client) notified() *codec.Command {
	c.t.Helper()
	if len(c.pushed) > 0 {
		cmd := c.pushed[0]
		c.pushed = c.pushed[1:]
		return cmd
	}
	cmd, err := c.read(patience)
	if err != nil {
		c.t.Fatal(err)
	}
	return cmd
}

func TestMembersOfAGroupComeAndGo(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	one, two := dial(t, b.Addr()), dial(t, b.Addr())
	one.heartbeat("c1", "g", "t", "*", 1)
	one.notified()
	two.heartbeat("c2", "g", "t", "*", 1)
	n := one.notified()
	if group, _ := n.Fields.Get("consumerGroup"); n.Code != codec.ReqNotifyConsumerIDsChanged || n.Flag != codec.FlagOneway || group != "g" {
		t.Errorf("notification %+v", n)
	}
	reply := one.must(codec.ReqGetConsumerListByGroup, fields("consumerGroup", "g"), nil)
	if got := string(reply.Body); got != `{"consumerIdList":["c1","c2"]}` {
		t.Errorf("members %s", got)
	}
	one.heartbeat("c1", "g", "t", "*", 1)
	one.silent()
	if len(one.pushed) > 0 {
		t.Error("notified although nothing has changed")
	}

	two.must(codec.ReqUnregisterClient, fields("clientID", "c2", "consumerGroup", "g"), nil)
	one.notified()
	if got := b.Clients("g"); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("after one has left: %q", got)
	}
	one.nc.Close()
	await(t, "a closed connection leaves the group", func() bool { return len(b.Clients("g")) == 0 })
}

func TestHeartbeatCreatesTheRetryTopic(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	dial(t, b.Addr()).heartbeat("c1", "g", "t", "*", 1)
	if c, ok := b.Topic("%RETRY%g"); !ok || c.ReadQueues != 1 || c.Perm != 6 {
		t.Errorf("retry topic %+v, %v", c, ok)
	}
}

func TestHeartbeatReplacesTheSubscription(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.mustSend(message{props: prop("TAGS", "blue")})
	cl.heartbeat("c1", "g", "t", "red", 1)
	if reply := cl.call(codec.ReqPullMessage, pullFields(0, 0, 0), nil); reply.Code != codec.RespPullRetryImmediately {
		t.Errorf("red: code %d", reply.Code)
	}
	cl.heartbeat("c1", "g", "t", "blue", 2)
	if reply := cl.call(codec.ReqPullMessage, pullFields(0, 0, 0), nil); reply.Code != codec.RespSuccess {
		t.Errorf("blue: code %d", reply.Code)
	}
}

func TestTagHashesOfTheHeartbeatAreUsed(t *testing.T) {
	for _, codes := range []string{`[2598919]`, `["2598919"]`} { // Java, Go: the hash of TagA
		_, b := startBroker(t, BrokerOptions{})
		cl := dial(t, b.Addr())
		cl.mustSend(message{props: prop("TAGS", "TagA")})
		body := `{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t","subString":"other","codeSet":` + codes + `,"expressionType":"TAG"}]}]}`
		cl.must(codec.ReqHeartBeat, nil, []byte(body))
		cl.must(codec.ReqPullMessage, pullFields(0, 0, 0), nil)
	}
}

func TestOffsets(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{MaxMessages: 2})
	cl := dial(t, b.Addr())
	query := func() *codec.Command {
		return cl.call(codec.ReqQueryConsumerOffset, fields("consumerGroup", "g", "topic", "t", "queueId", 0), nil)
	}
	if reply := query(); reply.Code != codec.RespQueryNotFound {
		t.Errorf("no topic: code %d", reply.Code)
	}
	cl.mustSend(message{})
	if reply := query(); reply.Code != codec.RespSuccess || number(t, reply, "offset") != 0 {
		t.Errorf("the first message is there: code %d", reply.Code)
	}
	cl.mustSend(message{})
	cl.mustSend(message{})
	if reply := query(); reply.Code != codec.RespQueryNotFound {
		t.Errorf("the first message is gone: code %d", reply.Code)
	}
	cl.must(codec.ReqUpdateConsumerOffset, fields("consumerGroup", "g", "topic", "t", "queueId", 0, "commitOffset", 2), nil)
	if offset := number(t, query(), "offset"); offset != 2 {
		t.Errorf("committed offset %d", offset)
	}
	if reply := cl.call(codec.ReqUpdateConsumerOffset, fields("consumerGroup", "g", "topic", "t", "queueId", 0), nil); reply.Code != codec.RespSystemError {
		t.Errorf("update without offset: code %d", reply.Code)
	}
}

func TestQueueOffsetsByTime(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	c := startCluster(t, Options{Now: func() time.Time { return now }})
	cl := dial(t, c.Brokers()[0].Addr())
	for range 3 {
		cl.mustSend(message{})
		now = now.Add(time.Second)
	}
	q := fields("topic", "t", "queueId", 0)
	ask := func(code int32, field string, more ...any) int64 {
		return number(t, cl.must(code, append(slices.Clone(q), fields(more...)...), nil), field)
	}
	for ts, want := range map[int64]int64{0: 0, 1_000_000: 0, 1_000_001: 1, 1_002_000: 2, 1_009_000: 3} {
		if got := ask(codec.ReqSearchOffsetByTimestamp, "offset", "timestamp", ts); got != want {
			t.Errorf("at %d: offset %d, want %d", ts, got, want)
		}
	}
	if got := ask(codec.ReqSearchOffsetByTimestamp, "offset", "timestamp", 1_001_500, "boundaryType", "upper"); got != 1 {
		t.Errorf("upper: %d", got)
	}
	if got := ask(codec.ReqGetMaxOffset, "offset"); got != 3 {
		t.Errorf("max %d", got)
	}
	if got := ask(codec.ReqGetMinOffset, "offset"); got != 0 {
		t.Errorf("min %d", got)
	}
	if got := ask(codec.ReqGetEarliestMsgStoreTime, "timestamp"); got != 1_000_000 {
		t.Errorf("earliest %d", got)
	}
	none := fields("topic", "none", "queueId", 0)
	if got := number(t, cl.must(codec.ReqGetMaxOffset, none, nil), "offset"); got != 0 {
		t.Errorf("max of no queue: %d", got)
	}
}

func TestQueueLocks(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	c := startCluster(t, Options{Now: func() time.Time { return now }})
	cl := dial(t, c.Brokers()[0].Addr())
	body := func(client string) []byte {
		b, _ := json.Marshal(lockBody{"g", client, []messageQueue{{"t", "broker-a", 0}}})
		return b
	}
	lock := func(client string) bool {
		var got struct {
			Locked []messageQueue `json:"lockOKMQSet"`
		}
		if err := json.Unmarshal(cl.must(codec.ReqLockBatchMQ, nil, body(client)).Body, &got); err != nil {
			t.Fatal(err)
		}
		return len(got.Locked) == 1 && got.Locked[0] == messageQueue{"t", "broker-a", 0}
	}
	if first, again := lock("c1"), lock("c1"); !first || !again {
		t.Error("the first client does not get, or keep, the lock")
	}
	if lock("c2") {
		t.Error("two clients have the lock")
	}
	cl.must(codec.ReqUnlockBatchMQ, nil, body("c2"))
	if lock("c2") {
		t.Error("a client unlocked another one's queue")
	}
	cl.must(codec.ReqUnlockBatchMQ, nil, body("c1"))
	if !lock("c2") {
		t.Error("an unlocked queue cannot be locked")
	}
	now = now.Add(lockLease)
	if !lock("c1") {
		t.Error("a lock outlives its lease")
	}
}
