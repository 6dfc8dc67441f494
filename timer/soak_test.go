//go:build soak

package timer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What is soaked, by environment: the entries that are pending in the end, those of the burst, and those of one flow
// that are due in one millisecond. TIMER_SOAK_DIR is where the folders are made, on a real disk with 6 GB free.
var (
	soakPending = soakSize("TIMER_SOAK_PENDING", 10_000_000)
	soakBurst   = soakSize("TIMER_SOAK_BURST", 1_000_000)
	soakSameMs  = soakSize("TIMER_SOAK_SAME_MS", 5_000_000)
)

const (
	soakBody = 256
	soakRole = "TIMER_SOAK_ROLE" // makes the test binary a child that is measured, and killed
	soakFew  = 1_000_000         // what the figures with all pending are compared with
)

func soakSize(name string, size int) int {
	if s := os.Getenv(name); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(fmt.Sprintf("%s=%s: %v", name, s, err))
		}
		return n
	}
	return size
}

func soakDir(t *testing.T) string {
	dir, err := os.MkdirTemp(os.Getenv("TIMER_SOAK_DIR"), "timer-soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// The children run before any test does.
func init() {
	if role, dir, ok := strings.Cut(os.Getenv(soakRole), ":"); ok {
		map[string]func(dir string){"fill": soakFill, "open": soakOpen, "rates": soakRates}[role](dir)
		os.Exit(0)
	}
}

// soakReport is what a child says of itself.
type soakReport struct {
	What     string
	Pending  int64
	Steady   int64 // resident bytes as they are
	Settled  int64 // resident bytes once garbage is given back
	Written  int64 // bytes since the start
	Accepted int64 // bytes of put records
	Disk     int64 // bytes that the folder takes

	Rate, EmptyRate float64 // puts per second beside what is pending, and in an empty folder
	CPU, EmptyCPU   float64 // us per put
}

func (r soakReport) tell() {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

func (r soakReport) String() string {
	const mib = 1 << 20
	out := fmt.Sprintf("%s: %d pending", r.What, r.Pending)
	if r.Steady > 0 {
		out += fmt.Sprintf(", resident %d MiB, %d MiB once garbage is given back", r.Steady/mib, r.Settled/mib)
	}
	if r.Written > 0 {
		out += fmt.Sprintf(", written per byte %.2f", float64(r.Written)/float64(r.Accepted))
	}
	if r.Disk > 0 {
		out += fmt.Sprintf(", disk per byte %.2f", float64(r.Disk)/float64(r.Accepted))
	}
	if r.Rate > 0 {
		out += fmt.Sprintf(", %.0f puts/s at %.2f us CPU beside them, %.0f/s at %.2f us in an empty folder", r.Rate, r.CPU, r.EmptyRate, r.EmptyCPU)
	}
	return out
}

// child starts a role in a process of its own and returns its reports. It is killed by the caller, or ends.
func child(t *testing.T, role, dir string) (*exec.Cmd, <-chan soakReport) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), soakRole+"="+role+":"+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reports := make(chan soakReport, 16)
	go func() {
		defer close(reports)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r soakReport
			if err := json.Unmarshal(lines.Bytes(), &r); err == nil {
				reports <- r
			}
		}
	}()
	return cmd, reports
}

func next(t *testing.T, reports <-chan soakReport) soakReport {
	t.Helper()
	r, ok := <-reports
	if !ok {
		t.Fatal("the child ended")
	}
	t.Log(r)
	return r
}

// soakFill puts entries until TIMER_SOAK_PENDING are pending, reports at the marks, and goes on putting until it is killed.
func soakFill(dir string) {
	l := newLoad(soakBody)
	s, disk := openCounting(soakMust{}, dir, l.now)
	start, total := disk.bytes.Load(), 0
	put := func(n int) {
		l.put(soakMust{}, s, n)
		waitSealed(s)
		total += n
	}
	tell := func(what string) {
		time.Sleep(2 * time.Second)
		r := soakReport{What: what, Pending: s.Stats().Pending, Steady: resident(),
			Written: disk.bytes.Load() - start, Accepted: int64(total * l.recordBytes()), Disk: diskBytes(dir)}
		debug.FreeOSMemory()
		r.Settled = resident()
		r.tell()
	}
	put(soakFew)
	tell("few")
	put(soakPending - soakFew)
	tell("all")
	for {
		put(soakFew)
	}
}

