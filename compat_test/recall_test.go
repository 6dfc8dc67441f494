package compat_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/raw"
)

// A message that was recalled is never stored by the broker; those beside it are, and cannot be recalled any more.
func TestARecalledMessageIsNotDelivered(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		ctx := t.Context()
		c := must(suite.clusters[version]())(t)
		addr := must(raw.MasterAddr(ctx, must(suite.target(version))(t), brokerA))(t)
		const topic = "recalled"
		if err := createTopic(ctx, c, brokerA, topic, 1); err != nil {
			t.Fatal(err)
		}
		conn := must(raw.Dial(ctx, addr))(t)
		defer conn.Close()
		recall := func(handle string) (string, error) {
			r, err := raw.Checked(conn.Call(ctx, raw.Request(codec.ReqRecallMessage, "producerGroup", "g", "topic", topic, "recallHandle", handle)))
			if err != nil {
				return "", err
			}
			id, _ := r.Fields.Get("msgId")
			return id, nil
		}
		handles := map[string]string{}
		for i, delay := range []string{"DELAY", "TIMER_DELAY_MS", "DELAY", "TIMER_DELAY_MS"} {
			m := &raw.Message{Topic: topic, Body: []byte("x")}
			m.Props.Set("UNIQ_KEY", fmt.Sprint("key", i))
			m.Props.Set(delay, map[string]string{"DELAY": "2", "TIMER_DELAY_MS": "5000"}[delay])
			r := must(conn.Send(ctx, m))(t)
			handle, _ := r.Fields.Get("recallHandle")
			handles[fmt.Sprint("key", i)] = handle
		}
		for _, again := range []string{"first", "again"} {
			for _, key := range []string{"key0", "key1"} {
				if id, err := recall(handles[key]); err != nil || id != key {
					t.Fatalf("%s recall of %s: %q, %v", again, key, id, err)
				}
			}
		}
		reader := raw.NewReader(addr, topic, 1)
		defer reader.Close()
		came := map[string]int{}
		note := func(m *codec.StoredMessage) {
			props := codec.ParseProperties(m.Properties)
			key, _ := props.Get("UNIQ_KEY")
			came[key]++
		}
		if err := reader.Until(ctx, func() bool { return came["key2"] > 0 && came["key3"] > 0 }, note); err != nil {
			t.Fatalf("%v; came: %v", err, came)
		}
		time.Sleep(2 * time.Second) // the recalled ones were due before those that came
		if _, err := reader.Poll(ctx, note); err != nil {
			t.Fatal(err)
		}
		if len(came) != 2 || came["key2"] != 1 || came["key3"] != 1 {
			t.Errorf("came: %v", came)
		}
		refused := (*raw.ReplyError)(nil)
		if _, err := recall(handles["key3"]); !errors.As(err, &refused) || refused.Code != codec.RespIllegalOperation {
			t.Errorf("recall of a delivered message: %v", err)
		}
	})
}
