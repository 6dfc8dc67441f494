package timer

import (
	"slices"
	"testing"
)

// fataler is what the checks need of a test, plain or rapid.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

var _ fataler = (*testing.T)(nil)

// checkInvariants checks what the package comment promises about the wheel, between two operations.
func checkInvariants(t fataler, s *Store) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.installing {
		return
	}
	pending := int64(0)
	for _, f := range s.wheel.flows {
		checkFlow(t, s.wheel, f)
		pending += f.pending
	}
	if pending != s.wheel.pending {
		t.Fatalf("flows have %d pending, the wheel says %d", pending, s.wheel.pending)
	}
	checkAhead(t, s)
	homes := int64(0)
	for _, g := range s.segs {
		for _, e := range g.entries {
			if !e.done {
				homes++
			}
		}
	}
	for _, r := range s.runs {
		if r.pending != r.entries-r.doneIn(0, r.entries) {
			t.Fatalf("run %x: pending %d, bitmap says %d", r.id, r.pending, r.entries-r.doneIn(0, r.entries))
		}
		homes += int64(r.pending)
	}
	if homes != pending {
		t.Fatalf("segments and runs hold %d pending, flows %d", homes, pending)
	}
}

func checkFlow(t fataler, w *wheel, f *flow) {
	t.Helper()
	if f.inRAM() > w.window {
		t.Fatalf("flow %v: %d armed and %d fired exceed the window", f.name, f.armed.len(), len(f.fired))
	}
	for i, e := range f.armed.a[f.armed.head:] {
		if i > 0 && !f.armed.a[f.armed.head+i-1].key().less(e.key()) {
			t.Fatalf("flow %v: armed is not sorted", f.name)
		}
		if !f.loading && !e.key().less(f.resume) {
			t.Fatalf("flow %v: armed %v at or past resume %v", f.name, e.key(), f.resume)
		}
		if e.done || f.fired[e.lsn] != nil {
			t.Fatalf("flow %v: armed %v is done or fired", f.name, e.key())
		}
	}
	for _, p := range f.far.parts {
		if !slices.Contains(p.seg.far, f) {
			t.Fatalf("flow %v: far has entries of %s, which does not know it", f.name, p.seg.path)
		}
		for _, x := range p.heap.a {
			if !x.done && (x.key.less(f.resume) || x.home.seg != p.seg || x.key != x.entry.key()) {
				t.Fatalf("flow %v: far has %v before resume %v, or in no segment", f.name, x.key, f.resume)
			}
		}
	}
	if (f.at >= 0) != (f.armed.len() > 0) {
		t.Fatalf("flow %v: place %d with %d armed", f.name, f.at, f.armed.len())
	}
	hours := int64(0)
	for _, n := range f.hours.all() {
		hours += n
	}
	if hours != f.pending {
		t.Fatalf("flow %v: hours add up to %d, pending is %d", f.name, hours, f.pending)
	}
}

// checkAhead: what was read ahead belongs to entries that are armed or fired, and is counted.
func checkAhead(t fataler, s *Store) {
	t.Helper()
	held := int64(0)
	for _, f := range s.wheel.flows {
		for _, e := range f.armed.a[f.armed.head:] {
			held += int64(len(e.body))
		}
		for _, e := range f.fired {
			held += int64(len(e.body))
		}
	}
	if held != s.wheel.ahead.held || held > s.o.ReadAheadBytes {
		t.Fatalf("%d bytes are read ahead, %d are counted, the budget is %d", held, s.wheel.ahead.held, s.o.ReadAheadBytes)
	}
}
