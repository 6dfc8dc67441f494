package timer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// mergeRig has entries in runs only, and merges nothing until remerge says so.
type mergeRig struct {
	*rig
	bodies map[LSN][]byte
	keys   map[LSN]string
	dues   map[LSN]int64
	order  []LSN // by key
	harm   int64 // what check wants Stats.Corrupt to be
}

// newMergeRig seals n entries of three topics, due between 20 and 40 s from now, into runs of about 45.
func newMergeRig(t *testing.T, n int) *mergeRig {
	t.Helper()
	m := &mergeRig{rig: newRig(t), bodies: map[LSN][]byte{}, keys: map[LSN]string{}, dues: map[LSN]int64{}}
	m.o.Window, m.o.ReadAheadBytes, m.o.lookEvery, m.o.mergeRest = 1024, 1, time.Millisecond, 1
	m.kill(false)
	for i := range n {
		e := &Entry{
			Flow: Flow{"b", fmt.Sprint("topic", i%3)}, Lane: uint16(i % 5), Key: fmt.Sprint("key", i), Keys: fmt.Sprint("order", i/2, " all"),
			Due: rigNow + 20_000 + int64(i*7919%20_000), Body: body(i, 100+i*37%300),
		}
		lsn, err := putWait(m.s, e)
		if err != nil {
			t.Fatal(err)
		}
		m.bodies[lsn], m.keys[lsn], m.dues[lsn] = e.Body, e.Key, e.Due
		m.order = append(m.order, lsn)
	}
	slices.SortFunc(m.order, func(a, b LSN) int {
		if (key{m.dues[a], a}).less(key{m.dues[b], b}) {
			return -1
		}
		return 1
	})
	m.reopen(nil) // the rest of the log is sealed
	m.until("seals", func() bool { return m.s.Stats().Segments == 1 })
	m.reopen(nil) // and the log is empty: the next run that is made is a merged one
	return m
}

// reopen closes the store and opens it again on a disk with that hook.
func (m *mergeRig) reopen(hook vfs.Hook) {
	m.t.Helper()
	mustClose(m.t, m.s)
	m.mem = m.mem.AfterKill()
	m.openWith(hook)
}

func (m *mergeRig) openWith(hook vfs.Hook) {
	m.t.Helper()
	m.fs = vfs.NewFaulty(m.mem)
	m.fs.Set(hook)
	m.o.FS = m.fs
	m.s = mustOpen(m.t, m.o)
	m.c = newCollector()
}

// remerge reopens the store so that it merges down to n runs.
func (m *mergeRig) remerge(n int, hook vfs.Hook) {
	m.t.Helper()
	m.o.MaxRuns = n
	m.reopen(hook)
}

// remergeWith is remerge with a hook that watches the merged run.
func (m *mergeRig) remergeWith(n int, h *mergeHook, hook vfs.Hook) {
	m.t.Helper()
	m.o.MaxRuns = n
	mustClose(m.t, m.s)
	m.mem = m.mem.AfterKill()
	h.disk = m.mem
	m.openWith(hook)
}

// crash replaces the store by one that finds what the disk has now.
func (m *mergeRig) crash(power bool) {
	m.t.Helper()
	m.o.MaxRuns = 128
	m.kill(power)
}

func (m *mergeRig) merged(n int64) {
	m.t.Helper()
	m.until("merges", func() bool { return m.s.Stats().Merges >= n })
}

