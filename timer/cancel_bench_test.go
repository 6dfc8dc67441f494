package timer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkCancel cancels half of what is pending, in random order, at most benchWindow unanswered: from unsealed
// segments, and from runs.
func BenchmarkCancel(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		name := "segments"
		if sealed {
			name = "runs"
		}
		b.Run(name, func(b *testing.B) {
			l := newLoad(benchBodies[0])
			s, disk := openCounting(b, filepath.Join(b.TempDir(), "store"), l.now)
			defer s.Close()
			half := l.putKeys(b, s, 2*b.N)
			if sealed {
				for seals := s.Stats().Seals; s.Stats().Seals == seals; { // what is open gets full and sealed
					l.put(b, s, 10_000)
				}
				waitSealed(s)
			}
			rand.Shuffle(len(half), func(i, j int) { half[i], half[j] = half[j], half[i] })
			half = half[:b.N]
			before := s.Stats()
			written := disk.bytes.Load()
			var a sides
			b.ResetTimer()
			a.measure(b.N, func() { l.cancel(b, s, half) })
			b.StopTimer()
			after := s.Stats()
			if n := after.Cancelled; n != int64(b.N) || after.Pending != before.Pending-n {
				b.Fatalf("%d cancelled, %d of %d are left", n, after.Pending, before.Pending)
			}
			b.ReportMetric(a.cpu.Seconds()*1e6/float64(b.N), "us-cpu/cancel")
			b.ReportMetric(float64(disk.bytes.Load()-written)/float64(b.N), "written-B/cancel")
		})
	}
}

// putKeys puts n entries and returns their keys.
func (l *load) putKeys(b *testing.B, s *Store, n int) []key {
	keys := make([]key, 0, n)
	due := l.due
	l.due = func(i int) int64 {
		at := due(i)
		keys = append(keys, key{due: at})
		return at
	}
	first := s.Stats().LastLSN + 1
	l.put(b, s, n)
	l.due = due
	for i := range keys {
		keys[i].lsn = first + LSN(i)
	}
	return keys
}

func (l *load) cancel(b *testing.B, s *Store, keys []key) {
	x := newAnswers()
	done := func(out Outcome, err error) {
		if out != Cancelled || err != nil {
			b.Errorf("%v, %v", out, err)
		}
		x.add()
	}
	for i, k := range keys {
		x.wait(i - benchWindow)
		s.Cancel(k.due, k.lsn, done)
	}
	x.wait(len(keys))
}

// BenchmarkFind looks for unique and business keys of random entries; TIMER_PENDING says among how many, default 200000.
func BenchmarkFind(b *testing.B) {
	pending := 200_000
	if text := os.Getenv("TIMER_PENDING"); text != "" {
		var err error
		if pending, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	l := newLoad(benchBodies[0])
	s, _ := openCounting(b, filepath.Join(b.TempDir(), "store"), l.now)
	defer s.Close()
	due := l.due
	l.due = func(i int) int64 {
		l.entry.Key, l.entry.Keys = fmt.Sprintf("%0*d", benchKey, i), fmt.Sprint("order", i/2)
		return due(i)
	}
	l.names = l.names[:1]
	l.put(b, s, pending)
	waitSealed(s)
	var took []time.Duration
	b.ResetTimer()
	for range b.N {
		i := rand.IntN(pending)
		k, want := fmt.Sprintf("%0*d", benchKey, i), 1
		if i%2 == 0 {
			k, want = fmt.Sprint("order", i/2), 2-(i+1)/pending
		}
		start := time.Now()
		rows, err := s.Find(Search{Topic: l.names[0].Topic, Key: k})
		took = append(took, time.Since(start))
		if err != nil || len(rows) != want {
			b.Fatalf("%+v, %v", rows, err)
		}
	}
	b.StopTimer()
	slices.Sort(took)
	st := s.Stats()
	b.ReportMetric(float64(st.Runs), "runs")
	b.ReportMetric(float64(st.Pending), "pending")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}
