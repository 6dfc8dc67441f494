package gate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/remoting"
)

const timerRemark = "timer message illegal, the delay time should not be bigger than the max delay 3456000000ms; " +
	"or if set del msg, the delay time should be bigger than the current time"

type props = map[string]string

func ms(d int64) string { return strconv.FormatInt(nowMs+d, 10) }

// outcome says in one word what became of a send.
func outcome(t *testing.T, w *world, m message) string {
	t.Helper()
	before := len(w.store.all())
	if w.send(t, m) == remoting.Pass {
		return "relayed"
	}
	r := w.peer.reply(t)
	all := w.store.all()
	if r.Code != codec.RespSuccess {
		if len(all) != before {
			t.Error("refused and stored")
		}
		return fmt.Sprintf("%d %s", r.Code, r.Remark)
	}
	if len(all) != before+1 {
		t.Fatalf("%d entries", len(all)-before)
	}
	return fmt.Sprintf("held for %dms", all[before].Due-nowMs)
}

func TestDelayRules(t *testing.T) {
	nfe := func(s string) string { return `1 java.lang.NumberFormatException: For input string: "` + s + `"` }
	illegal := "13 " + timerRemark
	held := func(d int64) string { return fmt.Sprintf("held for %dms", d) }
	for _, tc := range []struct {
		name  string
		props props
		want  string
	}{
		{"no delay", nil, "relayed"},

		{"A1 level 1", props{"DELAY": "1"}, held(1000)},
		{"A1 level 3", props{"DELAY": "3"}, held(10_000)},
		{"A1 level 18", props{"DELAY": "18"}, held(7_200_000)},
		{"A2 level 0", props{"DELAY": "0"}, "relayed"},
		{"A2 level -1", props{"DELAY": "-1"}, "relayed"},
		{"A2 level 19", props{"DELAY": "19"}, held(7_200_000)},
		{"A2 level 100", props{"DELAY": "100"}, held(7_200_000)},
		{"A2 highest level", props{"DELAY": "2147483647"}, held(7_200_000)},
		{"A2 empty level", props{"DELAY": ""}, "relayed"},
		{"signed level", props{"DELAY": "+3"}, held(10_000)},
		{"A3 blank behind", props{"DELAY": "3 "}, nfe("3 ")},
		{"A3 a letter", props{"DELAY": "x"}, nfe("x")},
		{"A3 overflow", props{"DELAY": "2147483648"}, nfe("2147483648")},
		{"A3 fraction", props{"DELAY": "1.5"}, nfe("1.5")},

		{"A4 yesterday", props{"TIMER_DELIVER_MS": ms(-dayMs)}, "relayed"},
		{"A4 now", props{"TIMER_DELIVER_MS": ms(0)}, "relayed"},
		{"A4 negative", props{"TIMER_DELIVER_MS": "-5"}, "relayed"},
		{"A4 zero", props{"TIMER_DELIVER_MS": "0"}, "relayed"},
		{"A4 delay of nothing", props{"TIMER_DELAY_MS": "0"}, "relayed"},
		{"A4 negative delay", props{"TIMER_DELAY_SEC": "-1"}, "relayed"},
		{"A4 lowest delay", props{"TIMER_DELAY_SEC": "-9223372036854775808"}, "relayed"},
		{"next ms", props{"TIMER_DELIVER_MS": ms(1)}, held(1)},
		{"A5 exactly due", props{"TIMER_DELIVER_MS": ms(10_001)}, held(10_001)},
		{"A6 seconds first", props{"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "60000", "TIMER_DELIVER_MS": ms(3_600_000)}, held(5000)},
		{"A6 then ms", props{"TIMER_DELAY_MS": "60001", "TIMER_DELIVER_MS": ms(3_600_000)}, held(60_001)},
		{"past seconds hide the rest", props{"TIMER_DELAY_SEC": "0", "TIMER_DELIVER_MS": ms(3_600_000)}, "relayed"},
		{"A7 level beats timer", props{"DELAY": "2", "TIMER_DELIVER_MS": ms(3_600_000)}, held(5000)},
		{"A8 level beats garbage", props{"DELAY": "2", "TIMER_DELIVER_MS": "x"}, held(5000)},
		{"level 0 leaves the timer", props{"DELAY": "0", "TIMER_DELAY_MS": "7000"}, held(7000)},
		{"A9 garbage", props{"TIMER_DELIVER_MS": "x"}, illegal},
		{"A9 garbage ms", props{"TIMER_DELAY_MS": "12.5"}, illegal},
		{"A9 garbage seconds", props{"TIMER_DELAY_SEC": " 5"}, illegal},
		{"empty timer", props{"TIMER_DELIVER_MS": ""}, "relayed"},
		{"empty seconds count as absent", props{"TIMER_DELAY_SEC": "", "TIMER_DELAY_MS": "9000"}, held(9000)},
		{"A10 exactly the limit", props{"TIMER_DELIVER_MS": ms(maxMs)}, held(maxMs)},
		{"A10 limit in ms", props{"TIMER_DELAY_MS": strconv.FormatInt(maxMs, 10)}, held(maxMs)},
		{"A10 limit in seconds", props{"TIMER_DELAY_SEC": strconv.FormatInt(maxMs/1000, 10)}, held(maxMs)},
		{"A10 one ms more", props{"TIMER_DELIVER_MS": ms(maxMs + 1)}, illegal},
		{"A10 one ms more in ms", props{"TIMER_DELAY_MS": strconv.FormatInt(maxMs+1, 10)}, illegal},
		{"A10 41 days", props{"TIMER_DELAY_SEC": strconv.FormatInt(41*86400, 10)}, illegal},
		{"25 days, beyond 31 bits", props{"TIMER_DELAY_MS": strconv.FormatInt(25*dayMs, 10)}, held(25 * dayMs)},
		{"A11 overflowing seconds", props{"TIMER_DELAY_SEC": "9223372036854775807"}, illegal},
		{"A11 overflowing ms", props{"TIMER_DELAY_MS": "9223372036854775807"}, illegal},
		{"A11 highest time", props{"TIMER_DELIVER_MS": "9223372036854775807"}, illegal},
		{"no number of 64 bits", props{"TIMER_DELIVER_MS": "9223372036854775808"}, illegal},
		{"A12 fired once", props{"TIMER_DELIVER_MS": ms(60_000), "TIMER_OUT_MS": "1"}, "relayed"},
		{"a level holds a fired one", props{"DELAY": "1", "TIMER_OUT_MS": "1"}, held(1000)},
		{"A13 removal in the past", props{"TIMER_DELIVER_MS": ms(-1), "TIMER_DEL_UNIQKEY": "K"}, illegal},
		{"A14 removal to come", props{"TIMER_DELIVER_MS": ms(60_000), "TIMER_DEL_UNIQKEY": "K"},
			"13 timer message illegal, the proxy holds delayed messages itself and does not remove them by TIMER_DEL_UNIQKEY"},
		{"removal too far", props{"TIMER_DELIVER_MS": ms(maxMs + 1), "TIMER_DEL_UNIQKEY": "K"}, illegal},
		{"removal without timer is a plain property", props{"TIMER_DEL_UNIQKEY": "K"}, "relayed"},
		{"not honoured", props{"__STARTDELIVERTIME": ms(60_000)}, "relayed"},
		{"A25 rolls are ignored", props{"TIMER_DELAY_MS": "1000", "TIMER_ROLL_TIMES": "x"}, held(1000)},
		{"a word like DELAY in a value", props{"note": "DELAY"}, "relayed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, code := range []int32{codec.ReqSendMessage, codec.ReqSendMessageV2} {
				for _, binary := range []bool{false, true} {
					for _, version := range []int32{407, 483} { // of the broker: the rules are the same
						w := newWorld(t)
						w.view.settings.Version = version
						if got := outcome(t, w, message{props: tc.props, code: code, binary: binary}); got != tc.want {
							t.Errorf("code %d, broker %d: %s, want %s", code, version, got, tc.want)
						}
					}
				}
			}
		})
	}
}