// soakRates compares ingest beside what is pending with that of an empty folder: a million entries here and there, in turns.
func soakRates(dir string) {
	l := newLoad(soakBody)
	s, _ := openCounting(soakMust{}, dir, l.now)
	var full, empty sides
	for turn := range 3 {
		beside, _ := openCounting(soakMust{}, fmt.Sprint(dir, "-empty-", turn), l.now)
		for _, x := range []struct {
			s     *Store
			sides *sides
		}{{beside, &empty}, {s, &full}} {
			waitSealed(x.s)
			x.sides.measure(soakFew, func() {
				l.put(soakMust{}, x.s, soakFew)
				waitSealed(x.s)
			})
		}
		beside.Close()
	}
	soakReport{What: "rates", Pending: s.Stats().Pending, Rate: full.perSecond(), EmptyRate: empty.perSecond(), CPU: full.cpuMicros(), EmptyCPU: empty.cpuMicros()}.tell()
	s.Close()
}

// soakOpen opens the folder and says when it is ready.
func soakOpen(dir string) {
	l := newLoad(soakBody)
	s, _ := openCounting(soakMust{}, dir, l.now)
	pending := s.Stats().Pending
	soakReport{What: "ready", Pending: pending}.tell()
	waitSealed(s)
	time.Sleep(2 * time.Second)
	r := soakReport{What: "reopened", Pending: pending, Steady: resident(), Disk: diskBytes(dir), Accepted: pending * int64(l.recordBytes())}
	debug.FreeOSMemory()
	r.Settled = resident()
	r.tell()
	s.Close()
}

// soakMust is a testing.TB for a child: it ends it.
type soakMust struct{ testing.TB }

func (soakMust) Helper()           {}
func (soakMust) Error(args ...any) { soakMust{}.Fatal(args...) }
func (soakMust) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// resident returns the resident memory of this process in bytes.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				panic(err)
			}
			return kb << 10
		}
	}
	panic("no VmRSS")
}