// check wants the entries but those of done to be pending, intact in well-formed runs, and to fire in order with their bodies.
func (m *mergeRig) check(done ...LSN) {
	m.t.Helper()
	want := slices.DeleteFunc(slices.Clone(m.order), func(lsn LSN) bool { return slices.Contains(done, lsn) })
	m.wantPending(int64(len(want)))
	checkInvariants(m.t, m.s)
	m.s.mu.Lock()
	runs := slices.Clone(m.s.runs)
	m.s.mu.Unlock()
	for _, r := range runs {
		checkRun(m.t, r)
	}
	last := map[Flow]key{}
	var got []LSN
	m.clock.Store(rigNow + 100_000)
	m.s.Start(m.c.sink)
	for len(got) < len(want) {
		for _, it := range m.c.wait(m.t) {
			k := key{it.Due, it.LSN}
			b, err := m.s.Load(it)
			if err != nil || !bytes.Equal(b, m.bodies[it.LSN]) || it.Due != m.dues[it.LSN] {
				m.t.Fatalf("%+v with %d bytes, %v", it, len(b), err)
			}
			if k.less(last[it.Flow]) {
				m.t.Fatalf("%v fired after %v", k, last[it.Flow])
			}
			last[it.Flow] = k
			got = append(got, it.LSN)
			m.s.Settle(it)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.t.Fatalf("fired %d entries, want these %d", len(got), len(want))
	}
	m.wantPending(0)
	if n := m.s.Stats().Corrupt; n != m.harm {
		m.t.Fatalf("corrupt %d, want %d", n, m.harm)
	}
}

// checkRun checks what the package comment says about the bytes of a run; records that are done may be punched.
func checkRun(t fataler, r *run) {
	t.Helper()
	pages := pageReader{run: r}
	off, last, hours := int64(segHeadBytes), key{due: -1 << 62}, map[Flow]map[int64]uint32{}
	var keys []keyLine
	var space []byte
	for ord := range r.entries {
		b, _, err := pages.page(ord / pageEntries)
		if err != nil {
			t.Fatalf("%v", err)
		}
		x := pageEntry(b, ord%pageEntries)
		if !last.less(x.key()) || x.off != off {
			t.Fatalf("%s: entry %d is %+v, after %v that ends at %d", r.path, ord, x, last, off)
		}
		if ord == 0 && x.due != r.minDue || ord == r.entries-1 && x.due != r.maxDue || x.lsn < r.minLSN || x.lsn > r.maxLSN {
			t.Fatalf("%s: entry %d is %+v, the footer says %+v", r.path, ord, x, r.runFooter)
		}
		last, off = x.key(), off+int64(padded(int(x.length)))
		name := r.names[x.flow].name
		if hours[name] == nil {
			hours[name] = map[int64]uint32{}
		}
		hours[name][hourOf(x.due)]++
		raw, err := readAt(r.f, x.off, int(x.length))
		if err != nil {
			t.Fatalf("%v", err)
		}
		rec, ok := parseRecord(raw, r.seed)
		if !ok && r.isDone(ord) {
			return // its keys cannot be known, nor can the table be compared
		}
		if !ok || rec.lsn != x.lsn || rec.due != x.due || rec.lane != x.lane || rec.length != int(x.length) || string(rec.topic) != name.Topic || string(rec.broker) != name.Broker {
			t.Fatalf("%s: entry %d is %+v, its record %v %+v", r.path, ord, x, ok, rec)
		}
		keys = appendKeyLines(keys, raw, uint32(ord), &space)
	}
	if roundUp(off) != r.indexOff {
		t.Fatalf("%s: records end at %d, the index begins at %d", r.path, off, r.indexOff)
	}
	slices.SortFunc(keys, keyLine.compare)
	at := 0
	for page := range r.keyPages() {
		b, n, err := (&pageReader{run: r, key: true}).page(page)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for i := range n {
			if at == len(keys) || keyAt(b, i) != keys[at] {
				t.Fatalf("%s: line %d of the key table is %+v", r.path, at, keyAt(b, i))
			}
			at++
		}
	}
	if at != len(keys) {
		t.Fatalf("%s: %d lines in the key table, want %d", r.path, at, len(keys))
	}
	table, err := readAt(r.f, r.flowOff, int(r.flowLen))
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, flows, err := decodeFlows(table)
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, f := range flows {
		for _, h := range f.hours {
			if hours[f.name][h.hour] != h.count {
				t.Fatalf("%s: %d entries of %v in hour %d, the flow table says %d", r.path, hours[f.name][h.hour], f.name, h.hour, h.count)
			}
			delete(hours[f.name], h.hour)
		}
		if len(hours[f.name]) != 0 {
			t.Fatalf("%s: hours missing in the flow table: %v", r.path, hours[f.name])
		}
	}
}

// mergeHook watches the file of the first run that is made after Open, which is a merged one.
type mergeHook struct {
	disk *vfs.Mem // set before Open
	mu   sync.Mutex
	path string
}

func (h *mergeHook) is(op vfs.Op, path string) bool {
	if !strings.HasPrefix(path, "/data/"+runPrefix) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.path == "" && op == vfs.OpCreate {
		h.path = path
	}
	return path == h.path
}

// name returns the name of that file, "" while there is none.
func (h *mergeHook) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.TrimPrefix(h.path, "/data/")
}

// whole says whether that file is there and has its end.
func (h *mergeHook) whole() bool {
	name := h.name()
	if name == "" {
		return false
	}
	r, err := openRun(h.disk, "/data/"+name, mustID(name))
	if err != nil {
		return false
	}
	return r.f.Close() == nil
}

// stop is a place in an operation on the disk where everything waits.
type stop struct {
	once          sync.Once
	reached, goOn chan struct{}
}

func newStop(t *testing.T) *stop {
	s := &stop{reached: make(chan struct{}), goOn: make(chan struct{})}
	t.Cleanup(s.release)
	return s
}

func (s *stop) release() {
	select {
	case <-s.goOn:
	default:
		close(s.goOn)
	}
}

// wait is called in the operation. Several may wait at once.
func (s *stop) wait() {
	s.once.Do(func() { close(s.reached) })
	<-s.goOn
}
