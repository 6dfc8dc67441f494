package timer

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
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
