package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/delaygate/delaygate/compat_test/client"
	"github.com/delaygate/delaygate/compat_test/raw"
)

func TestADelayedSendCreatesItsTopicAtOnce(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		suite.whole[p.version].RLock()
		defer suite.whole[p.version].RUnlock()
		f := fixtureOf(t, p)
		const delay = 6 * time.Second
		topic := "new-" + p.String()
		s := f.send(t, client.Message{Topic: topic, DelayMs: delay.Milliseconds(), Tags: "T"})
		ctx, cancel := context.WithTimeout(t.Context(), delay-time.Second) // before the message is due
		defer cancel()
		for {
			if _, err := raw.Route(ctx, f.cluster.NameServer, topic); err == nil {
				break
			} else if ctx.Err() != nil {
				t.Fatalf("the topic is not there although a message for it was accepted: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		c := f.consume(t, client.ConsumerOptions{Name: "new-" + p.String(), Topic: topic})
		d := await(t, c, s)[0]
		checkContent(t, s, d)
		if p.holdsTimers() {
			checkDue(t, "delay ms", d, s.before+delay.Milliseconds(), s.after-s.before)
		}
	})
}
