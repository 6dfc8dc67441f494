package timer

import (
	"cmp"
	"math"
	"sort"
)

// key orders the entries of a flow.
type key struct {
	due int64
	lsn LSN
}

var lastKey = key{due: math.MaxInt64, lsn: math.MaxUint64}

func (k key) less(o key) bool { return k.due < o.due || k.due == o.due && k.lsn < o.lsn }

// next returns the least key after k.
func (k key) compare(o key) int { return cmp.Or(cmp.Compare(k.due, o.due), cmp.Compare(k.lsn, o.lsn)) }

func (k key) next() key {
	if k.lsn == math.MaxUint64 {
		return key{due: k.due + 1}
	}
	return key{k.due, k.lsn + 1}
}

// entry is an accepted entry in RAM: one of an unsealed segment, or one of a run that is in the wheel.
// Guarded by Store.mu; due, lsn, flow, lane and length never change.
type entry struct {
	due    int64
	lsn    LSN
	flow   *flow
	home   *dataFile // where its record lies; nil if the record was found damaged
	off    int64
	length int32  // of the record
	ord    uint32 // its number in the run
	lane   uint16
	done   bool

	cancelled bool   // and done for that reason
	body      []byte // read ahead
}

func (e *entry) key() key { return key{e.due, e.lsn} }

func (e *entry) item() Item {
	return Item{Due: e.due, LSN: e.lsn, Flow: e.flow.name, Lane: e.lane, Len: e.length, entry: e}
}

// flow is the state of one flow; the package comment states its invariants.
type flow struct {
	name    Flow
	armed   deque          // in the wheel, not fired
	fired   map[LSN]*entry // fired, not settled
	far     far            // in unsealed segments at or past resume
	resume  key            // everything pending before it is in armed or fired
	loading bool           // the loader's present pass serves it
	pending int64
	hours   hourCounts // pending entries by hour of their due time
	at      int        // place in wheel.next, -1 while nothing is armed
}

// wheel holds all flows, those with armed entries ordered by the key of their first.
type wheel struct {
	flows   map[Flow]*flow
	next    heap[*flow]
	window  int
	horizon int64 // ms; entries due before it are loaded as windows allow
	pending int64
	ahead   ahead
}

func newWheel(window int) *wheel {
	w := &wheel{flows: map[Flow]*flow{}, window: window, horizon: math.MinInt64, ahead: newAhead()}
	w.next = heap[*flow]{
		less:  func(a, b *flow) bool { return a.armed.min().key().less(b.armed.min().key()) },
		moved: func(f *flow, at int) { f.at = at },
	}
	return w
}

// flow returns the flow of that name. A new one has nothing on disk, so it starts at the horizon.
func (w *wheel) flow(name Flow) *flow {
	f := w.flows[name]
	if f == nil {
		f = &flow{name: name, fired: map[LSN]*entry{}, hours: hourCounts{}, at: -1}
		f.resume = key{due: w.horizon}
		w.flows[name] = f
	}
	return f
}

func (f *flow) inRAM() int { return f.armed.len() + len(f.fired) }

func (w *wheel) full(f *flow) bool { return f.inRAM() >= w.window }

// thirsty flows want the loader: there is something of theirs before the horizon that may not be in
// the wheel, and at least half of their window is free.
func (w *wheel) thirsty(f *flow) bool {
	return f.resume.due < w.horizon && f.pending > int64(f.inRAM()) && f.inRAM() <= w.window/2
}

func (w *wheel) count(f *flow, due int64, n int64) { w.countHour(f, hourOf(due), n) }

func (w *wheel) countHour(f *flow, h, n int64) {
	f.pending += n
	w.pending += n
	f.hours.add(h, n)
}

// admit takes a fresh durable entry of an unsealed segment.
func (w *wheel) admit(e *entry) {
	w.settleResume(e.flow)
	w.count(e.flow, e.due, 1)
	w.park(e)
}

// park puts an entry of an unsealed segment where it belongs: into the wheel before the resume point, else into far.
func (w *wheel) park(e *entry) {
	f := e.flow
	if !e.key().less(f.resume) {
		f.far.push(e)
		return
	}
	w.arm(e)
	for f.inRAM() > w.window {
		w.evict(f)
	}
}

func (w *wheel) arm(e *entry) {
	f := e.flow
	f.armed.insert(e)
	w.reorder(f)
}

// evict takes the last armed entry out of the wheel and moves the resume point back to it. The loader's pass
// is over for this flow: what it would bring lies behind the new resume point.
func (w *wheel) evict(f *flow) {
	e := f.armed.popMax()
	w.ahead.drop(e)
	w.reorder(f)
	f.resume = e.key()
	f.loading = false
	if e.home.seg != nil {
		f.far.push(e)
	}
}

