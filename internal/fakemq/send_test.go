package fakemq

import (
	"slices"
	"strings"
	"testing"

	"github.com/delaygate/delaygate/codec"
)

func TestSendStoresWhatABrokerStores(t *testing.T) {
	for _, code := range []int32{codec.ReqSendMessage, codec.ReqSendMessageV2} {
		c, b := startBroker(t, BrokerOptions{Addr: "127.7.7.7:0"})
		cl := dial(t, b.Addr())
		cmd := message{body: "hello", queue: 2, props: prop(codec.PropTags, "red")}.command(code)
		reply := cl.must(code, cmd.Fields, cmd.Body)

		list := c.Messages("t")
		if len(list) != 1 {
			t.Fatalf("code %d: %d messages stored", code, len(list))
		}
		m := list[0]
		if string(m.Body) != "hello" || m.QueueID != 2 || m.Flag != 7 || m.BornTimestamp != 1700000000000 || m.Broker != "broker-a" {
			t.Errorf("code %d: stored %+v", code, m)
		}
		if m.StoreHost.String() != b.Addr() || m.BornHost.String() != cl.nc.LocalAddr().String() {
			t.Errorf("code %d: store host %s, born host %s", code, m.StoreHost, m.BornHost)
		}
		for name, want := range map[string]string{
			"TAGS": "red", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
		} {
			if got, _ := m.Property(name); got != want {
				t.Errorf("code %d: property %s = %q, want %q", code, name, got, want)
			}
		}
		uniq, _ := m.Property(codec.PropUniqKey)
		if transaction, _ := reply.Fields.Get("transactionId"); len(uniq) != 32 || transaction != uniq {
			t.Errorf("code %d: UNIQ_KEY %q, transactionId %q", code, uniq, transaction)
		}
	}
}

func TestSendReplyLeadsBackToTheMessage(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.mustSend(message{body: "first"})
	reply := cl.mustSend(message{body: "second"})
	if number(t, reply, "queueOffset") != 1 || number(t, reply, "queueId") != 0 {
		t.Errorf("reply %+v", reply.Fields)
	}
	id, _ := reply.Fields.Get("msgId")
	addr, offset, err := codec.ParseOffsetID(id)
	if err != nil || addr.String() != b.Addr() {
		t.Fatalf("msgId %s: %v, %v", id, addr, err)
	}
	view := cl.must(codec.ReqViewMessageByID, fields("offset", offset), nil)
	if m := stored(t, view.Body); len(m) != 1 || string(m[0].Body) != "second" {
		t.Errorf("viewed %+v", m)
	}
	if miss := cl.call(codec.ReqViewMessageByID, fields("offset", offset+1), nil); miss.Code != codec.RespSystemError {
		t.Errorf("an offset inside a message: code %d", miss.Code)
	}
}

func TestSendCreatesTopicFromItsTemplate(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{TopicQueues: 3})
	dial(t, b.Addr()).mustSend(message{topic: "new"})
	got, ok := b.Topic("new")
	want := TopicConfig{Name: "new", ReadQueues: 3, WriteQueues: 3, Perm: 6}
	if !ok || got != want {
		t.Errorf("topic %+v, want %+v", got, want)
	}
}

func TestSendRefusals(t *testing.T) {
	v4 := BrokerOptions{Version: Version497}
	for _, c := range []struct {
		name   string
		broker BrokerOptions
		m      message
		want   int32
	}{
		{"no topic and none may be made", BrokerOptions{NoAutoCreateTopic: true}, message{}, codec.RespTopicNotExist},
		{"queue beyond the topic's", BrokerOptions{}, message{queue: 4}, codec.RespInvalidParameter},
		{"queue beyond the topic's, 4.9", v4, message{queue: 4}, codec.RespSystemError},
		{"illegal topic name", BrokerOptions{}, message{topic: "a b"}, codec.RespInvalidParameter},
		{"topic name too long", BrokerOptions{}, message{topic: strings.Repeat("x", 128)}, codec.RespInvalidParameter},
		{"closed topic", BrokerOptions{}, message{topic: "SCHEDULE_TOPIC_XXXX"}, codec.RespNoPermission},
		{"body too large", BrokerOptions{MaxMessageSize: 10}, message{body: "12345678901"}, codec.RespMessageIllegal},
		{"properties too large", BrokerOptions{}, message{props: prop("k", strings.Repeat("x", 32768))}, codec.RespMessageIllegal},
		{"delay of a batch", BrokerOptions{}, message{batch: true, body: "", props: prop("DELAY", "1")}, codec.RespMessageIllegal},
		{"empty batch", BrokerOptions{}, message{batch: true}, codec.RespMessageIllegal},
		{"retry of an unknown group", BrokerOptions{}, message{topic: "%RETRY%g"}, codec.RespSubscriptionGroupNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster, b := startBroker(t, c.broker)
			reply := dial(t, b.Addr()).send(c.m)
			if reply.Code != c.want {
				t.Errorf("code %d (%s), want %d", reply.Code, reply.Remark, c.want)
			}
			if region, _ := reply.Fields.Get("MSG_REGION"); region == "" {
				t.Error("no MSG_REGION in the refusal")
			}
			if n := len(cluster.Messages(c.m.topic)); n != 0 {
				t.Errorf("%d messages stored all the same", n)
			}
		})
	}
}

