package timer

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"
)

func TestHourCounts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	edges := []int64{hourOf(math.MinInt64), hourOf(math.MaxInt64), -1, 0, 31, 32, -32, -33}
	c, want := hourCounts{}, map[int64]int64{}
	check := func() {
		t.Helper()
		if got := maps.Collect(c.all()); !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	for range 2000 {
		hour := rng.Int64N(200) - 100
		if rng.IntN(4) == 0 {
			hour = edges[rng.IntN(len(edges))]
		}
		n := rng.Int64N(3) - 1
		c.add(hour, n)
		if want[hour] += n; want[hour] == 0 {
			delete(want, hour)
		}
		check()
	}
	for hour, n := range want {
		c.add(hour, -n)
	}
	clear(want)
	check()
	if len(c) != 0 {
		t.Errorf("%d blocks are left of no counts", len(c))
	}
}

func TestHourOf(t *testing.T) {
	for due, want := range map[int64]int64{0: 0, hourMs - 1: 0, hourMs: 1, -1: -1, -hourMs: -1, -hourMs - 1: -2} {
		if got := hourOf(due); got != want {
			t.Errorf("hour of %d: %d, want %d", due, got, want)
		}
	}
}
