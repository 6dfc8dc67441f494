package fakemq

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// awaitMessages waits for n messages of a topic.
func awaitMessages(t *testing.T, c *Cluster, topic string, n int) []Message {
	t.Helper()
	var list []Message
	await(t, strconv.Itoa(n)+" messages in "+topic, func() bool {
		list = c.Messages(topic)
		return len(list) >= n
	})
	return list
}

func TestDelayedMessagesComeBackInOrderAndNotEarly(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{DelayLevels: "1s 2s"})
	cl := dial(t, b.Addr())
	start := time.Now().UnixMilli()
	cl.mustSend(message{body: "timer 700", props: prop("TIMER_DELAY_MS", "700")})
	cl.mustSend(message{body: "level", props: prop("DELAY", "1"), queue: 1})
	cl.mustSend(message{body: "timer 300", props: prop("TIMER_DELIVER_MS", strconv.FormatInt(start+300, 10))})
	cl.mustSend(message{body: "timer 1200", props: prop("TIMER_DELAY_MS", "1200")})
	if n := b.PendingDelays(); n != 4 {
		t.Fatalf("%d held", n)
	}
	list := awaitMessages(t, c, "t", 4)
	if got := bodies(list); !slices.Equal(got, []string{"timer 300", "timer 700", "level", "timer 1200"}) {
		t.Errorf("order %q", got)
	}
	for i, after := range []int64{300, 700, 1000, 1200} {
		if at := list[i].StoreTimestamp; at < start+after {
			t.Errorf("%s: %d ms early", list[i].Body, start+after-at)
		}
	}
	level := list[2]
	for name, want := range map[string]string{"DELAY": "1", "REAL_TOPIC": "t", "REAL_QID": "1"} {
		if got, _ := level.Property(name); got != want {
			t.Errorf("level message: %s = %q, want %q", name, got, want)
		}
	}
	if level.QueueID != 1 {
		t.Errorf("level message in queue %d", level.QueueID)
	}
	for _, name := range []string{"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DELIVER_MS"} {
		if _, ok := list[0].Property(name); !ok {
			t.Errorf("timer message without %s", name)
		}
	}
}

func TestDelayRules(t *testing.T) {
	hour := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	past := strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10)
	v4 := BrokerOptions{Version: Version497}
	const now, held = "now", "held"
	for _, c := range []struct {
		name   string
		broker BrokerOptions
		props  codec.Properties
		want   string // now, held, or a response code
	}{
		{"no delay", BrokerOptions{}, nil, now},
		{"level 0", BrokerOptions{}, prop("DELAY", "0"), now},
		{"level -1", BrokerOptions{}, prop("DELAY", "-1"), now},
		{"level 3", BrokerOptions{}, prop("DELAY", "3"), held},
		{"level beyond the table", BrokerOptions{}, prop("DELAY", "99"), held},
		{"garbage level", BrokerOptions{}, prop("DELAY", "x"), "1"},
		{"level 3 on 4.9", v4, prop("DELAY", "3"), held},
		{"deliver in an hour", BrokerOptions{}, prop("TIMER_DELIVER_MS", hour), held},
		{"deliver in an hour on 4.9", v4, prop("TIMER_DELIVER_MS", hour), now},
		{"deliver in the past", BrokerOptions{}, prop("TIMER_DELIVER_MS", past), now},
		{"delay of seconds", BrokerOptions{}, prop("TIMER_DELAY_SEC", "60"), held},
		{"delay of no ms", BrokerOptions{}, prop("TIMER_DELAY_MS", "0"), now},
		{"garbage timer", BrokerOptions{}, prop("TIMER_DELAY_MS", "1e3"), "13"},
		{"garbage timer on 4.9", v4, prop("TIMER_DELAY_MS", "1e3"), now},
		{"too far", BrokerOptions{TimerMaxDelay: time.Minute}, prop("TIMER_DELIVER_MS", hour), "13"},
		{"already fired", BrokerOptions{}, codec.Properties{{Name: "TIMER_DELIVER_MS", Value: hour}, {Name: "TIMER_OUT_MS", Value: hour}}, now},
		{"level beats timer", BrokerOptions{}, codec.Properties{{Name: "DELAY", Value: "1"}, {Name: "TIMER_DELAY_MS", Value: "bad"}}, held},
		{"seconds beat ms", BrokerOptions{}, codec.Properties{{Name: "TIMER_DELAY_MS", Value: "bad"}, {Name: "TIMER_DELAY_SEC", Value: "60"}}, held},
		{"delete marker for the past", BrokerOptions{}, codec.Properties{{Name: "TIMER_DELIVER_MS", Value: past}, {Name: "TIMER_DEL_UNIQKEY", Value: "k"}}, "13"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster, b := startBroker(t, c.broker)
			reply := dial(t, b.Addr()).send(message{props: c.props})
			got := strconv.Itoa(int(reply.Code))
			switch {
			case reply.Code != codec.RespSuccess:
			case b.PendingDelays() == 1 && len(cluster.Messages("t")) == 0:
				got = held
			case b.PendingDelays() == 0 && len(cluster.Messages("t")) == 1 && cluster.Count(timerTopic)+cluster.Count(scheduleTopic) == 0:
				got = now
			}
			if got != c.want {
				t.Errorf("got %s (%s), want %s", got, reply.Remark, c.want)
			}
		})
	}
}

func TestLoopIsWokenOnlyForAnEarlierDueTime(t *testing.T) {
	c := &Cluster{opts: Options{}.withDefaults()}
	b, err := newBroker(c, BrokerOptions{}.withDefaults(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		due  int64
		want int
	}{{1000, 1}, {2000, 0}, {1000, 0}, {500, 1}} {
		b.schedule(step.due, codec.StoredMessage{})
		if got := len(b.earlier); got != step.want {
			t.Errorf("due %d: %d wake-ups, want %d", step.due, got, step.want)
		}
		if len(b.earlier) > 0 {
			<-b.earlier
		}
	}
}

func TestHeldMessageIsVisibleWhereABrokerKeepsIt(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	reply := cl.mustSend(message{queue: 3, props: prop("DELAY", "20")})
	if number(t, reply, "queueId") != 3 {
		t.Errorf("queueId %v", reply.Fields)
	}
	list := c.Messages("SCHEDULE_TOPIC_XXXX")
	if len(list) != 1 || list[0].QueueID != 17 {
		t.Fatalf("schedule topic: %+v", list)
	}
	if level, _ := list[0].Property("DELAY"); level != "18" {
		t.Errorf("DELAY %s", level)
	}
}

func TestDelayDueWhileTheBrokerIsDownComesAfterRestart(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	dial(t, b.Addr()).mustSend(message{body: "x", props: prop("TIMER_DELAY_MS", "50")})
	b.Stop()
	time.Sleep(80 * time.Millisecond)
	if n := len(c.Messages("t")); n != 0 {
		t.Fatalf("%d messages fired by a stopped broker", n)
	}
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	awaitMessages(t, c, "t", 1)
}
