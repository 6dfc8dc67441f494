package codec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var sendHeaderOfJava = SendHeader{
	ProducerGroup: "pg", Topic: "T-Ä", DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: 3,
	BornTimestamp: 1700000000123, Flag: 7, Properties: "UNIQ_KEY\x01AC11\x02WAIT\x01true\x02DELAY\x013\x02TAGS\x01q\"\\t",
	ReconsumeTimes: 0, MaxReconsumeTimes: 16,
}

func TestParseSendHeaderOfJava(t *testing.T) {
	for _, code := range []int32{ReqSendMessageV2, ReqSendBatchMessage, ReqSendReplyMessageV2} {
		c := javaSend(Binary)
		c.Code = code
		got, err := ParseSendHeader(c)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sendHeaderOfJava, got); diff != "" {
			t.Errorf("code %d: %s", code, diff)
		}
	}
}

// The Go client writes long names; what is not set is absent.
func TestParseSendHeaderWithLongNames(t *testing.T) {
	for _, code := range []int32{ReqSendMessage, ReqSendReplyMessage} {
		got, err := ParseSendHeader(&Command{Code: code, Fields: Fields{
			{"producerGroup", "pg"}, {"topic", "T"}, {"defaultTopic", "TBW102"}, {"defaultTopicQueueNums", "4"}, {"queueId", "-1"},
			{"sysFlag", "1"}, {"bornTimestamp", "1700000000123"}, {"flag", "0"}, {"properties", ""}, {"ns", "space"},
			{"unitMode", "TRUE"}, {"batch", "true"}, {"reconsumeTimes", "2"}, {"maxReconsumeTimes", "16"}, {"bname", "broker-a"}, {"nsd", "true"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		want := SendHeader{
			ProducerGroup: "pg", Topic: "T", DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: -1, SysFlag: 1,
			BornTimestamp: 1700000000123, UnitMode: true, Batch: true, ReconsumeTimes: 2, MaxReconsumeTimes: 16, BrokerName: "broker-a",
			Extra: Fields{{"ns", "space"}, {"nsd", "true"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("code %d: %s", code, diff)
		}
	}
}

func TestAbsentCountsAreMinusOne(t *testing.T) {
	c := javaSend(JSON)
	for _, name := range []string{"i", "j", "k", "l", "m"} {
		c.Fields.Del(name)
	}
	h, err := ParseSendHeader(c)
	if err != nil || h.ReconsumeTimes != -1 || h.MaxReconsumeTimes != -1 || h.Properties != "" || h.UnitMode || h.Batch {
		t.Errorf("got %+v, %v", h, err)
	}
	for _, name := range []string{"i", "j", "l", "n"} {
		if v, ok := h.V2().Get(name); ok {
			t.Errorf("%s is written as %q, want it absent", name, v)
		}
	}
}

func TestParseSendHeaderNamesTheField(t *testing.T) {
	for i, name := range letters[:8] {
		c := javaSend(JSON)
		c.Fields.Del(name)
		_, err := ParseSendHeader(c)
		if err == nil || !strings.Contains(err.Error(), "field "+name+" ("+longNames[i]+") is missing") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	for _, tc := range []struct{ name, value, want string }{
		{"d", "", "field d (defaultTopicQueueNums)"},
		{"e", "x", "field e (queueId)"},
		{"e", "2147483648", "field e (queueId)"},
		{"f", "1.0", "field f (sysFlag)"},
		{"g", "99999999999999999999", "field g (bornTimestamp)"},
		{"h", " 1", "field h (flag)"},
		{"j", "null", "field j (reconsumeTimes)"},
		{"l", "1s", "field l (maxReconsumeTimes)"},
	} {
		c := javaSend(JSON)
		c.Fields.Set(tc.name, tc.value)
		_, err := ParseSendHeader(c)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s = %q: got %v, want an error with %q", tc.name, tc.value, err, tc.want)
		}
	}
	if _, err := ParseSendHeader(&Command{Code: ReqPullMessage}); err == nil || !strings.Contains(err.Error(), "code 11") {
		t.Errorf("got %v", err)
	}
	c := javaSend(JSON)
	c.Code = ReqSendMessage
	if _, err := ParseSendHeader(c); err == nil || !strings.Contains(err.Error(), "producerGroup") {
		t.Errorf("letters under code 10: got %v", err)
	}
}

func TestSendHeadersReadBack(t *testing.T) {
	text, count := rapid.String(), rapid.Int32Range(-1, 1<<31-1)
	rapid.Check(t, func(t *rapid.T) {
		h := SendHeader{
			ProducerGroup: text.Draw(t, "group"), Topic: text.Draw(t, "topic"), DefaultTopic: text.Draw(t, "default topic"),
			DefaultTopicQueueNums: rapid.Int32().Draw(t, "queues"), QueueID: rapid.Int32().Draw(t, "queue"),
			SysFlag: rapid.Int32().Draw(t, "system flag"), BornTimestamp: rapid.Int64().Draw(t, "born"), Flag: rapid.Int32().Draw(t, "flag"),
			Properties: text.Draw(t, "properties"), ReconsumeTimes: count.Draw(t, "reconsume"), MaxReconsumeTimes: count.Draw(t, "max"),
			UnitMode: rapid.Bool().Draw(t, "unit"), Batch: rapid.Bool().Draw(t, "batch"), BrokerName: text.Draw(t, "broker"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "extra") {
			h.Extra = append(h.Extra, Field{"x-" + text.Draw(t, "name"), text.Draw(t, "value")})
		}
		for code, fields := range map[int32]Fields{ReqSendMessage: h.V1(), ReqSendMessageV2: h.V2()} {
			got, err := ParseSendHeader(&Command{Code: code, Fields: fields})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(h, got); diff != "" {
				t.Fatalf("code %d: %s", code, diff)
			}
		}
	})
}

// Written again, a header of a Java client is the same field for field.
func TestSendHeaderKeepsTheOrder(t *testing.T) {
	c := javaSend(JSON)
	c.Fields = append(c.Fields, Field{"n", "broker-a"}, Field{"ns", "space"}, Field{"nsd", "true"})
	h, err := ParseSendHeader(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Fields, h.V2()); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseSendHeader(f *testing.F) {
	f.Add(frameOf(JSON, javaJSONSend, "hi"))
	f.Add(annotated(f, javaBinarySend))
	f.Fuzz(func(t *testing.T, frame []byte) {
		c, err := Decode(frame)
		if err != nil {
			return
		}
		h, err := ParseSendHeader(c)
		if err != nil {
			return
		}
		again, err := ParseSendHeader(&Command{Code: ReqSendMessageV2, Fields: h.V2()})
		if err != nil {
			t.Fatalf("%+v does not read back: %v", h, err)
		}
		h.Extra, again.Extra = nil, nil // a long name among letters is extra, and the other way round
		if diff := cmp.Diff(h, again); diff != "" && h.ReconsumeTimes >= -1 && h.MaxReconsumeTimes >= -1 {
			t.Fatal(diff)
		}
	})
}
