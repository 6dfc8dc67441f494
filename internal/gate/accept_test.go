package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/remoting"
)

const (
	v497 = 407
	v531 = 475
	v533 = 479
	v550 = 483
)

// The wanted answers are those of the brokers' own checks of a plain send (AbstractSendMessageProcessor.msgCheck, TopicValidator
// and CommitLog of 4.9.7, 5.3.1, 5.3.3 and 5.5.0).
func TestAcceptChecks(t *testing.T) {
	long := strings.Repeat("t", 128)
	longRetry := "%RETRY%" + strings.Repeat("g", 249)
	const (
		badQueue = "request queueId[4] is illegal, TopicConfig [topicName=orders, readQueueNums=4, writeQueueNums=4, perm=RW-] Producer: 192.0.2.9:54321"
		tooBig   = "13 the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, msg properties length limit 32KB."
		letters  = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
	)
	fill := func(n int) func(*codec.SendHeader) {
		return func(h *codec.SendHeader) {
			h.Properties += "pad\x01" + strings.Repeat("x", n-len(h.Properties)-5) + "\x02"
		}
	}
	for _, tc := range []struct {
		name    string
		m       message
		version int32
		setup   func(*fakeView)
		want    string
	}{
		{name: "A21 queue beyond the last, 4.9.7", m: message{queue: 4}, version: v497, want: "1 " + badQueue},
		{name: "A21 queue beyond the last, 5.3.1", m: message{queue: 4}, version: v531, want: "1 " + badQueue},
		{name: "A21 queue beyond the last, 5.3.3", m: message{queue: 4}, version: v533, want: "29 " + badQueue},
		{name: "A21 queue beyond the last, unknown version", m: message{queue: 4}, want: "29 " + badQueue},
		{name: "last queue", m: message{queue: 3}, version: v550, want: "held"},
		{name: "queue for reading only", m: message{queue: 3}, version: v550, want: "held",
			setup: func(v *fakeView) {
				v.topics["orders"] = upstream.Topic{Exists: true, Perm: 6, ReadQueues: 4, WriteQueues: 2}
			}},
		{name: "blank topic, 4.9.7", m: message{topic: " "}, version: v497, want: "1 The specified topic is blank."},
		{name: "blank topic, 5.5.0", m: message{topic: " "}, version: v550, want: "29 The specified topic is blank."},
		{name: "illegal letter, 4.9.7", m: message{topic: "a b"}, version: v497, want: "1 The specified topic " + letters},
		{name: "illegal letter, 5.3.3", m: message{topic: "a.b"}, version: v533, want: "29 The specified topic " + letters},
		{name: "illegal letter, 5.5.0", m: message{topic: "äb"}, version: v550, want: "29 The specified topic: äb, " + letters},
		{name: "long topic, 4.9.7", m: message{topic: long}, version: v497, want: "1 The specified topic is longer than topic max length."},
		{name: "long topic, 5.3.3", m: message{topic: long}, version: v533, want: "29 The specified topic is longer than topic max length."},
		{name: "long topic, 5.5.0", m: message{topic: long}, version: v550, want: "29 The specified topic: " + long + ", is longer than topic max length: 127"},
		{name: "long retry topic, 5.5.0", version: v550, m: func() message { m := retry(1, 16, 407); m.topic = longRetry; return m }(),
			want: "29 The specified topic is DLQ or Retry topic: " + longRetry + ", and it's longer than topic max length: 255"},
		{name: "retry topic of middle length, 5.5.0", version: v550, m: func() message { m := retry(1, 16, 407); m.topic = "%RETRY%" + long; return m }(),
			setup: func(v *fakeView) { v.topics["%RETRY%"+long] = rw(1) }, want: "held"},
		{name: "retry topic of middle length, 4.9.7", version: v497, m: func() message { m := retry(1, 16, 407); m.topic = "%RETRY%" + long; return m }(),
			want: "1 The specified topic is longer than topic max length."},
		{name: "largest body", m: message{body: make([]byte, 4<<20)}, version: v550, want: "held"},
		{name: "body over the limit", m: message{body: make([]byte, 4<<20+1)}, version: v550, want: tooBig},
		{name: "body over the limit, 4.9.7", m: message{body: make([]byte, 4<<20+1)}, version: v497, want: tooBig},
		{name: "no body, 4.9.7", m: message{body: []byte{}}, version: v497, want: "held"},
		{name: "no body, 5.5.0", m: message{body: []byte{}}, version: v550, want: tooBig},
		{name: "A26 properties without head-room", m: message{change: fill(32_700)}, version: v550, want: tooBig},
		{name: "properties over the limit", m: message{change: fill(40_000)}, version: v550, want: tooBig},
		{name: "properties with head-room", m: message{change: fill(32_300)}, version: v550, want: "held"},
		{name: "broker not writable", version: v550, setup: func(v *fakeView) { v.settings.BrokerPermission = 4 },
			want: "16 the broker[broker-a] sending message is forbidden"},
		{name: "topic not writable", version: v550, setup: func(v *fakeView) {
			v.topics["orders"] = upstream.Topic{Exists: true, Perm: 4, ReadQueues: 4, WriteQueues: 4}
		},
			want: "16 the topic[orders] on broker[broker-a] sending message is forbidden"},
		{name: "any queue of none", m: message{queue: -1}, version: v550,
			setup: func(v *fakeView) { v.topics["orders"] = upstream.Topic{Exists: true, Perm: 6, ReadQueues: 4} },
			want:  "1 the topic[orders] on broker[broker-a] has no queue to write to"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, cached := range []bool{true, false} {
				w := newWorld(t)
				w.view.cached, w.view.settings.Version = cached, tc.version
				if tc.setup != nil {
					tc.setup(w.view)
				}
				tc.m.props = props{"DELAY": "3"}
				got := outcome(t, w, tc.m)
				if short, _, isHeld := strings.Cut(got, " for "); isHeld && short == "held" {
					got = short
				}
				if got != tc.want {
					t.Errorf("cached %v: %s, want %s", cached, got, tc.want)
				}
				if cached && tc.m.topic == "" && w.view.asked > 0 {
					t.Error("the upstream was asked although everything is cached")
				}
			}
		})
	}
}

