package compat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delaygate/delaygate/compat_test/raw"
)

// A plain send is relayed, so its answer is the broker's own. What the broker refuses at once must be
// refused at once when it is delayed too, in the same words, and not when it becomes due.
func TestADelayedSendIsRefusedAsAPlainOne(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		ctx := t.Context()
		c := must(suite.clusters[version]())(t)
		addr := must(raw.MasterAddr(ctx, must(suite.target(version))(t), brokerA))(t)
		const topic = "checks"
		if err := createTopic(ctx, c, brokerA, topic, 4); err != nil {
			t.Fatal(err)
		}
		conn := must(raw.Dial(ctx, addr))(t)
		defer conn.Close()
		long := raw.Message{Topic: topic}
		long.Props.Set("long", strings.Repeat("x", 40_000))
		for _, tc := range []struct {
			name    string
			message raw.Message
		}{
			{"queue beyond the last", raw.Message{Topic: topic, Queue: 99}},
			{"topic with an illegal letter", raw.Message{Topic: "not a topic!"}},
			{"topic too long", raw.Message{Topic: strings.Repeat("t", 200)}},
			{"empty topic", raw.Message{}},
			{"topic of the level service", raw.Message{Topic: "SCHEDULE_TOPIC_XXXX"}},
			{"topic of half messages", raw.Message{Topic: "RMQ_SYS_TRANS_HALF_TOPIC"}},
			{"body over the limit", raw.Message{Topic: topic, Body: make([]byte, 4<<20+1)}},
			{"largest body", raw.Message{Topic: topic, Body: make([]byte, 4<<20-4096)}},
			{"properties over the limit", long},
		} {
			t.Run(tc.name, func(t *testing.T) {
				want := answer(ctx, conn, tc.message)
				for name, value := range map[string]string{"TIMER_DELAY_MS": "1000", "DELAY": "1"} {
					m := tc.message
					m.Props = slices.Clone(m.Props)
					m.Props.Set(name, value)
					if got := answer(ctx, conn, m); got != want {
						t.Errorf("with %s: %s, plain: %s", name, got, want)
					}
				}
				t.Log(want)
			})
		}
	})
}

// answer describes the reply to a send, without the broker's own description of the topic.
func answer(ctx context.Context, conn *raw.Conn, m raw.Message) string {
	if m.Body == nil {
		m.Body = []byte("x")
	}
	_, err := conn.Send(ctx, &m)
	var refused *raw.ReplyError
	if errors.As(err, &refused) {
		remark, _, _ := strings.Cut(refused.Remark, ", TopicConfig")
		return fmt.Sprintf("code %d %s", refused.Code, remark)
	}
	if err != nil {
		return err.Error()
	}
	return "accepted"
}

func TestANegativeQueueMeansAnyQueue(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		ctx := t.Context()
		c := must(suite.clusters[version]())(t)
		addr := must(raw.MasterAddr(ctx, must(suite.target(version))(t), brokerA))(t)
		const topic, queues = "any-queue", 4
		if err := createTopic(ctx, c, brokerA, topic, queues); err != nil {
			t.Fatal(err)
		}
		conn := must(raw.Dial(ctx, addr))(t)
		defer conn.Close()
		for _, delay := range []string{"", "1", "1"} {
			m := &raw.Message{Topic: topic, Queue: -1, Body: []byte("x")}
			m.Props.Set("DELAY", delay)
			reply := must(conn.Send(ctx, m))(t)
			text, _ := reply.Fields.Get("queueId")
			if q, err := strconv.Atoi(text); err != nil || q < 0 || q >= queues {
				t.Errorf("delay %q: the reply names queue %q", delay, text)
			}
		}
	})
}
