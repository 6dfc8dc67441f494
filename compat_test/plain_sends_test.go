package compat_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/delaygate/delaygate/compat_test/client"
)

func TestPlainSendsArriveOnceAndUnchanged(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		var all []sent
		for _, mode := range []client.Mode{client.Sync, client.Async, client.OneWay} {
			for i := range 5 {
				all = append(all, f.send(t, client.Message{
					Mode: mode, Tags: "TagA", Keys: fmt.Sprintf("%s-%d", mode, i), Flag: int32(i),
					Body:  []byte(strings.Repeat(fmt.Sprintf("%s %d ", mode, i), 10*i+1)),
					Props: map[string]string{"color": "bläulich", "number": fmt.Sprint(i)},
				}))
			}
		}
		big := f.send(t, client.Message{Body: []byte(strings.Repeat("0123456789abcdef", 20000))})
		all = append(all, big)
		for i, d := range await(t, f.consumer, all...) {
			checkContent(t, all[i], d)
			checkDue(t, "plain message", d, all[i].before, 0)
			if mode := all[i].message.Mode; mode != client.OneWay && d.QueueOffset != all[i].QueueOffset {
				t.Errorf("%s: the result says queue offset %d, the message has %d", mode, all[i].QueueOffset, d.QueueOffset)
			}
		}
	})
}

func TestSendResultsAreComplete(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		queue := 3
		for _, m := range []client.Message{
			{},
			{Mode: client.Async},
			{Level: 1},
			{Level: 1, Mode: client.Async},
			{DelayMs: 1000},
			{Level: 1, Broker: brokerA, Queue: &queue},
			{DelaySec: 1, Broker: brokerA, Queue: &queue, Mode: client.Async},
		} {
			s := f.send(t, m)
			if s.MsgID == "" || s.MsgID != s.UniqKey {
				t.Errorf("%v: msgId %q, UNIQ_KEY %q", m, s.MsgID, s.UniqKey)
			}
			if len(s.OffsetMsgID) != 32 || s.Broker != brokerA || s.QueueID < 0 || s.QueueID > 3 || s.QueueOffset < 0 || s.RegionID != "DefaultRegion" {
				t.Errorf("%v: incomplete result %+v", m, s.Result)
			}
			if m.Queue != nil && s.QueueID != queue {
				t.Errorf("%v: the result names queue %d", m, s.QueueID)
			}
			await(t, f.consumer, s)
		}
	})
}
