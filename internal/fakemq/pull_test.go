package fakemq

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// heartbeat registers the client as a member of group with one subscription.
func (c *client) heartbeat(id, group, topic, expression string, version int64) {
	c.t.Helper()
	type object = map[string]any
	body, err := json.Marshal(object{
		"clientID": id, "producerDataSet": []object{{"groupName": "pg"}},
		"consumerDataSet": []object{{
			"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": false,
			"subscriptionDataSet": []object{{
				"topic": topic, "subString": expression, "subVersion": version, "expressionType": "TAG", "classFilterMode": false,
				"tagsSet": []string{}, "codeSet": []string{},
			}},
		}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(codec.ReqHeartBeat, nil, body)
}

func pullFields(offset int64, sysFlag int, suspend time.Duration) codec.Fields {
	return fields("consumerGroup", "g", "topic", "t", "queueId", 0, "queueOffset", offset, "maxMsgNums", 32,
		"sysFlag", sysFlag, "commitOffset", 0, "suspendTimeoutMillis", suspend.Milliseconds(), "subVersion", 0, "subscription", "*", "expressionType", "TAG")
}

func TestPullReturnsWhatIsThere(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	for _, s := range []string{"a", "b", "c"} {
		cl.mustSend(message{body: s})
	}
	for _, code := range []int32{codec.ReqPullMessage, codec.ReqLitePullMessage} {
		reply := cl.must(code, pullFields(1, pullSubscription, 0), nil)
		var got []string
		for _, m := range stored(t, reply.Body) {
			got = append(got, string(m.Body))
		}
		if !slices.Equal(got, []string{"b", "c"}) || number(t, reply, "nextBeginOffset") != 3 || number(t, reply, "maxOffset") != 3 {
			t.Errorf("pulled %q, %+v", got, reply.Fields)
		}
	}
}

func TestPullOutsideOfTheQueue(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{MaxMessages: 2})
	cl := dial(t, b.Addr())
	for _, s := range []string{"a", "b", "c"} {
		cl.mustSend(message{body: s})
	}
	for _, c := range []struct{ offset, next int64 }{{0, 1}, {9, 3}} {
		reply := cl.call(codec.ReqPullMessage, pullFields(c.offset, pullSubscription|pullSuspends, time.Minute), nil)
		if reply.Code != codec.RespPullOffsetMoved || number(t, reply, "nextBeginOffset") != c.next {
			t.Errorf("offset %d: code %d, %+v", c.offset, reply.Code, reply.Fields)
		}
	}
}

func TestPullIsHeldUntilAMessageArrives(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	b.CreateTopic("t", 1, 6)
	cl, producer := dial(t, b.Addr()), dial(t, b.Addr())
	cl.heartbeat("c1", "g", "t", "red", 1)
	opaque := cl.post(&codec.Command{Code: codec.ReqPullMessage, Fields: pullFields(0, pullSuspends, time.Minute)})
	cl.silent()
	producer.mustSend(message{body: "no", props: prop("TAGS", "blue")})
	cl.silent()
	producer.mustSend(message{body: "yes", props: prop("TAGS", "red")})
	reply := cl.reply()
	if reply.Opaque != opaque || reply.Code != codec.RespSuccess || number(t, reply, "nextBeginOffset") != 2 {
		t.Fatalf("reply %+v", reply)
	}
	if m := stored(t, reply.Body); len(m) != 1 || string(m[0].Body) != "yes" {
		t.Errorf("pulled %+v", m)
	}
}

func TestPullIsAnsweredWhenItsTimeIsOver(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	b.CreateTopic("t", 1, 6)
	cl := dial(t, b.Addr())
	start := time.Now()
	reply := cl.call(codec.ReqPullMessage, pullFields(0, pullSuspends|pullSubscription, 60*time.Millisecond), nil)
	if reply.Code != codec.RespPullNotFound || time.Since(start) < 60*time.Millisecond {
		t.Errorf("code %d after %s", reply.Code, time.Since(start))
	}
}

func TestPullOfAClosedConnectionIsForgotten(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	b.CreateTopic("t", 1, 6)
	cl := dial(t, b.Addr())
	cl.post(&codec.Command{Code: codec.ReqPullMessage, Fields: pullFields(0, pullSuspends|pullSubscription, time.Hour)})
	parked := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.topics["t"].queues[0].parked)
	}
	await(t, "the pull is held", func() bool { return parked() == 1 })
	cl.nc.Close()
	await(t, "the pull is forgotten", func() bool { return parked() == 0 })
}

func TestPullFilterThatLetsNothingPass(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.mustSend(message{body: "x", props: prop("TAGS", "blue")})
	cl.heartbeat("c1", "g", "t", "red || green", 1)
	reply := cl.call(codec.ReqPullMessage, pullFields(0, pullSuspends, time.Minute), nil)
	if reply.Code != codec.RespPullRetryImmediately || number(t, reply, "nextBeginOffset") != 1 {
		t.Errorf("code %d, %+v", reply.Code, reply.Fields)
	}
}

func TestPullRefusals(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	b.CreateTopic("t", 1, 6)
	cl := dial(t, b.Addr())
	pull := func(change ...any) int32 {
		f := pullFields(0, 0, 0)
		for i := 0; i < len(change); i += 2 {
			f.Set(change[i].(string), change[i+1].(string))
		}
		return cl.call(codec.ReqPullMessage, f, nil).Code
	}
	if code := pull(); code != codec.RespSubscriptionNotExist {
		t.Errorf("unknown group: code %d", code)
	}
	cl.heartbeat("c1", "g", "t", "*", 5)
	if code := pull(); code != codec.RespPullNotFound {
		t.Errorf("known group: code %d", code)
	}
	if code := pull("subVersion", "6"); code != codec.RespSubscriptionNotLatest {
		t.Errorf("newer subscription: code %d", code)
	}
	if code := pull("topic", "none"); code != codec.RespTopicNotExist {
		t.Errorf("unknown topic: code %d", code)
	}
	if code := pull("queueId", "1"); code != codec.RespInvalidParameter {
		t.Errorf("unknown queue: code %d", code)
	}
	b.CreateTopic("t", 1, permWrite)
	if code := pull(); code != codec.RespNoPermission {
		t.Errorf("unreadable topic: code %d", code)
	}
}

func TestPullCommitsTheOffsetItCarries(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.mustSend(message{})
	f := pullFields(0, pullSubscription|pullCommits, 0)
	f.Set("commitOffset", "1")
	cl.must(codec.ReqPullMessage, f, nil)
	if offset, ok := b.Offset("g", "t", 0); !ok || offset != 1 {
		t.Errorf("offset %d, %v", offset, ok)
	}
}

func TestTagHashIsJavas(t *testing.T) {
	// values printed by a JVM
	for tag, want := range map[string]int64{"": 0, "TagA": 2598919, "polygenelubricants": -2147483648, "straße": -891990090, "\U0001F600": 1772899} {
		if got := javaHash(tag); got != want {
			t.Errorf("hash of %q = %d, want %d", tag, got, want)
		}
	}
}
