package timer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/delaygate/delaygate/timer/vfs"
)

// modelEntry is what the model knows about a put.
type modelEntry struct {
	e       Entry
	acked   bool // else the outcome is unknown: it may be there
	fired   bool // in this life of the store
	settled bool
	synced  bool // the settle is certainly durable, or it was cancelled and that was answered
	item    Item
}

// model compares a Store with a map, through crashes and I/O errors. It fires by calling due itself, so what must
// fire next is known exactly.
type model struct {
	t        *rapid.T
	mem      *vfs.Mem
	faulty   *vfs.Faulty
	clock    atomic.Int64
	s        *Store
	o        Options
	entries  map[LSN]*modelEntry
	n        int
	inflight sync.WaitGroup
	rng      *rand.Rand
	hook     vfs.Hook
	unsafe   atomic.Value
	eio      atomic.Bool // an fsync failed
	latest   int64       // due time of all
	dying    bool        // reads may fail
	crashes  int
	seals    int64
	punched  int64
	merges   int64
}

const (
	modelPatience = 20 * time.Second
	day           = 24 * 3600_000 // ms
)

// open opens the store, at times only after it died in the middle of that.
func (m *model) open() {
	for rapid.IntRange(0, 5).Draw(m.t, "dies while it opens") == 0 {
		m.mount()
		dead := m.dieAfter(rapid.IntRange(0, 60).Draw(m.t, "operations"))
		s, err := Open(m.o)
		if err == nil {
			m.mem.Kill()
			s.Close()
		} else if !dead() {
			m.t.Fatalf("open: %v", err)
		}
		m.reboot(rapid.Bool().Draw(m.t, "power") && m.o.Sync == SyncAlways)
		m.crashes++
	}
	m.mount()
	s, err := Open(m.o)
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	m.s = s
	m.checkRecovered()
}

// mount makes m.mem the disk of the next Open.
func (m *model) mount() {
	m.faulty = vfs.NewFaulty(m.mem)
	m.hook = m.guard(m.mem)
	m.faulty.Set(m.hook)
	m.o.FS = m.faulty
}

// dieAfter lets the process die at the n-th operation on the disk that changes something from now on.
func (m *model) dieAfter(n int) (dead func() bool) {
	var left atomic.Int64
	left.Store(int64(n))
	mem, hook := m.mem, m.hook
	m.faulty.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op != vfs.OpRead && op != vfs.OpReadDir && op != vfs.OpOpen && left.Add(-1) == -1 {
			mem.Kill()
		}
		return hook(op, path)
	})
	return func() bool { return left.Load() < 0 }
}

// reboot replaces the disk, which Kill was called on, by what is left of it.
func (m *model) reboot(power bool) {
	if !power {
		m.mem = m.mem.AfterKill()
		return
	}
	survive := rapid.SampledFrom([]float64{0, 0.5, 0.9}).Draw(m.t, "survive")
	m.mem = m.mem.AfterPowerLoss(rand.New(rand.NewPCG(m.rng.Uint64(), 3)), survive)
}

// guard checks that nothing is unlinked or recycled that MANIFEST names, as it would be after a power loss.
func (m *model) guard(mem *vfs.Mem) vfs.Hook {
	return func(op vfs.Op, path string) *vfs.Fault {
		id, ok := anyID(strings.TrimPrefix(path, "/data/"))
		if !ok || op != vfs.OpRemove && (op != vfs.OpRename || !strings.Contains(path, freePrefix)) {
			return nil
		}
		state, err := readManifest(mem.AfterPowerLoss(nil, 0), "/data/"+manifestName)
		if err != nil {
			return nil
		}
		_, run := state.runs[id]
		if _, seg := state.segs[id]; run || seg {
			m.unsafe.Store(path + " is named by MANIFEST and was removed")
		}
		return nil
	}
}

// checkRecovered: what is pending lies between what must and what may be there.
func (m *model) checkRecovered() {
	least, most := int64(0), int64(0)
	for _, e := range m.entries {
		e.fired = false
		if e.settled && !e.synced { // it may be back or not
			e.settled, e.acked = false, false
		}
		switch {
		case e.synced:
		case !e.acked:
			most++
		default:
			least++
			most++
		}
	}
	if got := m.s.Stats().Pending; got < least || got > most {
		m.t.Fatalf("after recovery %d are pending, want %d to %d", got, least, most)
	}
	// After a failed fsync and a kill, what the page cache shows is not what the disk has: then a later power loss
	// may look like rot. It never hits what was acknowledged.
	if !m.eio.Load() && m.s.Stats().Corrupt > 0 {
		m.t.Fatalf("recovery found damage after a mere crash: %+v", m.s.Stats())
	}
}

