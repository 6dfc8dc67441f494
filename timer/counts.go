package timer

import (
	"cmp"
	"iter"
	"slices"
)

// FlowCount says how much of a flow is pending.
type FlowCount struct {
	Flow    Flow
	Pending int64       // in Hours
	Hours   []HourCount // those with pending entries, ascending
}

// HourCount says how many entries are due within an hour.
type HourCount struct {
	Start   int64 // Unix ms
	Pending int64
}

// Counts yields what is pending, flow by flow in the order of topic and broker, and within a flow by the hours of due times that
// overlap q.From..q.To. The numbers come from counters that every put, settle and cancel keeps: they are exact, also after a
// restart, and the disk is not read. Each flow is exact at its moment; between flows others may go on. An answer has at most as many
// hours as lie between now and the furthest due time, and those overdue, for each flow: filter, or stop early.
//
// Any goroutine; the store is not locked while the caller handles a flow.
func (s *Store) Counts(q Filter) iter.Seq[FlowCount] {
	return func(yield func(FlowCount) bool) {
		for _, f := range s.flowsOf(q) {
			if c := s.countFlow(f, q); c.Pending > 0 && !yield(c) {
				return
			}
		}
	}
}

// flowsOf returns the flows with pending entries that q matches, sorted.
func (s *Store) flowsOf(q Filter) []*flow {
	var flows []*flow
	s.mu.Lock()
	for name, f := range s.wheel.flows {
		if f.pending > 0 && q.matches(name) {
			flows = append(flows, f)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(flows, func(a, b *flow) int {
		return cmp.Or(cmp.Compare(a.name.Topic, b.name.Topic), cmp.Compare(a.name.Broker, b.name.Broker))
	})
	return flows
}

func (s *Store) countFlow(f *flow, q Filter) FlowCount {
	from, to := q.span()
	c := FlowCount{Flow: f.name}
	s.mu.Lock()
	for h, n := range f.hours.all() {
		if h >= hourOf(from.due) && h*hourMs < to.due {
			c.Hours = append(c.Hours, HourCount{h * hourMs, n})
			c.Pending += n
		}
	}
	s.mu.Unlock()
	slices.SortFunc(c.Hours, func(a, b HourCount) int { return cmp.Compare(a.Start, b.Start) })
	return c
}

// pendingHours returns the hours in which something that q matches is pending, ascending.
func (s *Store) pendingHours(q Filter) []int64 {
	hours := []int64{}
	for _, f := range s.flowsOf(q) {
		for _, h := range s.countFlow(f, q).Hours {
			hours = append(hours, hourOf(h.Start))
		}
	}
	slices.Sort(hours)
	return slices.Compact(hours)
}
