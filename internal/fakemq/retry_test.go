package fakemq

import (
	"testing"

	"github.com/delaygate/delaygate/codec"
)

func TestSendBackComesThroughTheRetryTopic(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{DelayLevels: "1s 1s 1s"})
	b.CreateGroup(GroupConfig{Name: "g"})
	cl := dial(t, b.Addr())
	cl.mustSend(message{body: "x", queue: 1, props: prop("KEYS", "k")})
	sent := c.Messages("t")[0]
	cl.must(codec.ReqConsumerSendMsgBack, fields("group", "g", "offset", sent.PhysicalOffset, "delayLevel", 0, "originTopic", "t", "maxReconsumeTimes", 16), nil)
	m := awaitMessages(t, c, "%RETRY%g", 1)[0]
	if string(m.Body) != "x" || m.ReconsumeTimes != 1 || m.BornHost != sent.BornHost || m.BornTimestamp != sent.BornTimestamp || m.Flag != sent.Flag {
		t.Errorf("retry %+v", m)
	}
	origin := string(codec.AppendOffsetID(nil, sent.StoreHost, sent.PhysicalOffset))
	uniq, _ := sent.Property("UNIQ_KEY")
	for name, want := range map[string]string{
		"RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": origin, "DELAY": "3", "KEYS": "k", "UNIQ_KEY": uniq, "REAL_TOPIC": "%RETRY%g",
	} {
		if got, _ := m.Property(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if m.StoreTimestamp < sent.StoreTimestamp+1000 {
		t.Error("early")
	}
}

func TestSendBackToTheDeadLetterTopic(t *testing.T) {
	for _, f := range []codec.Fields{
		fields("delayLevel", -1, "maxReconsumeTimes", 16),
		fields("delayLevel", 0, "maxReconsumeTimes", 0),
	} {
		c, b := startBroker(t, BrokerOptions{})
		b.CreateGroup(GroupConfig{Name: "g"})
		cl := dial(t, b.Addr())
		cl.mustSend(message{body: "x"})
		cl.must(codec.ReqConsumerSendMsgBack, append(f, fields("group", "g", "offset", 0)...), nil)
		list := c.Messages("%DLQ%g")
		if len(list) != 1 || string(list[0].Body) != "x" || list[0].ReconsumeTimes != 1 {
			t.Errorf("%v: dead letters %+v", f, list)
		}
	}
}

func TestSendBackRefusals(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.mustSend(message{})
	back := func(offset int) int32 {
		return cl.call(codec.ReqConsumerSendMsgBack, fields("group", "g", "offset", offset), nil).Code
	}
	if code := back(0); code != codec.RespSubscriptionGroupNotExist {
		t.Errorf("unknown group: code %d", code)
	}
	b.CreateGroup(GroupConfig{Name: "g"})
	if code := back(1); code != codec.RespSystemError {
		t.Errorf("no message there: code %d", code)
	}
	b.CreateGroup(GroupConfig{Name: "g", RetryQueues: -1})
	if code := back(0); code != codec.RespSuccess || len(c.Messages("%RETRY%g"))+b.PendingDelays() != 0 {
		t.Errorf("group without retries: code %d", code)
	}
}

func TestSendToARetryTopicThatHasHadItsRetries(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version int32
		tries   int32
		locked  bool
		dead    bool
		held    bool
	}{
		{"last retry", Version533, 3, false, false, true},
		{"beyond the last", Version533, 4, false, true, false},
		{"orderly group", Version533, 1, true, true, false},
		{"4.9: last retry is one too many", Version497, 3, false, true, true},
		{"4.9: retry", Version497, 2, false, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, b := startBroker(t, BrokerOptions{Version: tc.version})
			b.CreateGroup(GroupConfig{Name: "g"})
			cl := dial(t, b.Addr())
			if tc.locked {
				cl.must(codec.ReqLockBatchMQ, nil, []byte(`{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"t","brokerName":"broker-a","queueId":0}]}`))
			}
			cl.mustSend(message{topic: "%RETRY%g", body: "x", reconsumed: tc.tries, maxRetries: 3, props: prop("DELAY", "5")})
			if _, dead := b.Topic("%DLQ%g"); dead != tc.dead {
				t.Errorf("dead letter: %v", dead)
			}
			if held := b.PendingDelays() == 1; held != tc.held {
				t.Errorf("held: %v", held)
			}
			if n := len(c.Messages("%DLQ%g")); (n == 1) != (tc.dead && !tc.held) {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

func TestTransactions(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	half := func(body string) int64 {
		props := codec.Properties{{Name: "TRAN_MSG", Value: "true"}, {Name: "PGROUP", Value: "pg"}}
		reply := cl.mustSend(message{body: body, queue: 1, props: props})
		id, _ := reply.Fields.Get("msgId")
		_, offset, err := codec.ParseOffsetID(id)
		if err != nil {
			t.Fatal(err)
		}
		return offset
	}
	commit, undo, open := half("commit"), half("undo"), half("open")
	end := func(offset int64, verdict int) *codec.Command {
		return cl.call(codec.ReqEndTransaction, fields("commitLogOffset", offset, "commitOrRollback", verdict), nil)
	}
	if n := len(c.Messages("t")); n != 0 {
		t.Fatalf("%d half messages are visible", n)
	}
	if reply := end(commit, transactionCommit); reply.Code != codec.RespSuccess {
		t.Errorf("commit: code %d", reply.Code)
	}
	if reply := end(undo, transactionUndo); reply.Code != codec.RespSuccess {
		t.Errorf("rollback: code %d", reply.Code)
	}
	if reply := end(commit, transactionCommit); reply.Code != codec.RespSystemError {
		t.Errorf("second commit: code %d", reply.Code)
	}
	cl.post(&codec.Command{Code: codec.ReqEndTransaction, Fields: fields("commitLogOffset", open, "commitOrRollback", 0)})
	cl.silent()
	list := c.Messages("t")
	if len(list) != 1 || string(list[0].Body) != "commit" || list[0].QueueID != 1 {
		t.Errorf("visible %+v", list)
	}
}
