package compat_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/delaygate/delaygate/compat_test/client"
)

// delayed is one way to ask for a delay. Due is counted from the moment before the send, so the real due
// time lies between it and the same moment after the send.
type delayed struct {
	name    string
	message client.Message
	delayMs int64
	// due is an exact time, 0 when the delay is relative.
	due int64
	// keeps and drops are properties that the consumer sees, and must not see.
	keeps map[string]string
	drops []string
}

func TestLevelsFireAtTheirTime(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		cases := []delayed{
			{name: "level 1", message: client.Message{Level: 1}, delayMs: 1000},
			{name: "level 2", message: client.Message{Level: 2}, delayMs: 5000},
			{name: "level 3", message: client.Message{Level: 3}, delayMs: 10000},
			{name: "level 1, async", message: client.Message{Level: 1, Mode: client.Async}, delayMs: 1000},
			{name: "level 2, one-way", message: client.Message{Level: 2, Mode: client.OneWay}, delayMs: 5000},
			{name: "property DELAY", message: client.Message{Props: map[string]string{"DELAY": "2"}}, delayMs: 5000},
			{name: "level 0", message: client.Message{Props: map[string]string{"DELAY": "0"}}},
			{name: "level -1", message: client.Message{Props: map[string]string{"DELAY": "-1"}}},
		}
		runDelayed(t, p, cases)
	})
}

func TestTheBrokersOwnLevelTableRules(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		f := fixtureOf(t, p)
		suite.whole[p.version].RLock()
		defer suite.whole[p.version].RUnlock()
		topic := f.ownTopic(t, "table", brokerB, 1)
		c := f.consume(t, client.ConsumerOptions{Name: topic, Topic: topic})
		last := len(shortLevels)
		var all []sent
		levels := []int{4, 5, last, last + 1, 100, 2147483647} // above the end means the last
		for _, level := range levels {
			all = append(all, f.send(t, client.Message{Topic: topic, Level: level}))
		}
		for i, d := range await(t, c, all...) {
			delay := int64(shortLevels[min(levels[i], last)-1]) * 1000
			checkDue(t, fmt.Sprint("level ", levels[i]), d, all[i].before+delay, all[i].after-all[i].before)
		}
	})
}

func TestTimersFireAtTheirTime(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		fixtureOf(t, p) // may take long; due times count from here
		now := time.Now().UnixMilli()
		at := func(ms int64) client.Message { return client.Message{DeliverMs: now + ms} }
		property := func(pairs ...string) client.Message {
			m := client.Message{Props: map[string]string{}}
			for i := 0; i < len(pairs); i += 2 {
				m.Props[pairs[i]] = pairs[i+1]
			}
			return m
		}
		inTen := strconv.FormatInt(now+10007, 10)
		farAhead := strconv.FormatInt(now+3_600_000, 10)
		cases := []delayed{
			{name: "deliver time", message: at(9003), due: now + 9003, keeps: map[string]string{"TIMER_DELIVER_MS": fmt.Sprint(now + 9003)}},
			{name: "deliver time on the second", message: client.Message{DeliverMs: now/1000*1000 + 10000}, due: now/1000*1000 + 10000},
			{name: "delay ms", message: client.Message{DelayMs: 2345}, delayMs: 2345, keeps: map[string]string{"TIMER_DELAY_MS": "2345"}},
			{name: "delay seconds", message: client.Message{DelaySec: 3}, delayMs: 3000, keeps: map[string]string{"TIMER_DELAY_SEC": "3"}},
			{name: "one-way", message: client.Message{DelayMs: 2001, Mode: client.OneWay}, delayMs: 2001},
			{name: "property TIMER_DELIVER_MS", message: property("TIMER_DELIVER_MS", inTen), due: now + 10007},
			{name: "property TIMER_DELAY_MS", message: property("TIMER_DELAY_MS", "1501"), delayMs: 1501},
			{name: "property TIMER_DELAY_SEC", message: property("TIMER_DELAY_SEC", "2"), delayMs: 2000},
			{name: "seconds before ms before time", delayMs: 2000,
				message: property("TIMER_DELAY_SEC", "2", "TIMER_DELAY_MS", "60000", "TIMER_DELIVER_MS", farAhead)},
		}
		for i := range cases {
			cases[i].drops = []string{"DELAY"}
		}
		level := property("TIMER_DELIVER_MS", farAhead)
		level.Level = 1
		garbled := property("TIMER_DELIVER_MS", "tomorrow")
		garbled.Level = 1
		for _, m := range []client.Message{level, garbled} {
			c := delayed{name: "level before any timer", message: m, delayMs: 1000}
			if p.holdsTimers() {
				c.drops = []string{"TIMER_DELIVER_MS", "TIMER_OUT_MS"}
			}
			cases = append(cases, c)
		}
		if !p.holdsTimers() {
			for i := range cases {
				if cases[i].message.Level == 0 {
					cases[i].due, cases[i].delayMs = 0, 0
				}
			}
		}
		runDelayed(t, p, cases)
	})
}

func TestPastTimersAreDeliveredAtOnce(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		var cases []delayed
		yesterday := fmt.Sprint(time.Now().Add(-24 * time.Hour).UnixMilli())
		for _, props := range []map[string]string{
			{"TIMER_DELIVER_MS": yesterday}, {"TIMER_DELIVER_MS": "0"}, {"TIMER_DELIVER_MS": "-5"},
			{"TIMER_DELAY_MS": "0"}, {"TIMER_DELAY_MS": "-1000"}, {"TIMER_DELAY_SEC": "-1"},
		} {
			cases = append(cases, delayed{name: fmt.Sprint(props), message: client.Message{Props: props}, drops: []string{"TIMER_OUT_MS", "DELAY"}})
		}
		runDelayed(t, p, cases)
	})
}

func runDelayed(t *testing.T, p pair, cases []delayed) {
	t.Helper()
	f := fixtureOf(t, p)
	all := make([]sent, len(cases))
	for i, c := range cases {
		c.message.Tags, c.message.Keys, c.message.Flag = "T", c.name, 7
		c.message.Body = []byte(c.name)
		all[i] = f.send(t, c.message)
	}
	for i, d := range await(t, f.consumer, all...) {
		c, s := cases[i], all[i]
		m := s
		m.message.Props = c.keeps
		checkContent(t, m, d)
		due, slack := c.due, int64(0)
		if due == 0 {
			due, slack = s.before+c.delayMs, s.after-s.before
		}
		late := checkDue(t, c.name, d, max(due, s.before), slack)
		t.Logf("%s: %d ms after its time (the send took %d ms)", c.name, late, s.after-s.before)
		for _, name := range c.drops {
			if v, ok := d.Props[name]; ok {
				t.Errorf("%s: the consumer sees %s=%s", c.name, name, v)
			}
		}
	}
}