// diskBytes returns what the files in dir take on the disk.
func diskBytes(dir string) int64 {
	out, err := exec.Command("du", "-s", "-B1", dir).Output()
	if err != nil {
		panic(err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(out))[0], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// Ten million entries are as calm as one million: resident memory, ingest, bytes written, disk, and the time to ready
// after a kill.
func TestSoakPending(t *testing.T) {
	dir := filepath.Join(soakDir(t), "store")
	fill, reports := child(t, "fill", dir)
	defer fill.Process.Kill()
	few, all := next(t, reports), next(t, reports)
	time.Sleep(1500 * time.Millisecond) // in the middle of further puts
	fill.Process.Kill()
	fill.Wait()

	begin := time.Now()
	opened, reports := child(t, "open", dir)
	ready := next(t, reports)
	took := time.Since(begin)
	t.Logf("ready after %v", took)
	reopened := next(t, reports)
	opened.Wait()
	ended, reports := child(t, "rates", dir)
	rates := next(t, reports)
	ended.Wait()

	const mib = 1 << 20
	for _, c := range []struct {
		what        string
		have, limit float64
	}{
		{"resident MiB", float64(all.Steady) / mib, 256},
		{"resident, against fewer entries", float64(all.Steady) / float64(few.Steady), 1.1},
		{"resident MiB after a restart", float64(reopened.Steady) / mib, 256},
		{"slower than in an empty folder, by a factor of", rates.EmptyRate / rates.Rate, 1 / 0.85},
		{"bytes written per byte accepted", float64(all.Written) / float64(all.Accepted), 2.5},
		{"disk per byte accepted", float64(all.Disk) / float64(all.Accepted), 1.3},
		{"seconds to ready", took.Seconds(), 2},
	} {
		if c.have > c.limit {
			t.Errorf("%s: %.2f, limit %.2f", c.what, c.have, c.limit)
		}
	}
	if ready.Pending < int64(soakPending) {
		t.Errorf("%d pending after the kill, %d were acknowledged", ready.Pending, soakPending)
	}
}

// A million entries due in one second, and another topic at 100 a second beside them.
func TestSoakBurst(t *testing.T) {
	soakBeside(t, soakBurst, func(i int) int64 { return int64(i) * 1000 / int64(soakBurst) })
}

// Millions of entries of one topic due in one millisecond, fired in windows, and another topic beside them.
func TestSoakSameMillisecond(t *testing.T) {
	soakBeside(t, soakSameMs, func(int) int64 { return 0 })
}

// soakBeside puts n entries of one flow, due at start + after(i), and while they fire 100 a second of another flow, each a
// second before it is due. Everything fires; the other flow is at the sink within 50 ms of its due times.
func soakBeside(t *testing.T, n int, after func(i int) int64) {
	const limit = 50 // ms
	var shift atomic.Int64
	now := func() int64 { return time.Now().UnixMilli() + shift.Load() }
	s, _ := openCounting(t, filepath.Join(soakDir(t), "store"), now)
	defer mustClose(t, s)
	start := now() + time.Hour.Milliseconds()
	l := newLoad(soakBody)
	l.names = []Flow{{"broker-a", "burst"}}
	l.due = func(i int) int64 { return start + after(i) }
	l.put(t, s, n)
	waitSealed(s)
	shift.Store(start - 3000 - now()) // it begins in three seconds

	b := &besides{t: t, s: s, now: now, start: start, flow: Flow{"broker-b", "beside"}, n: n, over: make(chan struct{})}
	work := make(chan []Item, n)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() { b.deliver(work) })
	}
	s.Start(func(items []Item) {
		b.count(items)
		work <- items
	})
	b.put() // until the burst is over
	took := now() - start
	for s.Stats().Pending > 0 {
		time.Sleep(time.Millisecond)
	}
	close(work)
	workers.Wait()
	slices.Sort(b.late)
	p := func(q float64) int64 { return b.late[min(len(b.late)-1, int(q*float64(len(b.late))))] }
	t.Logf("%d fired in %d ms; the other topic: %d entries, lateness p50 %d ms, p99 %d ms, max %d ms",
		n, took, len(b.late), p(0.5), p(0.99), p(1))
	if p(0.99) > limit {
		t.Errorf("p99 lateness of the other topic: %d ms, limit %d", p(0.99), limit)
	}
}

// besides watches what fires.
type besides struct {
	t     *testing.T
	s     *Store
	now   func() int64
	start int64
	flow  Flow // the one that is to be on time
	n     int  // entries of the other
	over  chan struct{}
	late  []int64 // ms, of those that are due once the burst has begun
}

// count is called by the firing goroutine only.
func (b *besides) count(items []Item) {
	at := b.now()
	for _, it := range items {
		if it.Due > at {
			b.t.Errorf("lsn %d is early by %d ms", it.LSN, it.Due-at)
		}
		switch {
		case it.Flow != b.flow:
			if b.n--; b.n == 0 {
				close(b.over)
			}
		case it.Due >= b.start:
			b.late = append(b.late, at-it.Due)
		}
	}
}

func (b *besides) deliver(work <-chan []Item) {
	for items := range work {
		for _, it := range items {
			if _, err := b.s.Load(it); err != nil {
				b.t.Error(err)
			}
			b.s.Settle(it)
		}
	}
}

// put puts the entries that are to be on time, until the others have fired.
func (b *besides) put() {
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-b.over:
			tick.Stop()
			return
		case <-tick.C:
		}
		if _, err := putWait(b.s, &Entry{Flow: b.flow, Due: b.now() + 1000, Key: "k", Body: make([]byte, soakBody)}); err != nil {
			b.t.Error(err)
		}
	}
}