// put puts n entries at once and waits for the answers. False: some failed.
func (m *model) put(n int) bool {
	failed := m.begin(n)
	m.inflight.Wait()
	return !failed.Load()
}

// begin puts n entries and does not wait.
func (m *model) begin(n int) *atomic.Bool {
	var failed atomic.Bool
	for range n {
		m.n++
		r := m.rng
		e := Entry{
			Flow: Flow{"broker", fmt.Sprint("topic", r.IntN(3))}, Lane: uint16(r.IntN(4)), Key: fmt.Sprint("key", m.n),
			Due: m.clock.Load() - 3000 + r.Int64N(12)*r.Int64N(1400), Body: body(m.n, r.IntN(1200)),
		}
		if r.IntN(10) == 0 {
			e.Due += r.Int64N(40 * day)
		}
		m.latest = max(m.latest, e.Due)
		me := &modelEntry{e: e}
		m.inflight.Add(1)
		lsn, err := m.s.Put(&e, func(err error) {
			me.acked = err == nil
			if err != nil {
				failed.Store(true)
			}
			m.inflight.Done()
		})
		if err != nil {
			m.inflight.Done()
			failed.Store(true)
			continue
		}
		if m.entries[lsn] != nil {
			m.t.Fatalf("lsn %d was given twice", lsn)
		}
		m.entries[lsn] = me
	}
	return &failed
}

// fire fires what is due and checks each item against the model.
func (m *model) fire() int {
	now := m.clock.Load()
	items, _, _, far := m.s.due(now)
	if far {
		m.s.wakeLoader()
	}
	for _, it := range items {
		m.check(it, now)
	}
	return len(items)
}

func (m *model) check(it Item, now int64) {
	e := m.entries[it.LSN]
	switch {
	case e == nil:
		m.t.Fatalf("fired something never put: %+v", it)
	case e.fired:
		m.t.Fatalf("fired twice: %+v", it)
	case e.synced:
		m.t.Fatalf("settled and synced, but back: %+v", it)
	case it.Due > now:
		m.t.Fatalf("fired early: %+v at %d", it, now)
	case it.Due != e.e.Due || it.Flow != e.e.Flow || it.Lane != e.e.Lane:
		m.t.Fatalf("fired %+v, put %+v", it, e.e)
	}
	k := key{it.Due, it.LSN}
	for lsn, o := range m.entries {
		if o.acked && !o.fired && !o.settled && o.e.Flow == it.Flow && (key{o.e.Due, lsn}).less(k) {
			m.t.Fatalf("%v fired before %v of the same flow", k, key{o.e.Due, lsn})
		}
	}
	b, err := m.s.Load(it)
	if err != nil && !errors.Is(err, errInjected) && !m.dying || err == nil && !bytes.Equal(b, e.e.Body) {
		m.t.Fatalf("load %+v: %d bytes, want %d, %v", it, len(b), len(e.e.Body), err)
	}
	e.fired, e.item = true, it
}

func (m *model) settleSome(share float64) {
	lsns := make([]LSN, 0, len(m.entries))
	for lsn, e := range m.entries {
		if e.fired && !e.settled {
			lsns = append(lsns, lsn)
		}
	}
	slices.Sort(lsns)
	for _, lsn := range lsns {
		if e := m.entries[lsn]; m.rng.Float64() < share {
			e.settled = true
			m.s.Settle(e.item)
		}
	}
}

// cancelSome cancels up to n entries and waits for the answers.
func (m *model) cancelSome(n int) {
	lsns := slices.Sorted(maps.Keys(m.entries))
	for range min(n, len(lsns)) {
		lsn := lsns[m.rng.IntN(len(lsns))]
		e := m.entries[lsn]
		out, err := cancelWait(m.s, e.e.Due, lsn)
		pending := e.acked && !e.fired && !e.settled
		switch {
		case err != nil && (e.fired || e.settled):
		case err != nil:
			e.acked = false // it may fire or not
		case out == Unknown && e.acked,
			out == Cancelled && (e.fired || e.synced),
			out == CancelledBefore && (pending || e.fired),
			out == Fired && pending:
			m.t.Fatalf("cancel lsn %d due %d: %v, but it is %+v", lsn, e.e.Due, out, e)
		case out == Cancelled, out == CancelledBefore:
			e.settled, e.synced = true, true
		}
	}
}