func TestA22ATopicIsCreatedAsTheBrokerWould(t *testing.T) {
	const faq4 = "17 topic[new] not exist, apply first please!\nSee http://rocketmq.apache.org/docs/faq/ for further details."
	const faq5 = "17 topic[new] not exist, apply first please!\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
	as := func(name string, queues int32) func(*codec.SendHeader) {
		return func(h *codec.SendHeader) { h.DefaultTopic, h.DefaultTopicQueueNums = name, queues }
	}
	for _, tc := range []struct {
		name    string
		m       message
		version int32
		setup   func(*fakeView)
		want    string
		created []createdTopic
	}{
		{name: "from TBW102", m: message{topic: "new"}, want: "held for 10000ms", created: []createdTopic{{"new", 4, 6}}},
		{name: "no more queues than TBW102 has", m: message{topic: "new", change: as(autoCreate, 99)}, want: "held for 10000ms", created: []createdTopic{{"new", 8, 6}}},
		{name: "from another topic that inherits", m: message{topic: "new", change: as("mother", 3)}, setup: func(v *fakeView) {
			v.topics["mother"] = upstream.Topic{Exists: true, Perm: 3, WriteQueues: 2}
		}, want: "held for 10000ms", created: []createdTopic{{"new", 2, 2}}},
		{name: "from one that does not", m: message{topic: "new", change: as("orders", 3)}, version: v497, want: faq4},
		{name: "from one that is not there", m: message{topic: "new", change: as("nothing", 3)}, version: v550, want: faq5},
		{name: "switched off", m: message{topic: "new"}, version: v550, setup: func(v *fakeView) { v.settings.AutoCreateTopic = false }, want: faq5},
		{name: "refused by the broker", m: message{topic: "new"}, version: v550, setup: func(v *fakeView) { v.createErr = &upstream.ReplyError{Code: 1, Remark: "no"} },
			want: faq5, created: []createdTopic{{"new", 4, 6}}},
		{name: "broker away", m: message{topic: "new"}, setup: func(v *fakeView) { v.createErr = errors.New("dial 127.7.7.7:10911: refused") },
			want:    "14 topic[new] does not exist on broker[broker-a] and cannot be created while the broker does not answer, try again",
			created: []createdTopic{{"new", 4, 6}}},
		{name: "queue that the new topic has not", m: message{topic: "new", queue: 5}, version: v497,
			want:    "1 request queueId[5] is illegal, TopicConfig [topicName=new, readQueueNums=4, writeQueueNums=4, perm=RW-] Producer: 192.0.2.9:54321",
			created: []createdTopic{{"new", 4, 6}}},
		{name: "a topic of no queue is not made", m: message{topic: "new", change: as(autoCreate, 0)}, version: v497,
			want: "1 request queueId[0] is illegal, TopicConfig [topicName=new, readQueueNums=0, writeQueueNums=0, perm=RW-] Producer: 192.0.2.9:54321"},
		{name: "retry topic", m: func() message {
			m := retry(1, 16, 407)
			m.topic = "%RETRY%new"
			m.change = both(m.change, as("nothing", 4))
			return m
		}(),
			want: "held for 10000ms", created: []createdTopic{{"%RETRY%new", 1, 6}}},
		{name: "retry topic, switched off", m: func() message { m := retry(1, 16, 407); m.topic = "%RETRY%new"; return m }(),
			setup: func(v *fakeView) { v.settings.AutoCreateTopic = false }, want: "held for 10000ms", created: []createdTopic{{"%RETRY%new", 1, 6}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.view.settings.Version = tc.version
			if tc.setup != nil {
				tc.setup(w.view)
			}
			tc.m.props = props{"DELAY": "3"}
			if got := outcome(t, w, tc.m); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if !slices.Equal(w.view.created, tc.created) {
				t.Errorf("created %v, want %v", w.view.created, tc.created)
			}
		})
	}
}

