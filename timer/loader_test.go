package timer

import (
	"testing"
)

// A put that is earlier than what was fired already moves the resume point back behind fired entries of a run: the loader
// must leave those out.
func TestLoaderLeavesFiredEntriesOut(t *testing.T) {
	r := newRig(t)
	r.put(30, 500, 900)
	r.until("runs", func() bool { return r.s.Stats().Runs >= 2 })
	r.clock.Store(rigNow + 600)
	r.s.Start(r.c.sink)
	var items []Item
	for len(items) < r.o.Window {
		items = append(items, r.c.wait(t)...)
	}
	r.put(1, 100, 10)
	checkInvariants(t, r.s)
	seen := map[LSN]bool{}
	for n := 0; n < 31; {
		for _, it := range items {
			if seen[it.LSN] {
				t.Fatalf("%d fired twice", it.LSN)
			}
			seen[it.LSN] = true
		}
		n = len(seen)
		for _, it := range items[len(items)/2:] { // half of the window stays out while the loader works
			r.s.Settle(it)
		}
		next := items[:len(items)/2]
		items = nil
		if n < 31 && len(next) < r.o.Window {
			items = r.c.wait(t)
		}
		for _, it := range next {
			r.s.Settle(it)
		}
		checkInvariants(t, r.s)
	}
	r.wantPending(0)
}
