package compat_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/client"
	"github.com/delaygate/delaygate/compat_test/raw"
)

// differs lists the properties in which a message held by the proxy may differ from one that a native 5.5.0
// broker held. Outside the properties only bornHost, storeHost, storeTimestamp, and the offsets and ids made
// of them, may.
var differs = []string{"DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "__BORNHOST"}

// own49 are properties that only brokers of 5.x store, whatever the proxy does: 4.9 adds neither region nor
// trace switch, and strips WAIT.
var own49 = []string{"MSG_REGION", "TRACE_ON", "WAIT"}

// clientOwn are properties that a client library adds on arrival, from offsets and its own clock.
var clientOwn = []string{"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}

// seen is what an application sees of a message, without what may differ.
type seen struct {
	Tags, Keys, UniqKey string
	Body                string
	Flag, SysFlag       int32
	BornTimestamp       int64
	QueueID             int
	ReconsumeTimes      int
	Props               map[string]string
}

// view drops what may differ on a cluster of the given version.
func view(d client.Delivery, version string) seen {
	v := seen{
		Tags: d.Tags, Keys: d.Keys, UniqKey: d.UniqKey, Body: string(d.Body), Flag: d.Flag, SysFlag: d.SysFlag,
		BornTimestamp: d.BornTimestamp, QueueID: d.QueueID, ReconsumeTimes: d.ReconsumeTimes, Props: maps.Clone(d.Props),
	}
	names := slices.Concat(differs, clientOwn)
	if strings.HasPrefix(version, "4.") {
		names = append(names, own49...)
	}
	for _, name := range names {
		delete(v.Props, name)
	}
	return v
}

func TestConsumersSeeWhatANativeBrokerGives(t *testing.T) {
	t.Parallel()
	for _, kind := range clientKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			native := nativeFixture(t, kind)
			for _, version := range []string{"5.5.0", "4.9.7"} {
				t.Run(version, func(t *testing.T) {
					t.Parallel()
					compareWithNative(t, native, fixtureOf(t, pair{kind, version}))
				})
			}
		})
	}
}

// nativeFixture is a client of the 5.5.0 brokers without a proxy between.
func nativeFixture(t *testing.T, kind string) *fixture {
	t.Helper()
	p := pair{kind, "5.5.0"}
	f := &fixture{pair: p}
	f.cluster = must(suite.clusters[p.version]())(t)
	f.driver = must(suite.drivers[kind]())(t)
	f.nameServer = f.cluster.NameServer
	f.producer = must(f.driver.NewProducer(t.Context(), f.nameServer, "native-"+p.String()))(t)
	return f
}

func compareWithNative(t *testing.T, native, proxied *fixture) {
	side := func(f *fixture, role string) (*client.Consumer, string) {
		topic := f.ownTopic(t, role+"-for-"+proxied.version[:1], brokerA, 4)
		return f.consume(t, client.ConsumerOptions{Name: topic, Topic: topic}), topic
	}
	theirs, theirTopic := side(native, "native")
	ours, ourTopic := side(proxied, "proxied")
	queue := 1
	now := time.Now().UnixMilli()
	var want, got []sent
	for i, m := range comparedMessages(now) {
		m.Keys = fmt.Sprintf("case%d", i)
		m.Props["UNIQ_KEY"] = fmt.Sprintf("7F0707070000AA%s%014d", strconv.FormatInt(now, 16)[7:], i)
		m.Broker, m.Queue = brokerA, &queue
		m.Topic = theirTopic
		want = append(want, native.send(t, m))
		m.Topic = ourTopic
		got = append(got, proxied.send(t, m))
	}
	theirDeliveries, ourDeliveries := await(t, theirs, want...), await(t, ours, got...)
	for i := range want {
		if strings.HasPrefix(proxied.version, "4.") {
			delete(got[i].message.Props, "WAIT") // a 4.x broker strips it from what it stores
		}
		checkContent(t, got[i], ourDeliveries[i])
		compareViews(t, got[i].message, view(theirDeliveries[i], proxied.version), view(ourDeliveries[i], proxied.version))
	}
	compareRaw(t, native, proxied, theirTopic, ourTopic, theirs, ours)
}