func both(f, g func(*codec.SendHeader)) func(*codec.SendHeader) {
	return func(h *codec.SendHeader) { f(h); g(h) }
}

func TestARefusalByTheDelayRulesCreatesNothing(t *testing.T) {
	w := newWorld(t)
	if got := outcome(t, w, message{topic: "new", props: props{"TIMER_DELAY_MS": "x"}}); !strings.HasPrefix(got, "13 ") {
		t.Error(got)
	}
	if w.view.created != nil || w.view.asked > 0 {
		t.Errorf("created %v, asked %d times", w.view.created, w.view.asked)
	}
}

func TestWhenTheUpstreamIsAway(t *testing.T) {
	delayed := message{props: props{"DELAY": "3"}}
	t.Run("nothing known: 14, no address told", func(t *testing.T) {
		w := newWorld(t)
		w.view.topicErr = errors.New("dial 127.7.7.7:9876: refused")
		if got := outcome(t, w, delayed); got != "14 topic[orders] cannot be checked while no name server answers, try again" {
			t.Error(got)
		}
	})
	t.Run("settings unknown: the defaults and the configured table", func(t *testing.T) {
		w := newWorld(t)
		w.view.settingsErr = errors.New("refused")
		if got := outcome(t, w, delayed); got != "held for 10000ms" {
			t.Error(got)
		}
	})
	t.Run("name servers went away after the topic was seen", func(t *testing.T) {
		w := newWorld(t)
		outcome(t, w, delayed)
		w.view.topicErr = errors.New("refused")
		if got := outcome(t, w, delayed); got != "held for 10000ms" {
			t.Error(got)
		}
	})
	t.Run("the broker went away and took its routes with it", func(t *testing.T) {
		for _, cached := range []bool{true, false} { // how the topic was seen
			w := newWorld(t)
			w.view.cached = cached
			outcome(t, w, delayed)
			w.view.cached = false
			w.view.topics = map[string]upstream.Topic{}
			if got := outcome(t, w, delayed); got != "held for 10000ms" {
				t.Error(got)
			}
			if w.view.created != nil {
				t.Errorf("created %v", w.view.created)
			}
		}
	})
	t.Run("the topic is known from a route alone", func(t *testing.T) {
		w := newWorld(t)
		clear(w.view.topics)
		w.face.answer = func(c *codec.Command, _ netip.AddrPort) *codec.Command {
			r := codec.NewReply(c.Head(), 0, "")
			r.Body = []byte(`{"brokerDatas":[{"brokerAddrs":{"0":"10.1.2.3:20000"},"brokerName":"broker-a","cluster":"DefaultCluster"}],` +
				`"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}`)
			return r
		}
		w.handle(t, w.peer, &codec.Command{Code: codec.ReqGetRouteInfoByTopic, Fields: codec.Fields{{Name: "topic", Value: "orders"}}})
		w.peer.reply(t)
		if got := outcome(t, w, delayed); got != "held for 10000ms" {
			t.Error(got)
		}
		delayed := delayed
		delayed.queue = 2
		if got := outcome(t, w, delayed); !strings.HasPrefix(got, "29 ") {
			t.Errorf("queue beyond the last: %s", got)
		}
	})
	t.Run("the topic was deleted", func(t *testing.T) {
		w := newWorld(t)
		outcome(t, w, delayed)
		delete(w.view.topics, "orders")
		delete(w.view.topics, autoCreate)
		if got := outcome(t, w, delayed); !strings.HasPrefix(got, "17 ") {
			t.Error(got)
		}
		clear(w.view.topics) // then the broker went away, too
		if got := outcome(t, w, delayed); got != "14 topic[orders] cannot be checked while broker[broker-a] is away, try again" {
			t.Error(got)
		}
	})
}

