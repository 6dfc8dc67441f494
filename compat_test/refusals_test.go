package compat_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/delaygate/delaygate/compat_test/client"
)

const (
	codeSystemError    = 1
	codeMessageIllegal = 13
	fortyDaysMs        = int64(40 * 24 * time.Hour / time.Millisecond)
	remarkTimer        = "timer message illegal, the delay time should not be bigger than the max delay 3456000000ms; " +
		"or if set del msg, the delay time should be bigger than the current time"
)

func TestIllegalDelaysAreRefusedWithTheNativeAnswer(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		tooFar := fmt.Sprint(time.Now().UnixMilli() + fortyDaysMs + time.Hour.Milliseconds())
		timers := []map[string]string{
			{"TIMER_DELIVER_MS": "abc"}, {"TIMER_DELIVER_MS": "1e3"}, {"TIMER_DELAY_MS": "12.5"}, {"TIMER_DELAY_SEC": " 5"},
			{"TIMER_DELIVER_MS": tooFar}, {"TIMER_DELIVER_MS": "9223372036854775807"}, {"TIMER_DELIVER_MS": "9223372036854775808"},
			{"TIMER_DELAY_MS": fmt.Sprint(fortyDaysMs + 60_000)}, {"TIMER_DELAY_SEC": fmt.Sprint(fortyDaysMs/1000 + 60)},
		}
		if !suite.direct { // a broker lets the sum overflow and delivers at once
			timers = append(timers, map[string]string{"TIMER_DELAY_SEC": "9223372036854775807"}, map[string]string{"TIMER_DELAY_MS": "9223372036854775807"})
		}
		for _, props := range timers {
			for _, mode := range []client.Mode{client.Sync, client.Async} {
				_, err := f.trySend(t, client.Message{Props: props, Mode: mode, Keys: "refused"})
				if p.holdsTimers() {
					checkRefusal(t, fmt.Sprint(props, mode), err, codeMessageIllegal, remarkTimer)
				} else if err != nil {
					t.Errorf("%v: %v", props, err)
				}
			}
		}
		for _, level := range []string{"abc", "3 ", "2147483648", "1.5"} {
			_, err := f.trySend(t, client.Message{Props: map[string]string{"DELAY": level}, Keys: "refused"})
			checkRefusal(t, "DELAY="+level, err, codeSystemError, "NumberFormatException")
		}
		if !p.holdsTimers() {
			return
		}
		await(t, f.consumer, f.send(t, client.Message{})) // later than any refused one that had been let through
		for _, d := range f.consumer.All() {
			if d.Keys == "refused" {
				t.Errorf("a refused message was delivered: %+v", d)
			}
		}
	})
}

func checkRefusal(t *testing.T, what string, err error, code int, remark string) {
	t.Helper()
	var refused *client.Error
	if !errors.As(err, &refused) {
		t.Errorf("%s: got %v, want code %d", what, err, code)
		return
	}
	if refused.Code != code || !strings.Contains(refused.Remark, remark) {
		t.Errorf("%s: got code %d %q (%s), want code %d with %q", what, refused.Code, refused.Remark, refused.Text, code, remark)
	}
}

func TestTheLongestDelayIsAccepted(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		topic := f.ownTopic(t, "far", brokerA, 1)
		for _, m := range []client.Message{
			{DeliverMs: time.Now().UnixMilli() + fortyDaysMs},
			{DelayMs: fortyDaysMs},
			{DelaySec: fortyDaysMs / 1000},
			{DelayMs: 25 * 24 * time.Hour.Milliseconds()}, // beyond 31 bits of milliseconds
		} {
			m.Topic = topic
			f.send(t, m)
		}
	})
}
