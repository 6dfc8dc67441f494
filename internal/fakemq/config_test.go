package fakemq

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/delaygate/delaygate/codec"
)

func TestBrokerConfigTellsWhatClientsAskFor(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{DelayLevels: "1s 2s", MaxMessageSize: 1000, NoAutoCreateTopic: true})
	text := string(dial(t, b.Addr()).must(codec.ReqGetBrokerConfig, nil, nil).Body)
	for _, line := range []string{
		"brokerName=broker-a\n", "brokerPermission=6\n", "messageDelayLevel=1s 2s\n", "maxMessageSize=1000\n", "autoCreateTopicEnable=false\n",
		"timerPrecisionMs=1000\n", "timerMaxDelaySec=259200\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	_, b4 := startBroker(t, BrokerOptions{Version: Version497})
	reply := dial(t, b4.Addr()).must(codec.ReqGetBrokerConfig, nil, nil)
	if strings.Contains(string(reply.Body), "timer") || reply.Version != Version497 {
		t.Errorf("4.9, version %d:\n%s", reply.Version, reply.Body)
	}
}

func TestRuntimeInfo(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.mustSend(message{})
	var got struct {
		Table map[string]string `json:"table"`
	}
	if err := json.Unmarshal(cl.must(codec.ReqGetBrokerRuntimeInfo, nil, nil).Body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Table["msgPutTotalTodayNow"] != "1" {
		t.Errorf("table %v", got.Table)
	}
}

func TestTopicAdministration(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.must(codec.ReqUpdateAndCreateTopic, fields("topic", "t", "readQueueNums", 2, "writeQueueNums", 3, "perm", 6, "topicFilterType", "SINGLE_TAG"), nil)
	var got topicConfigBody
	if err := json.Unmarshal(cl.must(codec.ReqGetTopicConfig, fields("topic", "t"), nil).Body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "t" || got.ReadQueues != 2 || got.WriteQueues != 3 || got.Perm != 6 {
		t.Errorf("topic %+v", got)
	}
	cl.mustSend(message{queue: 2})
	cl.must(codec.ReqDeleteTopicInBroker, fields("topic", "t"), nil)
	if reply := cl.call(codec.ReqGetTopicConfig, fields("topic", "t"), nil); reply.Code != codec.RespTopicNotExist {
		t.Errorf("deleted topic: code %d", reply.Code)
	}
	for _, f := range []codec.Fields{fields("topic", "a b"), fields("topic", "t", "readQueueNums", 1<<20), fields("topic", "t", "readQueueNums", -1)} {
		if reply := cl.call(codec.ReqUpdateAndCreateTopic, f, nil); reply.Code != codec.RespInvalidParameter {
			t.Errorf("%v: code %d", f, reply.Code)
		}
	}
}

func TestGroupAdministration(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	if reply := cl.call(codec.ReqGetSubscriptionGroupConfig, fields("group", "g"), nil); reply.Code != codec.RespSubscriptionGroupNotExist {
		t.Errorf("unknown group: code %d", reply.Code)
	}
	cl.must(codec.ReqUpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"g","retryMaxTimes":3}`))
	var got GroupConfig
	if err := json.Unmarshal(cl.must(codec.ReqGetSubscriptionGroupConfig, fields("group", "g"), nil).Body, &got); err != nil {
		t.Fatal(err)
	}
	want := defaultGroup("g")
	want.RetryMaxTimes = 3
	if got != want {
		t.Errorf("group %+v, want %+v", got, want)
	}
	if body := string(cl.must(codec.ReqGetAllSubscriptionGroupConfig, nil, nil).Body); !strings.Contains(body, `"g":{"groupName":"g"`) {
		t.Errorf("groups %s", body)
	}
}

func TestClientCheck(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.must(codec.ReqCheckClientConfig, nil, []byte(`{"subscriptionData":{"expressionType":"TAG"}}`))
	if reply := cl.call(codec.ReqCheckClientConfig, nil, []byte(`{"subscriptionData":{"expressionType":"SQL92"}}`)); reply.Code != codec.RespSystemError {
		t.Errorf("SQL92: code %d", reply.Code)
	}
}

func TestUnservedRequests(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	for _, code := range []int32{400, 200050, 370, 9999} {
		if reply := cl.call(code, nil, nil); reply.Code != codec.RespNotSupported {
			t.Errorf("request %d: code %d", code, reply.Code)
		}
	}
}

func TestMalformedBodies(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	for _, code := range []int32{
		codec.ReqHeartBeat, codec.ReqLockBatchMQ, codec.ReqUnlockBatchMQ, codec.ReqCheckClientConfig, codec.ReqUpdateAndCreateSubscriptionGroup,
	} {
		if reply := cl.call(code, nil, []byte("{")); reply.Code != codec.RespSystemError {
			t.Errorf("request %d: code %d", code, reply.Code)
		}
	}
	if reply := cl.call(codec.ReqSendMessageV2, fields("e", "not a number"), nil); reply.Code == codec.RespSuccess {
		t.Error("a send with a malformed header is stored")
	}
}
