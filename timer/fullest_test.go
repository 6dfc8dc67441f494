package timer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// fullestOf asks until the answer is whole; each call reads at most that many pages.
func fullestOf(t fataler, s *Store, from, to int64, n, pages int) (top []SecondCount, calls int) {
	t.Helper()
	for {
		calls++
		v, err := s.openView(key{due: from}, key{due: to})
		if err != nil {
			t.Fatalf("%v", err)
		}
		part, err := v.fullest(from, to, n, pages)
		v.close()
		if err != nil {
			t.Fatalf("%v", err)
		}
		top = append(top, part.Seconds...)
		slices.SortFunc(top, fuller)
		top = top[:min(n, len(top))]
		if !part.More {
			if part.UpTo != to {
				t.Fatalf("the last answer ends at %d, not at %d", part.UpTo, to)
			}
			return top, calls
		}
		if part.UpTo <= from || part.UpTo >= to {
			t.Fatalf("up to %d of %d..%d", part.UpTo, from, to)
		}
		from = part.UpTo
	}
}

func (m *scanModel) fullest(from, to int64, n int) []SecondCount {
	seconds := map[int64]int64{}
	for k := range m.entries {
		if k.due >= from && k.due < to {
			seconds[secondOf(k.due)]++
		}
	}
	var top []SecondCount
	for s, c := range seconds {
		top = append(top, SecondCount{s * secondMs, c})
	}
	slices.SortFunc(top, fuller)
	return top[:min(n, len(top))]
}

func TestFullestSecondsAgainstAMap(t *testing.T) {
	resumed, leaps := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		m := newScanModel(rt)
		defer func() { m.s.Close() }()
		m.o.SegmentBytes = rapid.SampledFrom([]int64{16 << 10, 64 << 10}).Draw(rt, "segment")
		m.restart()
		m.spread = rapid.SampledFrom([]int64{100, 2000, 20_000}).Draw(rt, "spread")
		m.small = true
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			m.putMany(1 + m.rng.IntN(1500))
			m.settle(m.rng.Int64N(3*m.spread), m.rng.IntN(50))
			if rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
				m.restart()
			}
			from := m.clock.Load() + m.rng.Int64N(4*m.spread) - 2000
			to := from + m.rng.Int64N(12*m.spread)
			n := rapid.IntRange(1, 50).Draw(rt, "top")
			if rapid.Bool().Draw(rt, "sealed") {
				m.waitSealed()
			}
			want := m.fullest(from, to, n)
			for _, pages := range []int{1, 4, math.MaxInt} {
				got, calls := fullestOf(rt, m.s, from, to, n, pages)
				if !slices.Equal(got, want) {
					rt.Fatalf("%d..%d, %d pages: %v, want %v", from, to, pages, got, want)
				}
				if calls > 1 {
					resumed++
				}
			}
			if len(want) > 0 && want[0].Pending > 3*pageEntries {
				leaps++
			}
		}
	})
	t.Logf("%d answers in parts, %d with seconds of many pages", resumed, leaps)
	if resumed < 5 || leaps < 1 {
		t.Fatalf("%d answers in parts, %d with seconds of many pages: too few to say anything", resumed, leaps)
	}
}

func TestFullestReadsFewPagesOfAFullSecond(t *testing.T) {
	const n = 40_000
	r, run := sealedRun(t, n, func(i int) *Entry {
		due := int64(rigNow + 50_000)
		if i == 0 {
			due += 1000
		}
		return &Entry{Flow: Flow{"b", "t"}, Due: due, Key: fmt.Sprint(i)}
	})
	if run.pages < 50 {
		t.Fatalf("only %d pages", run.pages)
	}
	v, err := r.s.openView(key{}, lastKey)
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	c := cursor{run: run, s: r.s}
	if err := c.seek(key{due: rigNow}); err != nil {
		t.Fatal(err)
	}
	if err := c.leave(rigNow + 51_000); err != nil {
		t.Fatal(err)
	}
	if c.read > 20 || c.ord != run.entries && c.x.due < rigNow+51_000 {
		t.Fatalf("%d of %d pages were read to find the end of a second at %d of %d", c.read, run.pages, c.ord, run.entries)
	}
}

func TestCursorLeaves(t *testing.T) {
	const n = 10_000
	r, run := sealedRun(t, n, func(i int) *Entry {
		return &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 1_000_000 + int64(i), Key: fmt.Sprint(i)}
	})
	for step := 1; step < n; step += 1 + step/3 {
		c := cursor{run: run, s: r.s}
		if err := c.seek(key{due: rigNow}); err != nil {
			t.Fatal(err)
		}
		for at := step; at < n; at += step {
			if err := c.leave(rigNow + 1_000_000 + int64(at)); err != nil || c.ord != at || c.x.due != rigNow+1_000_000+int64(at) {
				t.Fatalf("step %d: at %d due %d, want %d: %v", step, c.ord, c.x.due, at, err)
			}
		}
		if err := c.leave(math.MaxInt64); err != nil || c.more || c.ord != run.entries {
			t.Fatalf("the end is at %d, more %v: %v", c.ord, c.more, err)
		}
	}
}

func TestFullestOfOddRanges(t *testing.T) {
	r := newRig(t)
	r.put(3, 1500, 10)
	for _, due := range []int64{-1, -1000, -1001, math.MaxInt64 - 1} {
		if _, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: due}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		from, to int64
		want     []SecondCount
	}{
		{rigNow + 1500, rigNow + 1501, []SecondCount{{rigNow + 1000, 3}}},
		{rigNow + 1501, rigNow + 2000, nil},
		{rigNow + 2000, rigNow, nil},
		{-5000, 0, []SecondCount{{-1000, 2}, {-2000, 1}}},
		{math.MinInt64, math.MaxInt64, []SecondCount{{rigNow + 1000, 3}, {-1000, 2}, {-2000, 1}, {math.MaxInt64 / 1000 * 1000, 1}}},
	} {
		for _, where := range []string{"segment", "run"} {
			got, err := r.s.Fullest(tc.from, tc.to, 4)
			if err != nil || !slices.Equal(got.Seconds, tc.want) || got.More {
				t.Errorf("%s: %d..%d: %+v, %v, want %v", where, tc.from, tc.to, got, err, tc.want)
			}
		}
	}
	for _, n := range []int{0, -1, maxFullest + 1} {
		if _, err := r.s.Fullest(0, 1, n); err == nil {
			t.Errorf("the %d fullest were given", n)
		}
	}
	r.s.Close()
	if _, err := r.s.Fullest(0, 1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}
