package timer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"
)

const benchPending = 1_000_000

// benchFull opens a store with a million pending entries, most of them in runs.
func benchFull(b *testing.B, size int, due func(l *load, i int) int64) (*Store, *load) {
	b.Helper()
	l := newLoad(size)
	if due != nil {
		l.due = func(i int) int64 { return due(l, i) }
	}
	s, _ := openCounting(b, filepath.Join(b.TempDir(), "store"), l.now)
	b.Cleanup(func() { s.Close() })
	l.put(b, s, benchPending)
	waitSealed(s)
	return s, l
}

// BenchmarkList reads pages of 100 rows at random times among a million entries due over 40 days.
func BenchmarkList(b *testing.B) {
	s, l := benchFull(b, 64, nil)
	for _, bb := range []struct {
		name string
		q    Query
	}{
		{"all", Query{}},
		{"topic", Query{Filter: Filter{Topic: "topic-03"}}},
		{"all with keys", Query{Keys: true}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			rows := 0
			for b.Loop() {
				q := bb.q
				q.From = l.now() + l.rng.Int64N(benchAhead.Milliseconds())
				page, err := s.List(q)
				if err != nil {
					b.Fatal(err)
				}
				rows += len(page.Rows)
			}
			b.ReportMetric(float64(rows)/float64(b.N), "rows/op")
		})
	}
}

// BenchmarkFullest looks for the ten fullest seconds of an hour in which a million entries are due, evenly or in one second.
func BenchmarkFullest(b *testing.B) {
	for name, due := range map[string]func(l *load, i int) int64{
		"even":       func(l *load, _ int) int64 { return l.now() + hourMs + l.rng.Int64N(hourMs) },
		"one second": func(l *load, i int) int64 { return l.now() + hourMs + int64(i%secondMs) },
	} {
		b.Run(name, func(b *testing.B) {
			s, l := benchFull(b, 64, due)
			for b.Loop() {
				top, err := s.Fullest(l.now()+hourMs, l.now()+2*hourMs, 10)
				if err != nil || top.More || len(top.Seconds) == 0 {
					b.Fatalf("%+v, %v", top, err)
				}
			}
		})
	}
}

// BenchmarkExport exports a million entries.
func BenchmarkExport(b *testing.B) {
	for _, size := range benchBodies {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			s, _ := benchFull(b, size, nil)
			for b.Loop() {
				x, err := s.Export(context.Background(), io.Discard, Filter{})
				if err != nil || x.Entries != benchPending {
					b.Fatalf("%+v, %v", x, err)
				}
				b.SetBytes(x.Bytes)
			}
			b.ReportMetric(benchPending*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkImport takes a million entries into an empty store, and once more into one that has them.
func BenchmarkImport(b *testing.B) {
	from, l := benchFull(b, 256, nil)
	var stream bytes.Buffer
	if _, err := from.Export(context.Background(), &stream, Filter{}); err != nil {
		b.Fatal(err)
	}
	for times, name := range []string{"new", "again"} {
		b.Run(name, func(b *testing.B) {
			took := time.Duration(0)
			for range b.N {
				s, _ := openCounting(b, filepath.Join(b.TempDir(), "store"), l.now)
				for range times + 1 {
					start := time.Now()
					im, err := s.Import(context.Background(), bytes.NewReader(stream.Bytes()))
					if err != nil || im.Read != benchPending {
						b.Fatalf("%+v, %v", im, err)
					}
					took = time.Since(start)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(benchPending/took.Seconds(), "msg/s")
		})
	}
}