func TestSendLetsTheBrokerPickAQueue(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	reply := dial(t, b.Addr()).mustSend(message{queue: -1})
	if q := number(t, reply, "queueId"); q < 0 || q > 3 || c.Messages("t")[0].QueueID != int32(q) {
		t.Errorf("queue %d", q)
	}
}

func TestOneWaySendIsNotAnswered(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cmd := message{body: "quiet"}.command(codec.ReqSendMessageV2)
	cmd.Flag = codec.FlagOneway
	cl.post(cmd)
	reply := cl.mustSend(message{body: "loud"})
	if reply.Opaque != 2 {
		t.Errorf("the one-way request was answered")
	}
	if got := bodies(c.Messages("t")); !slices.Equal(got, []string{"quiet", "loud"}) {
		t.Errorf("stored %q", got)
	}
}

func TestBatchIsStoredMessageByMessage(t *testing.T) {
	var body []byte
	for _, s := range []string{"a", "b", "c"} {
		props := codec.Properties{{Name: "UNIQ_KEY", Value: "u" + s}, {Name: "DELAY", Value: "3"}}
		body = codec.AppendBatchMessage(body, codec.BatchMessage{Flag: 1, Body: []byte(s), Properties: props.String()})
	}
	// C++ says batch with the ordinary code, others with 320.
	for _, code := range []int32{codec.ReqSendMessageV2, codec.ReqSendBatchMessage} {
		for _, version := range []int32{Version533, Version497} {
			c, b := startBroker(t, BrokerOptions{Version: version})
			cl := dial(t, b.Addr())
			cmd := message{batch: true, body: string(body), props: prop("OUTER", "o")}.command(code)
			reply := cl.must(code, cmd.Fields, cmd.Body)
			ids, _ := reply.Fields.Get("msgId")
			if n := len(strings.Split(ids, ",")); n != 3 {
				t.Errorf("%d ids", n)
			}
			list := c.Messages("t")
			if got := bodies(list); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Fatalf("stored %q", got)
			}
			_, outer := list[0].Property("OUTER")
			_, cluster := list[0].Property("CLUSTER")
			if want := version == Version497; outer != want || cluster != want {
				t.Errorf("version %d: the batch's own property: %v, CLUSTER: %v", version, outer, cluster)
			}
		}
	}
}

func TestQueryFindsByKeyAndUniqueKey(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	props := codec.Properties{{Name: "KEYS", Value: "order-1 customer-2"}, {Name: "UNIQ_KEY", Value: "0A"}}
	cl.mustSend(message{body: "x", props: props})
	cl.mustSend(message{body: "other"})
	for _, key := range []string{"order-1", "customer-2", "0A"} {
		reply := cl.must(codec.ReqQueryMessage, fields("topic", "t", "key", key, "maxNum", 10, "beginTimestamp", 0, "endTimestamp", int64(1)<<62), nil)
		if m := stored(t, reply.Body); len(m) != 1 || string(m[0].Body) != "x" {
			t.Errorf("key %s: %d messages", key, len(m))
		}
	}
	if reply := cl.call(codec.ReqQueryMessage, fields("topic", "u", "key", "0A"), nil); reply.Code != codec.RespQueryNotFound {
		t.Errorf("another topic: code %d", reply.Code)
	}
}

func TestLogIsBounded(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{MaxMessages: 3})
	cl := dial(t, b.Addr())
	for _, s := range []string{"a", "b", "c", "d", "e"} {
		cl.mustSend(message{body: s, props: prop("KEYS", s)})
	}
	if got := bodies(c.Messages("t")); !slices.Equal(got, []string{"c", "d", "e"}) {
		t.Errorf("kept %q", got)
	}
	if lowest := number(t, cl.must(codec.ReqGetMinOffset, fields("topic", "t", "queueId", 0), nil), "offset"); lowest != 2 {
		t.Errorf("min offset %d", lowest)
	}
	if reply := cl.call(codec.ReqQueryMessage, fields("topic", "t", "key", "a"), nil); reply.Code != codec.RespQueryNotFound {
		t.Errorf("a dropped message is still found: code %d", reply.Code)
	}
	if reply := cl.call(codec.ReqViewMessageByID, fields("offset", 0), nil); reply.Code != codec.RespSystemError {
		t.Errorf("a dropped message is still viewed: code %d", reply.Code)
	}
}