func TestWhatIsNeverHeld(t *testing.T) {
	delayed := props{"DELAY": "3"}
	set := func(f func(*codec.SendHeader)) func(*codec.SendHeader) { return f }
	for _, tc := range []struct {
		name string
		m    message
		want string
	}{
		{"A15 A16 batch", message{props: delayed, change: set(func(h *codec.SendHeader) { h.Batch = true })}, "relayed"},
		{"inner batch", message{props: delayed, change: set(func(h *codec.SendHeader) { h.SysFlag = 0x80 })}, "relayed"},
		{"A18 half message by flag", message{props: delayed, change: set(func(h *codec.SendHeader) { h.SysFlag = 4 })}, "relayed"},
		{"A18 half message by property", message{props: props{"DELAY": "3", "TRAN_MSG": "true"}}, "relayed"},
		{"A18 half message with timer", message{props: props{"TIMER_DELAY_MS": "9", "TRAN_MSG": "TRUE"}}, "relayed"},
		{"half message with a bad level", message{props: props{"DELAY": "x", "TRAN_MSG": "true"},
			change: set(func(h *codec.SendHeader) { h.ReconsumeTimes = 1 })}, "relayed"},
		{"retry of an old client", message{props: props{"DELAY": "3", "TRAN_MSG": "true"}, topic: "%RETRY%g",
			change: set(func(h *codec.SendHeader) { h.ReconsumeTimes, h.MaxReconsumeTimes = 1, 16 })}, "held for 10000ms"},
		{"TRAN_MSG=false", message{props: props{"DELAY": "3", "TRAN_MSG": "false"}}, "held for 10000ms"},
		{"A23 schedule topic", message{props: delayed, topic: "SCHEDULE_TOPIC_XXXX"}, "relayed"},
		{"A23 half topic", message{props: delayed, topic: "RMQ_SYS_TRANS_HALF_TOPIC"}, "relayed"},
		{"A24 wheel topic", message{props: props{"TIMER_DELAY_MS": "5000"}, topic: "rmq_sys_wheel_timer"}, "16 Sending message to topic[rmq_sys_wheel_timer] is forbidden."},
		{"A24 wheel topic, past", message{props: props{"TIMER_DELIVER_MS": "1"}, topic: "rmq_sys_wheel_timer"}, "16 Sending message to topic[rmq_sys_wheel_timer] is forbidden."},
		{"other system topic", message{props: delayed, topic: "rmq_sys_REVIVE_LOG_c"}, "relayed"},
		{"trace topic", message{props: delayed, topic: "RMQ_SYS_TRACE_TOPIC"}, "relayed"},
		{"topic of the broker", message{props: delayed, topic: "broker-a"}, "relayed"},
		{"topic of the cluster", message{props: delayed, topic: "DefaultCluster"}, "relayed"},
		{"reply topic", message{props: delayed, topic: "DefaultCluster_REPLY_TOPIC"}, "relayed"},
		{"dead-letter queue", message{props: delayed, topic: "%DLQ%g"}, "relayed"},
		{"A31 retry below the limit", retry(15, 16, 407), "held for 10000ms"},
		{"A31 retry at the limit", retry(16, 16, 407), "relayed"},
		{"A31 retry past the limit", retry(17, 16, 407), "relayed"},
		{"A31 retry without a limit", retry(1, -1, 407), "relayed"},
		{"A31 limit of a client too old to have one", retry(1, 16, 120), "relayed"},
		{"retry of nothing", retry(-1, 16, 407), "held for 10000ms"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := outcome(t, newWorld(t), tc.m); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func retry(times, limit, version int32) message {
	return message{topic: "%RETRY%g", props: props{"DELAY": "3"}, version: version,
		change: func(h *codec.SendHeader) { h.ReconsumeTimes, h.MaxReconsumeTimes = times, limit }}
}

func TestASendToASlaveIsTheBrokersAffair(t *testing.T) {
	w := newWorld(t)
	slave := brokerA
	slave.ID = 1
	w.view.brokers[brokerAddr] = slave
	if got := outcome(t, w, message{props: props{"DELAY": "3"}}); got != "relayed" {
		t.Error(got)
	}
}

func TestADelayForAnUnknownBrokerIsNotLetThrough(t *testing.T) {
	w := newWorld(t)
	delete(w.view.brokers, brokerAddr)
	if got := outcome(t, w, message{props: props{"TIMER_DELAY_MS": "5000"}}); !strings.HasPrefix(got, "14 ") {
		t.Error(got)
	}
	if got := outcome(t, w, message{props: props{"TIMER_DELIVER_MS": "1"}}); got != "relayed" {
		t.Error(got)
	}
}

func TestTheTableOfTheBrokerDecides(t *testing.T) {
	w := newWorld(t)
	w.view.settings.MessageDelayLevel = "2s  4s 1d"
	for level, want := range map[string]string{"1": "held for 2000ms", "3": "held for 86400000ms", "18": "held for 86400000ms"} {
		if got := outcome(t, w, message{props: props{"DELAY": level}}); got != want {
			t.Errorf("level %s: %s, want %s", level, got, want)
		}
	}
	w.view.settings.MessageDelayLevel = "soon"
	if got := outcome(t, w, message{props: props{"DELAY": "1"}}); got != "held for 1000ms" {
		t.Errorf("with an unreadable table: %s", got)
	}
}

func TestTheLimitIsConfigured(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.MaxDelay = time.Hour })
	got := outcome(t, w, message{props: props{"TIMER_DELAY_SEC": "3601"}})
	if !strings.HasPrefix(got, "13 ") || !strings.Contains(got, "max delay 3600000ms") {
		t.Error(got)
	}
	if got := outcome(t, w, message{props: props{"TIMER_DELAY_SEC": "3600"}}); got != "held for 3600000ms" {
		t.Error(got)
	}
}

// HookUtils.transformTimerMessage of 5.3.3, on its example numbers.
func TestTimerOutIsFlooredLikeTheBrokers(t *testing.T) {
	for _, tc := range []struct{ due, precision, want int64 }{
		{10_000, 1000, 9000},
		{10_001, 1000, 10_000},
		{10_500, 1000, 10_000},
		{10_999, 1000, 10_000},
		{10_500, 100, 10_400},
		{10_501, 100, 10_500},
		{10_501, 0, 10_000}, // a broker that does not say
	} {
		if got := timerOut(tc.due, tc.precision); got != tc.want {
			t.Errorf("timerOut(%d, %d) = %d, want %d", tc.due, tc.precision, got, tc.want)
		}
	}
}