func TestManySendsWaitOnlyForTheirWorkers(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.CheckWorkers, o.Waiting = 2, 3 })
	w.view.cached = false
	hang := make(chan struct{})
	w.view.hang = hang
	const sends = 9
	for range sends {
		if v := w.send(t, message{props: props{"DELAY": "3"}}); v != remoting.Taken {
			t.Fatal(v)
		}
	}
	for range sends - 5 {
		if r := w.peer.reply(t); r.Code != codec.RespSystemBusy {
			t.Errorf("%d %s", r.Code, r.Remark)
		}
	}
	w.peer.silent(t)
	close(hang)
	for range 5 {
		if r := w.peer.reply(t); r.Code != codec.RespSuccess {
			t.Errorf("%d %s", r.Code, r.Remark)
		}
	}
}

func TestAFullWaitingRoomIsMeasuredInBytes(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.WaitingBytes = 100_000 })
	w.view.cached = false
	hang := make(chan struct{})
	w.view.hang = hang
	m := message{props: props{"DELAY": "3"}, body: make([]byte, 60_000)}
	w.send(t, m)
	w.send(t, m)
	if r := w.peer.reply(t); r.Code != codec.RespSystemBusy {
		t.Errorf("%d %s", r.Code, r.Remark)
	}
	close(hang)
	if r := w.peer.reply(t); r.Code != codec.RespSuccess {
		t.Errorf("%d %s", r.Code, r.Remark)
	}
}

func TestAFirstMessageOfManyCreatesTheTopicOnce(t *testing.T) {
	w := newWorld(t)
	hang := make(chan struct{})
	w.view.hang = hang
	m := message{topic: "new", props: props{"DELAY": "3"}}
	for range 20 {
		w.send(t, m)
	}
	close(hang)
	for range 20 {
		if r := w.peer.reply(t); r.Code != codec.RespSuccess {
			t.Errorf("%d %s", r.Code, r.Remark)
		}
	}
	for _, c := range w.view.created {
		if c != (createdTopic{"new", 4, 6}) {
			t.Errorf("created %v", c)
		}
	}
}

func TestAPanicOfAWorkerIsAnErrorForItsClientOnly(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Pick = func(int32) int32 { panic("broken") } })
	w.view.cached = false
	w.send(t, message{props: props{"DELAY": "3"}, queue: -1})
	if r := w.peer.reply(t); r.Code != codec.RespSystemError || strings.Contains(r.Remark, "broken") {
		t.Errorf("%d %s", r.Code, r.Remark)
	}
	if got := outcome(t, w, message{props: props{"DELAY": "3"}}); got != "held for 10000ms" {
		t.Error(got)
	}
}

func TestCloseWaitsForTheWorkersAndTakesNoMore(t *testing.T) {
	w := newWorld(t)
	w.view.cached = false
	hang := make(chan struct{})
	w.view.hang = hang
	w.send(t, message{props: props{"DELAY": "3"}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Close(ctx); err == nil {
		t.Error("closed while a worker ran")
	}
	w.send(t, message{props: props{"DELAY": "3"}})
	if r := w.peer.reply(t); r.Code != codec.RespSystemBusy {
		t.Errorf("%d %s", r.Code, r.Remark)
	}
	close(hang)
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if r := w.peer.reply(t); r.Code != codec.RespSuccess {
		t.Errorf("%d %s", r.Code, r.Remark)
	}
}

func TestNoUpstreamAddressInAnyRefusal(t *testing.T) {
	down := fmt.Errorf("dial tcp %s: connection refused", brokerAddr)
	for name, setup := range map[string]func(*fakeView){
		"topic":  func(v *fakeView) { v.topicErr = down },
		"create": func(v *fakeView) { v.createErr = down; delete(v.topics, "orders") },
		"refused": func(v *fakeView) {
			v.createErr = &upstream.ReplyError{Code: 16, Remark: "the broker[" + brokerAddr + "]"}
			delete(v.topics, "orders")
		},
		"permission": func(v *fakeView) { v.settings.BrokerPermission = 4 },
		"unknown":    func(v *fakeView) { clear(v.brokers) },
	} {
		w := newWorld(t)
		setup(w.view)
		w.send(t, message{props: props{"DELAY": "3"}})
		if frame := <-w.peer.replies; bytes.Contains(frame, []byte("127.7.7.7")) {
			t.Errorf("%s: %q", name, frame)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := topicMemory{max: 3, seen: map[topicKey]upstream.Topic{}}
	for i := range 10 {
		m.note("b", fmt.Sprint(i), rw(1))
	}
	if t9, ok := m.get("b", "9"); len(m.seen) != 3 || !ok || t9 != rw(1) {
		t.Errorf("%d topics, the last one %v", len(m.seen), ok)
	}
}
