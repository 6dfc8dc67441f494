package gate

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/timer"
)

func TestAHeldFrameIsTheSendThatWillBeDelivered(t *testing.T) {
	body := []byte("body\x00\xff\x01\x02")
	for _, code := range []int32{codec.ReqSendMessage, codec.ReqSendMessageV2} {
		for _, binary := range []bool{false, true} {
			w := newWorld(t)
			m := message{code: code, binary: binary, version: 403, queue: 2, body: body,
				props: props{"TIMER_DELAY_MS": "7000", "UNIQ_KEY": "KEY1", "KEYS": "k1 k2"}}
			m.change = func(h *codec.SendHeader) {
				h.SysFlag, h.Flag, h.UnitMode, h.ReconsumeTimes, h.BrokerName = 1, -9, true, 3, "elsewhere"
				h.Extra = codec.Fields{
					{Name: "ns", Value: "space"}, {Name: "nsd", Value: "true"}, {Name: "AccessKey", Value: "ak"}, {Name: "ReqT", Value: "x"},
					{Name: "Signature", Value: "sig"}, {Name: "SecurityToken", Value: "st"}, {Name: "lo", Value: "false"},
				}
			}
			e, _ := w.heldEntry(t, m)
			if want := (timer.Flow{Broker: "broker-a", Topic: "orders"}); e.Flow != want || e.Lane != 2 || e.Due != nowMs+7000 || e.Key != "KEY1" {
				t.Errorf("entry %+v", e)
			}
			c, h, p := heldHeader(t, e)
			if c.Serialize != codec.Binary || c.Code != codec.ReqSendMessageV2 || c.Language != codec.LangJava || c.Version != 403 ||
				c.Opaque != 0 || c.Flag != 0 || !bytes.Equal(c.Body, body) {
				t.Errorf("frame %+v", c)
			}
			want := codec.SendHeader{
				ProducerGroup: "pg", Topic: "orders", DefaultTopic: "delaygate_never_create", DefaultTopicQueueNums: 4, QueueID: 2,
				SysFlag: 1, BornTimestamp: nowMs - 7, Flag: -9, ReconsumeTimes: 3, MaxReconsumeTimes: -1, UnitMode: true, BrokerName: "broker-a",
				Extra: codec.Fields{{Name: "ns", Value: "space"}, {Name: "nsd", Value: "true"}, {Name: "ReqT", Value: "x"}, {Name: "lo", Value: "false"}},
			}
			h.Properties = ""
			if diff := cmp.Diff(want, h); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
			checkProps(t, p, props{"color": "blue", "TIMER_DELAY_MS": "7000", "TIMER_OUT_MS": "1764547207000",
				"UNIQ_KEY": "KEY1", "KEYS": "k1 k2", "__BORNHOST": "192.0.2.9"})
		}
	}
}