// findSome looks up to n entries up by their keys and by their numbers.
func (m *model) findSome(n int) {
	lsns := slices.Sorted(maps.Keys(m.entries))
	for range min(n, len(lsns)) {
		lsn := lsns[m.rng.IntN(len(lsns))]
		e := m.entries[lsn]
		rows, err := m.s.Find(Search{Topic: e.e.Flow.Topic, Key: e.e.Key})
		row, byLSN := m.s.FindLSN(lsn)
		if err != nil || len(rows) > 1 || byLSN != nil && !errors.Is(byLSN, ErrNotPending) {
			m.t.Fatalf("find lsn %d: %+v, %v; by number %+v, %v", lsn, rows, err, row, byLSN)
		}
		if byLSN == nil {
			rows = append(rows, row)
		}
		pending := 0 // what is not pending may vanish at any time
		for _, r := range rows {
			if r.LSN != lsn || r.Due != e.e.Due || r.Flow != e.e.Flow || r.Key != e.e.Key {
				m.t.Fatalf("find lsn %d: %+v, put %+v", lsn, r, e.e)
			}
			if !r.State.over() && (r.State == StateSending) == e.fired {
				pending++
			}
		}
		if e.acked && !e.settled && pending != 2 || (e.settled || !e.acked) && pending == 1 || e.settled && pending > 0 {
			m.t.Fatalf("find lsn %d: %+v, but it is %+v", lsn, rows, e)
		}
	}
}

// syncSettles makes sure that all settles so far are durable: they are written with the next group at the latest, and
// that is synced before the put after it is answered.
func (m *model) syncSettles() {
	var open []*modelEntry
	for _, e := range m.entries {
		if e.settled && !e.synced {
			open = append(open, e)
		}
	}
	for range 2 {
		if !m.put(1) {
			return
		}
	}
	for _, e := range open {
		e.synced = true
	}
}

// owed counts acknowledged entries that are due and must fire although nothing more is settled.
func (m *model) owed() int {
	fired, due := map[Flow]int{}, map[Flow]int{}
	for _, e := range m.entries {
		switch {
		case e.fired && !e.settled:
			fired[e.e.Flow]++
		case e.acked && !e.fired && !e.settled && e.e.Due <= m.clock.Load():
			due[e.e.Flow]++
		}
	}
	n := 0
	for f, d := range due {
		if fired[f] <= m.o.Window/2 {
			n += min(d, m.o.Window-fired[f])
		}
	}
	return n
}

// drain settles all that is fired until everything that is due was fired.
func (m *model) drain() {
	end := time.Now().Add(modelPatience)
	for m.owed() > 0 {
		if m.fire() == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		m.settleSome(1)
		if time.Now().After(end) {
			m.s.mu.Lock()
			for _, f := range m.s.wheel.flows {
				fmt.Printf("%v armed %d fired %d far %d resume %v pending %d horizon %d\n", f.name, f.armed.len(), len(f.fired), len(f.far.parts), f.resume, f.pending, m.s.wheel.horizon)
			}
			m.s.mu.Unlock()
			m.t.Fatalf("%d entries are due and do not fire: %+v", m.owed(), m.s.Stats())
		}
	}
}