// remove takes an entry that ends out of the wheel.
func (w *wheel) remove(e *entry) {
	if f := e.flow; f.armed.remove(e) {
		w.reorder(f)
	}
}

// reorder puts f where its first armed entry belongs.
func (w *wheel) reorder(f *flow) {
	switch {
	case f.armed.len() == 0 && f.at >= 0:
		w.next.remove(f.at)
	case f.armed.len() > 0 && f.at < 0:
		w.next.push(f)
	case f.armed.len() > 0:
		w.next.fix(f.at)
	}
}

// fire moves up to limit entries that are due from armed to fired and appends them.
func (w *wheel) fire(now int64, items []Item, limit int) []Item {
	for len(items) < limit && w.next.len() > 0 {
		f := w.next.min()
		e := f.armed.min()
		if e.due > now {
			break
		}
		f.armed.popMin()
		w.reorder(f)
		f.fired[e.lsn] = e
		items = append(items, e.item())
	}
	return items
}

// nextDue returns the due time of the first armed entry.
func (w *wheel) nextDue() (int64, bool) {
	if w.next.len() == 0 {
		return 0, false
	}
	return w.next.min().armed.min().due, true
}

// drainFar arms entries of far that come before limit. It stops at a full window, and then sets the resume point
// to the first entry left and ends the flow's pass.
func (w *wheel) drainFar(f *flow, limit key) {
	for p := f.far.first(); p != nil && p.heap.min().key.less(limit); p = f.far.first() {
		if w.full(f) {
			f.resume = p.heap.min().key
			f.loading = false
			return
		}
		w.arm(p.heap.pop().entry)
	}
}

// load offers the loader's next entry of a flow that is loading: all before it were offered. False: it has no room.
func (w *wheel) load(f *flow, k key, make func() *entry) {
	w.drainFar(f, k)
	if !f.loading {
		return
	}
	if w.full(f) {
		f.resume = k
		f.loading = false
		return
	}
	e := make()
	w.arm(e)
	w.ahead.queue.push(e)
}

// armed says whether e is in the wheel and not fired.
func (w *wheel) armed(e *entry) bool { return e.flow.armed.has(e) }

// passed tells a flow that is loading that everything before limit was offered.
func (w *wheel) passed(f *flow, limit key) {
	w.drainFar(f, limit)
	if f.loading {
		f.resume = limit
	}
}

// deque is a slice of entries sorted by key, cheap to change at both ends.
type deque struct {
	a    []*entry
	head int
}

func (d *deque) len() int { return len(d.a) - d.head }

func (d *deque) min() *entry { return d.a[d.head] }

// before returns how many entries have a key less than k.
func (d *deque) before(k key) int {
	live := d.a[d.head:]
	return sort.Search(len(live), func(i int) bool { return !live[i].key().less(k) })
}

// get returns the entry with key k, or nil.
func (d *deque) get(k key) *entry {
	if at := d.head + d.before(k); at < len(d.a) && d.a[at].key() == k {
		return d.a[at]
	}
	return nil
}

func (d *deque) insert(e *entry) {
	at := d.before(e.key())
	if d.head > 0 && at < d.len()/2 {
		d.head--
		copy(d.a[d.head:], d.a[d.head+1:d.head+1+at])
		d.a[d.head+at] = e
		return
	}
	d.a = append(d.a, nil)
	copy(d.a[d.head+at+1:], d.a[d.head+at:])
	d.a[d.head+at] = e
}

func (d *deque) popMin() *entry {
	e := d.a[d.head]
	d.a[d.head] = nil
	d.head++
	if d.head*2 > len(d.a) {
		n := copy(d.a, d.a[d.head:])
		clear(d.a[n:])
		d.a, d.head = d.a[:n], 0
	}
	return e
}

func (d *deque) popMax() *entry {
	last := len(d.a) - 1
	e := d.a[last]
	d.a[last] = nil
	d.a = d.a[:last]
	return e
}

// find returns the place of e in a, -1 if it is not there.
func (d *deque) find(e *entry) int {
	at := d.head + d.before(e.key())
	if at == len(d.a) || d.a[at] != e {
		return -1
	}
	return at
}

func (d *deque) has(e *entry) bool { return d.find(e) >= 0 }

// remove takes e out if it is there.
func (d *deque) remove(e *entry) bool {
	at := d.find(e)
	if at < 0 {
		return false
	}
	d.a = append(d.a[:at], d.a[at+1:]...)
	return true
}
