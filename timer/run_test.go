package timer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// However the due times lie, each entry of a run is found, and what is not in it is not.
func TestFindInRun(t *testing.T) {
	const n, hour = 3000, 3600_000
	rng := rand.New(rand.NewPCG(3, 4))
	for name, due := range map[string]func(i int) int64{
		"even":          func(i int) int64 { return rigNow + hour + int64(i)*7 },
		"one moment":    func(int) int64 { return rigNow + hour },
		"two moments":   func(i int) int64 { return rigNow + hour + int64(i%2)*40*24*hour },
		"random":        func(int) int64 { return rigNow + hour + rng.Int64N(1000) },
		"doubling":      func(i int) int64 { return rigNow + hour + int64(math.Pow(1.008, float64(i))) },
		"all of time":   func(i int) int64 { return [3]int64{-1 << 62, 1<<62 + int64(i), rigNow + hour}[i%3] },
		"one far ahead": func(i int) int64 { return rigNow + hour + int64(i/(n-1))*1e15 },
	} {
		t.Run(name, func(t *testing.T) {
			dues := make([]int64, n)
			for i := range dues {
				dues[i] = due(i)
			}
			_, r := sealedRun(t, n, func(i int) *Entry { return &Entry{Flow: Flow{"b", "t"}, Due: dues[i]} })
			if r.pages < n/pageEntries {
				t.Fatalf("%d pages", r.pages)
			}
			for i, d := range dues {
				lsn := r.minLSN + LSN(i)
				_, x, ok, err := r.find(key{d, lsn})
				if err != nil || !ok || x.key() != (key{d, lsn}) {
					t.Fatalf("entry %d, lsn %d due %d: %+v, %v, %v", i, lsn, d, x, ok, err)
				}
				if _, x, ok, err := r.find(key{d, lsn + 1<<30}); ok || err != nil {
					t.Fatalf("lsn %d due %d was found: %+v, %v", lsn+1<<30, d, x, err)
				}
			}
			for _, d := range []int64{math.MinInt64, r.minDue - 1, r.maxDue + 1, math.MaxInt64} {
				if _, x, ok, err := r.find(key{d, r.minLSN}); ok || err != nil {
					t.Fatalf("due %d was found: %+v, %v", d, x, err)
				}
			}
		})
	}
}