func comparedMessages(now int64) []client.Message {
	props := func() map[string]string { return map[string]string{"color": "grün", "empty-looking": " ", "n": "1"} }
	all := []client.Message{
		{}, {Tags: "T"}, {Flag: 9}, {Tags: "T", Level: 1}, {Level: 2}, {DelayMs: 1500}, {DelaySec: 2},
		{DeliverMs: now + 6007}, {DeliverMs: (now/1000 + 7) * 1000}, {Tags: "T", DeliverMs: now + 5000, Flag: 77},
		{Level: 1, DeliverMs: now + 3_600_000},
		{Body: []byte(strings.Repeat("long enough to be compressed ", 500)), DelayMs: 1200},
	}
	for i := range all {
		all[i].Props = props()
		if all[i].Body == nil {
			all[i].Body = []byte{0, 1, 2, 0xff, byte(i)}
		}
	}
	all[4].Props["WAIT"] = "false"
	all[9].Props["__SHARDINGKEY"] = "customer-7"
	return all
}

// compareViews compares two deliveries of the same send. The two were sent one after the other, so what is
// counted from the send may differ by the time between.
func compareViews(t *testing.T, m client.Message, want, got seen) {
	t.Helper()
	want.BornTimestamp, got.BornTimestamp = 0, 0 // compared with the send itself, and exactly for raw sends
	if m.DelayMs > 0 || m.DelaySec > 0 {
		w, werr := strconv.ParseInt(want.Props["TIMER_OUT_MS"], 10, 64)
		g, gerr := strconv.ParseInt(got.Props["TIMER_OUT_MS"], 10, 64)
		if werr != nil || gerr != nil || g < w || g > w+sameMoment.Milliseconds() {
			t.Errorf("%s: delivery time %q, native %q", m.Keys, got.Props["TIMER_OUT_MS"], want.Props["TIMER_OUT_MS"])
		}
		delete(want.Props, "TIMER_OUT_MS")
		delete(got.Props, "TIMER_OUT_MS")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s, sent as %v: native (-) and proxied (+) differ:\n%s", m.Keys, m, diff)
	}
}

// compareRaw sends frames that are equal in every byte but the topic, to both.
func compareRaw(t *testing.T, native, proxied *fixture, theirTopic, ourTopic string, theirs, ours *client.Consumer) {
	t.Helper()
	now := time.Now().UnixMilli()
	send := func(f *fixture, topic string) []sent {
		conn := must(raw.Dial(t.Context(), must(raw.MasterAddr(t.Context(), f.nameServer, brokerA))(t)))(t)
		defer conn.Close()
		var all []sent
		for i, p := range [][2]string{{"", ""}, {"DELAY", "1"}, {"TIMER_DELIVER_MS", fmt.Sprint(now + 4321)}, {"TIMER_DELIVER_MS", fmt.Sprint(now - 1)}} {
			m := &raw.Message{Topic: topic, Queue: 3, Flag: -1, Born: now - 12345, Body: []byte{byte(i), 0}}
			m.Props.Set("KEYS", fmt.Sprintf("raw%d", i))
			m.Props.Set("TAGS", "raw")
			m.Props.Set(codec.PropUniqKey, fmt.Sprintf("RAW%d%027d", i, now))
			if p[0] != "" {
				m.Props.Set(p[0], p[1])
			}
			if _, err := conn.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			all = append(all, sent{Result: client.Result{UniqKey: fmt.Sprintf("RAW%d%027d", i, now)}})
		}
		return all
	}
	wanted, sent := send(native, theirTopic), send(proxied, ourTopic)
	want, got := await(t, theirs, wanted...), await(t, ours, sent...)
	for i := range want {
		if diff := cmp.Diff(view(want[i], proxied.version), view(got[i], proxied.version)); diff != "" {
			t.Errorf("raw send %d: native (-) and proxied (+) differ:\n%s", i, diff)
		}
	}
}