func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"put":  func(t *rapid.T) { m.put(rapid.IntRange(1, 40).Draw(t, "n")) },
		"put2": func(t *rapid.T) { m.put(rapid.IntRange(1, 40).Draw(t, "n")) },
		"advance": func(t *rapid.T) {
			m.clock.Add(rapid.SampledFrom([]int64{1, 10, 500, 3000, 3000, 20_000, -2000, 3 * day, -3 * day}).Draw(t, "ms"))
			m.fire()
		},
		"fire":      func(*rapid.T) { m.fire() },
		"settle":    func(t *rapid.T) { m.fire(); m.settleSome(rapid.Float64Range(0, 1).Draw(t, "share")) },
		"cancel":    func(t *rapid.T) { m.cancelSome(rapid.IntRange(1, 30).Draw(t, "n")) },
		"find":      func(t *rapid.T) { m.findSome(rapid.IntRange(1, 10).Draw(t, "n")) },
		"sync":      func(*rapid.T) { m.syncSettles() },
		"drain":     func(*rapid.T) { m.drain() },
		"kill":      func(*rapid.T) { m.crash(false) },
		"powerLoss": func(*rapid.T) { m.crash(m.o.Sync == SyncAlways) },
		"killBusy": func(t *rapid.T) {
			m.begin(rapid.IntRange(1, 80).Draw(t, "n"))
			time.Sleep(time.Duration(rapid.IntRange(0, 1000).Draw(t, "us")) * time.Microsecond)
			m.crash(rapid.Bool().Draw(t, "power") && m.o.Sync == SyncAlways)
		},
		"killAt":  func(*rapid.T) { m.crashAt() },
		"reopen":  func(*rapid.T) { m.reopen() },
		"faults":  func(*rapid.T) { m.fail() },
		"squeeze": func(*rapid.T) { m.squeeze() },
		"": func(t *rapid.T) {
			m.t = t
			checkInvariants(t, m.s)
			if what := m.unsafe.Load(); what != nil {
				t.Fatalf("%v", what)
			}
		},
	}
}

// tally adds up what the store did in this life.
func (m *model) tally() {
	st := m.s.Stats()
	m.seals += st.Seals
	m.punched += st.PunchedBytes
	m.merges += st.Merges
}

func (m *model) reopen() {
	if err := m.s.Close(); err != nil {
		m.t.Fatalf("close: %v", err)
	}
	for _, e := range m.entries {
		e.synced = e.synced || e.settled
	}
	m.mem = m.mem.AfterKill()
	m.tally()
	m.open()
}

// finish: in the end everything acknowledged was fired and settled, and nothing is left.
func (m *model) finish() {
	m.crash(m.o.Sync == SyncAlways)
	m.clock.Store(max(m.clock.Load(), m.latest) + 1)
	m.drain()
	end := time.Now().Add(modelPatience)
	for m.s.Stats().Pending > 0 { // settled before the crash but not synced, or of unknown outcome
		if m.fire() == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		m.settleSome(1)
		if time.Now().After(end) {
			m.t.Fatalf("left: %+v", m.s.Stats())
		}
	}
	checkInvariants(m.t, m.s)
}

func runModel(t *rapid.T) *model {
	m := &model{t: t, mem: vfs.NewMem(), entries: map[LSN]*modelEntry{}}
	m.rng = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	m.clock.Store(1_700_000_000_000)
	m.o = testOptions(nil, &m.clock)
	m.o.Sync = rapid.SampledFrom([]SyncMode{SyncAlways, SyncAlways, SyncInterval}).Draw(t, "mode")
	m.o.SyncEvery, m.o.FarAfter = 5*time.Millisecond, 4*time.Second
	m.o.SegmentBytes = rapid.SampledFrom([]int64{16 << 10, 64 << 10}).Draw(t, "segment")
	m.o.Window = rapid.SampledFrom([]int{1, 2, 4, 9}).Draw(t, "window")
	m.o.ReadAheadBytes = rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(t, "ahead")
	m.o.loadBatch = rapid.SampledFrom([]int{1, 3, 1024}).Draw(t, "batch")
	m.o.punchBytes, m.o.lookEvery = rapid.SampledFrom([]int64{1 << 10, pageBytes}).Draw(t, "punch"), time.Millisecond
	m.o.MaxRuns, m.o.mergeRest = rapid.SampledFrom([]int{2, 3, 128}).Draw(t, "runs"), 1
	m.open()
	defer func() { m.s.Close() }()
	t.Repeat(m.actions())
	m.finish()
	m.tally()
	return m
}

func TestModel(t *testing.T) {
	var puts, crashes, seals, punched, merges int64
	rapid.Check(t, func(t *rapid.T) {
		m := runModel(t)
		puts, crashes, seals, punched = puts+int64(m.n), crashes+int64(m.crashes), seals+m.seals, punched+m.punched
		merges += m.merges
	})
	t.Logf("%d puts, %d crashes, %d seals, %d bytes punched, %d merges", puts, crashes, seals, punched, merges)
}
