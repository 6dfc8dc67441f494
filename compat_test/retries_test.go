package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/client"
	"github.com/delaygate/delaygate/compat_test/raw"
)

func TestAFailedMessageComesAgainAfterLevelThree(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		topic := f.ownTopic(t, "again", brokerA, 1)
		c := f.consume(t, client.ConsumerOptions{Name: "again-" + p.String(), Topic: topic, Fail: 1})
		s := f.send(t, client.Message{Topic: topic, Tags: "T", Keys: "k", Props: map[string]string{"color": "blue"}})
		all := awaitDeliveries(t, c, s, 2)
		for i, d := range all {
			checkContent(t, s, client.Delivery{
				Topic: d.Topic, Tags: d.Tags, Keys: d.Keys, Flag: d.Flag, Body: d.Body, BornTimestamp: d.BornTimestamp, Props: d.Props,
			})
			if d.ReconsumeTimes != i {
				t.Errorf("delivery %d says reconsumeTimes %d", i, d.ReconsumeTimes)
			}
		}
		checkGap(t, 1, all[0], all[1], 10)
		time.Sleep(2 * time.Second)
		if n := len(withKey(c.All(), s.UniqKey)); n != 2 {
			t.Errorf("%d deliveries, want 2", n)
		}
	})
}

func TestAMessageThatAlwaysFailsEndsInTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		suite.whole[p.version].RLock()
		defer suite.whole[p.version].RUnlock()
		const deliveries = 17
		topic := f.ownTopic(t, "fail", brokerB, 1)
		c := f.consume(t, client.ConsumerOptions{Name: "fail-" + p.String(), Topic: topic, Fail: -1})
		s := f.send(t, client.Message{Topic: topic, Tags: "T", Keys: "k"})
		all := awaitDeliveries(t, c, s, deliveries)
		for i, d := range all {
			if d.ReconsumeTimes != i {
				t.Errorf("delivery %d says reconsumeTimes %d", i, d.ReconsumeTimes)
			}
			if i > 0 {
				checkGap(t, i, all[i-1], d, shortLevels[i+1]) // the i-th retry waits level 2+i
			}
		}
		dead := readDeadLetters(t, f, "g-"+topic)
		if codec.ParseProperties(dead.Properties).String() == "" || uniqKey(dead) != s.UniqKey || string(dead.Body) != string(s.message.Body) {
			t.Errorf("the dead letter is another message: %+v", dead)
		}
		if n := len(withKey(c.All(), s.UniqKey)); n != deliveries {
			t.Errorf("%d deliveries, want %d", n, deliveries)
		}
	})
}

// awaitDeliveries waits until one message has been delivered n times.
func awaitDeliveries(t *testing.T, c *client.Consumer, s sent, n int) []client.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, err := c.Wait(ctx, func(all []client.Delivery) bool { return len(withKey(all, s.UniqKey)) >= n })
	got := withKey(all, s.UniqKey)
	if err != nil {
		t.Fatalf("%d deliveries of %d: %v", len(got), n, err)
	}
	return got[:n]
}

// checkGap fails when a retry came before its level's time has passed, or when it was stuck.
func checkGap(t *testing.T, n int, previous, next client.Delivery, seconds int) {
	t.Helper()
	gap := time.Duration(next.At-previous.At) * time.Millisecond
	want := time.Duration(seconds) * time.Second
	if gap < want || gap > want+sameMoment {
		t.Errorf("retry %d came after %v, want %v", n, gap, want)
	}
}

// readDeadLetters returns the one message of a group's dead-letter queue on brokerB.
func readDeadLetters(t *testing.T, f *fixture, group string) codec.StoredMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := raw.NewReader(f.cluster.Broker(brokerB).Addr, "%DLQ%"+group, 1)
	defer r.Close()
	var found []codec.StoredMessage
	err := r.Until(ctx, func() bool { return len(found) > 0 }, func(m *codec.StoredMessage) { found = append(found, *m) })
	if err != nil || len(found) != 1 {
		t.Fatalf("%d dead letters: %v", len(found), err)
	}
	return found[0]
}

func uniqKey(m codec.StoredMessage) string {
	v, _ := codec.ParseProperties(m.Properties).Get(codec.PropUniqKey)
	return v
}
