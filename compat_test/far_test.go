package compat_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/proxy"
	"github.com/delaygate/delaygate/compat_test/raw"
)

func TestAMessageOfFortyDaysComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	const ahead = 39*24*time.Hour + 23*time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := must(suite.newProxy("5.5.0", "far"))(t)
	shifted := must(suite.tools.GoBuild(ctx, "delaygate-compat-clockshift", "./cmd/proxy", append([]string{"-tags", "clockshift"}, raceFlags...)...))(t)
	c := must(suite.clusters["5.5.0"]())(t)
	const topic = "far-away"
	if err := createTopic(ctx, c, brokerA, topic, 1); err != nil {
		t.Fatal(err)
	}
	reader := raw.NewReader(c.Broker(brokerA).Addr, topic, 1)
	defer reader.Close()

	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	m := farMessage(topic, time.Now().Add(ahead).UnixMilli())
	sendVia(t, ctx, p, m)
	time.Sleep(2 * time.Second)
	if n, err := reader.Poll(ctx, func(*codec.StoredMessage) {}); n != 0 || err != nil {
		t.Fatalf("%d messages were delivered 40 days early (%v)", n, err)
	}
	if err := p.Stop(); err != nil {
		t.Fatalf("%v; its log:\n%s", err, p.Log())
	}

	p.Use(shifted)
	if err := p.Start(ctx, fmt.Sprintf("DELAYGATE_TEST_CLOCK_SHIFT=%v", ahead-3*time.Second)); err != nil {
		t.Fatal(err)
	}
	var got []codec.StoredMessage
	if err := reader.Until(ctx, func() bool { return len(got) > 0 }, func(m *codec.StoredMessage) { got = append(got, *m) }); err != nil {
		t.Fatalf("the message did not come: %v; the proxy's log:\n%s", err, p.Log())
	}
	checkFar(t, m, got[0])
	if err := p.Stop(); err != nil {
		t.Errorf("%v; its log:\n%s", err, p.Log())
	}
}

func farMessage(topic string, due int64) *raw.Message {
	body := make([]byte, 60_000)
	source := rand.NewChaCha8([32]byte{7})
	_, _ = source.Read(body)
	m := &raw.Message{Group: "pg-far", Topic: topic, Flag: 0x5A5A, Born: time.Now().UnixMilli() - 11, Body: body}
	for _, p := range [][2]string{
		{"KEYS", "order-1 order-2"}, {"TAGS", "TagFar"}, {codec.PropUniqKey, "7F07070700004E2A0C0D0E0F00112233"},
		{"city", "Köln"}, {"emoji", "⏰"}, {"TIMER_DELIVER_MS", fmt.Sprint(due)},
	} {
		m.Props.Set(p[0], p[1])
	}
	return m
}

func sendVia(t *testing.T, ctx context.Context, p *proxy.Proxy, m *raw.Message) {
	t.Helper()
	conn := must(raw.Dial(ctx, must(raw.MasterAddr(ctx, p.NameServer, brokerA))(t)))(t)
	defer conn.Close()
	if _, err := conn.Send(ctx, m); err != nil {
		t.Fatal(err)
	}
}

func checkFar(t *testing.T, m *raw.Message, got codec.StoredMessage) {
	t.Helper()
	if !bytes.Equal(got.Body, m.Body) || got.Topic != m.Topic || got.Flag != m.Flag || got.BornTimestamp != m.Born || got.QueueID != m.Queue {
		t.Errorf("the message changed: topic %s, flag %x, born %d, queue %d, body equal %v",
			got.Topic, got.Flag, got.BornTimestamp, got.QueueID, bytes.Equal(got.Body, m.Body))
	}
	props := codec.ParseProperties(got.Properties)
	for _, p := range m.Props {
		if v, ok := props.Get(p.Name); !ok || v != p.Value {
			t.Errorf("property %s: got %q, want %q", p.Name, v, p.Value)
		}
	}
}