// checkProps fails unless p holds exactly want, each name once.
func checkProps(t *testing.T, p codec.Properties, want props) {
	t.Helper()
	got := props{}
	for _, e := range p {
		if _, twice := got[e.Name]; twice {
			t.Errorf("%s stands there twice", e.Name)
		}
		got[e.Name] = e.Value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

func TestWhatIsKeptOfTheProperties(t *testing.T) {
	junk := props{"TIMER_ROLL_TIMES": "x", "TIMER_ENQUEUE_MS": "1", "TIMER_DEQUEUE_MS": "2", "REAL_TOPIC": "other", "REAL_QID": "9"}
	with := func(p props, more ...props) props {
		all := props{}
		for _, m := range append([]props{p}, more...) {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	kept := props{"color": "blue", "UNIQ_KEY": "K", "__BORNHOST": "192.0.2.9"}
	for _, tc := range []struct {
		name     string
		in, want props
	}{
		{"level", props{"DELAY": "3"}, kept},
		{"A7 level with timers", props{"DELAY": "3", "TIMER_DELIVER_MS": ms(1), "TIMER_DELAY_MS": "1", "TIMER_DELAY_SEC": "x"}, kept},
		{"level that fired once as a timer", props{"DELAY": "3", "TIMER_OUT_MS": "5"}, with(kept, props{"TIMER_OUT_MS": "5"})},
		{"timer", props{"TIMER_DELAY_SEC": "2"}, with(kept, props{"TIMER_DELAY_SEC": "2", "TIMER_OUT_MS": "1764547202000"})},
		{"timer on the grid", props{"TIMER_DELIVER_MS": "1764547300000"},
			with(kept, props{"TIMER_DELIVER_MS": "1764547300000", "TIMER_OUT_MS": "1764547299000"})},
		{"level 0 beside a timer", props{"DELAY": "0", "TIMER_DELAY_SEC": "2"}, with(kept, props{"TIMER_DELAY_SEC": "2", "TIMER_OUT_MS": "1764547202000"})},
		{"A25 outputs of a broker", with(junk, props{"DELAY": "3"}), kept},
		{"A25 outputs of a broker, timer", with(junk, props{"TIMER_DELAY_SEC": "2"}), with(kept, props{"TIMER_DELAY_SEC": "2", "TIMER_OUT_MS": "1764547202000"})},
		{"host of another life", props{"DELAY": "3", "__BORNHOST": "10.0.0.1"}, kept},
		{"plain removal", props{"DELAY": "3", "TIMER_DEL_UNIQKEY": "Z"}, with(kept, props{"TIMER_DEL_UNIQKEY": "Z"})},
		{"no transaction", props{"DELAY": "3", "TRAN_MSG": "false", "PGROUP": "g"}, with(kept, props{"TRAN_MSG": "false", "PGROUP": "g"})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			e, _ := w.heldEntry(t, message{props: with(tc.in, props{"UNIQ_KEY": "K"})})
			_, _, p := heldHeader(t, e)
			checkProps(t, p, tc.want)
		})
	}
}

func TestTheOldRetryIsNoHalfMessageWhenItIsDelivered(t *testing.T) {
	w := newWorld(t)
	m := retry(2, 16, 407)
	m.props = props{"DELAY": "3", "TRAN_MSG": "true", "UNIQ_KEY": "K"}
	e, _ := w.heldEntry(t, m)
	_, h, p := heldHeader(t, e)
	checkProps(t, p, props{"color": "blue", "UNIQ_KEY": "K", "__BORNHOST": "192.0.2.9"})
	if h.ReconsumeTimes != 2 || h.MaxReconsumeTimes != 16 {
		t.Errorf("reconsume %d of %d", h.ReconsumeTimes, h.MaxReconsumeTimes)
	}
}

func TestTheGridIsTheBrokers(t *testing.T) {
	w := newWorld(t)
	w.view.settings.TimerPrecisionMs = 100
	e, _ := w.heldEntry(t, message{props: props{"TIMER_DELIVER_MS": ms(10_000)}})
	_, _, p := heldHeader(t, e)
	if out, _ := p.Get("TIMER_OUT_MS"); out != "1764547210100" {
		t.Errorf("TIMER_OUT_MS %s", out)
	}
}

func TestAUniqueKeyIsMadeWhenThereIsNone(t *testing.T) {
	w := newWorld(t)
	var keys []string
	for range 3 {
		e, r := w.heldEntry(t, message{props: props{"DELAY": "3"}})
		_, _, p := heldHeader(t, e)
		key, _ := p.Get("UNIQ_KEY")
		if id, _ := r.Fields.Get("transactionId"); key == "" || key != e.Key || key != id {
			t.Errorf("property %q, entry %q, reply %q", key, e.Key, id)
		}
		keys = append(keys, key)
	}
	if slices.Sort(keys); len(slices.Compact(keys)) != 3 {
		t.Errorf("the same key twice: %v", keys)
	}
}

func TestA20AnyQueueIsChosenAtOnce(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Pick = func(n int32) int32 {
			if n != 4 {
				t.Errorf("a queue of %d", n)
			}
			return 3
		}
	})
	w.view.topics["orders"] = func() (t4 upstreamTopic) { t4 = rw(8); t4.WriteQueues = 4; return }()
	e, r := w.heldEntry(t, message{props: props{"DELAY": "3"}, queue: -1})
	_, h, _ := heldHeader(t, e)
	if q, _ := r.Fields.Get("queueId"); q != "3" || h.QueueID != 3 || e.Lane != 3 {
		t.Errorf("reply %s, frame %d, lane %d", q, h.QueueID, e.Lane)
	}
}

func TestQueuesOfAStaticTopicAreTheBrokersToJudge(t *testing.T) {
	w := newWorld(t)
	e, _ := w.heldEntry(t, message{props: props{"DELAY": "3"}, queue: 17, change: func(h *codec.SendHeader) { h.BrokerName = "__syslo__global__" }})
	_, h, _ := heldHeader(t, e)
	if h.BrokerName != "__syslo__global__" || h.QueueID != 17 {
		t.Errorf("%+v", h)
	}
}

func TestTheClientsIPv4AddressIsWrittenAsSuch(t *testing.T) {
	w := newWorld(t)
	w.peer.remote = mustAddrPort("[::ffff:192.0.2.77]:1")
	e, _ := w.heldEntry(t, message{props: props{"DELAY": "3"}})
	_, _, p := heldHeader(t, e)
	if host, _ := p.Get("__BORNHOST"); host != "192.0.2.77" {
		t.Errorf("__BORNHOST %s", host)
	}
}

func TestWhatIsStoredDoesNotDependOnTheClientsBuffers(t *testing.T) {
	w := newWorld(t)
	w.view.cached = false // off the loop, where the frame has gone
	e, _ := w.heldEntry(t, message{props: props{"DELAY": "3"}, body: []byte(strings.Repeat("b", 5000))})
	c, _, _ := heldHeader(t, e)
	if string(c.Body) != strings.Repeat("b", 5000) {
		t.Error("the body was lost")
	}
}
