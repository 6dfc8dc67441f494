package timer

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// counts is what Counts should say.
func (m *scanModel) counts(q Filter) []FlowCount {
	flows := map[Flow]map[int64]int64{}
	from, to := q.span()
	for k, e := range m.entries {
		h := hourOf(k.due)
		if !q.matches(e.Flow) || (h+1)*hourMs <= from.due || h*hourMs >= to.due {
			continue
		}
		if flows[e.Flow] == nil {
			flows[e.Flow] = map[int64]int64{}
		}
		flows[e.Flow][h*hourMs]++
	}
	var all []FlowCount
	for name, hours := range flows {
		c := FlowCount{Flow: name}
		for start, n := range hours {
			c.Hours = append(c.Hours, HourCount{start, n})
			c.Pending += n
		}
		slices.SortFunc(c.Hours, func(a, b HourCount) int { return int(a.Start - b.Start) })
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b FlowCount) int {
		if a.Flow.Topic+a.Flow.Broker < b.Flow.Topic+b.Flow.Broker {
			return -1
		}
		return 1
	})
	return all
}

func TestCountsAgainstAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newScanModel(rt)
		defer func() { m.s.Close() }()
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			m.putMany(m.rng.IntN(150))
			m.change()
			q := m.filter()
			got := slices.Collect(m.s.Counts(q))
			if want := m.counts(q); !cmp.Equal(got, want) {
				rt.Fatalf("%+v: %s", q, cmp.Diff(want, got))
			}
		}
	})
}

func TestCountsCanBeStopped(t *testing.T) {
	r := newRig(t)
	for _, topic := range []string{"c", "a", "b"} {
		if _, err := putWait(r.s, &Entry{Flow: Flow{"x", topic}, Due: rigNow}); err != nil {
			t.Fatal(err)
		}
	}
	for c := range r.s.Counts(Filter{}) {
		if c.Flow.Topic != "a" {
			t.Errorf("first comes %v", c.Flow)
		}
		if r.s.Stats().Pending != 3 { // the store is not locked meanwhile
			t.Error("not all are pending")
		}
		break
	}
	for range r.s.Counts(Filter{From: math.MinInt64, To: -1}) {
		t.Error("a flow with nothing in the range is counted")
	}
}

func TestCountsByHour(t *testing.T) {
	r := newRig(t)
	const hour = 500 * hourMs
	for _, due := range []int64{hour - 1, hour, hour, hour + hourMs - 1, hour + hourMs} {
		if _, err := putWait(r.s, &Entry{Flow: Flow{"x", "t"}, Due: due}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		q    Filter
		want []HourCount
	}{
		{Filter{}, []HourCount{{hour - hourMs, 1}, {hour, 3}, {hour + hourMs, 1}}},
		{Filter{From: hour, To: hour + hourMs}, []HourCount{{hour, 3}}},
		{Filter{From: hour - 1, To: hour + 1}, []HourCount{{hour - hourMs, 1}, {hour, 3}}},
		{Filter{From: hour + hourMs}, []HourCount{{hour + hourMs, 1}}},
	} {
		for c := range r.s.Counts(tc.q) {
			if !slices.Equal(c.Hours, tc.want) {
				t.Errorf("%+v: %v, want %v", tc.q, c.Hours, tc.want)
			}
		}
	}
}
