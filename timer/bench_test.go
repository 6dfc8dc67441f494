package timer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delaygate/delaygate/timer/vfs"
)

// The benchmarks run the store beside a plain append of the same bytes to the same disk in the same run: only the ratio of
// the two can be compared between machines and days. Both write what 256 puts bring with about one write and one
// fdatasync. CPU is user and system time of the whole process.

const (
	benchGroup  = 256
	benchWindow = 2 * benchGroup // unanswered puts: one group fills while the other is written
	benchRounds = 2              // the two sides take turns
	benchFlows  = 16
	benchAhead  = 40 * 24 * time.Hour
	benchKey    = 32
)

var benchBodies = []int{256, 1024}

// BenchmarkPut puts entries that are due over 40 days and waits until all that is full is sealed.
func BenchmarkPut(b *testing.B) {
	for _, size := range benchBodies {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			l := newLoad(size)
			plain := newPlain(b, l.recordBytes())
			s, disk := openCounting(b, filepath.Join(b.TempDir(), "store"), l.now)
			defer s.Close()
			var a, p sides
			syncs := disk.syncs.Load()
			b.ResetTimer()
			for left, turn := b.N, benchRounds; turn > 0; turn-- {
				n := left / turn
				left -= n
				p.measure(n, func() { plain.append(b, n) })
				a.measure(n, func() {
					l.put(b, s, n)
					waitSealed(s)
				})
			}
			b.StopTimer()
			report(b, &a, &p)
			b.ReportMetric(float64(a.n)/float64(disk.syncs.Load()-syncs), "puts/sync")
			b.ReportMetric(float64(disk.bytes.Load())/float64(a.n*l.recordBytes()), "written/B")
		})
	}
}

// BenchmarkFire fires, loads and settles entries that all lie in runs that nobody has read.
func BenchmarkFire(b *testing.B) {
	for _, size := range benchBodies {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			l := newLoad(size)
			plain := newPlain(b, l.recordBytes())
			dir := filepath.Join(b.TempDir(), "store")
			s, _ := openCounting(b, dir, l.now)
			l.put(b, s, b.N)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			s, disk := openCounting(b, dir, l.now)
			defer s.Close()
			for s.Stats().Segments > 1 { // an Open leaves the last segment full
				time.Sleep(time.Millisecond)
			}
			dropCache(b, dir)
			before := disk.bytes.Load()
			var a, p sides
			b.ResetTimer()
			p.measure(b.N, func() { plain.append(b, b.N) })
			a.measure(b.N, func() { l.fire(b, s, b.N) })
			b.StopTimer()
			report(b, &a, &p)
			b.ReportMetric(float64(disk.bytes.Load()-before)/float64(b.N), "written-B/msg")
		})
	}
}

// openCounting opens a store whose writes are counted.
func openCounting(b testing.TB, dir string, now func() int64) (*Store, *countingFS) {
	disk := &countingFS{FS: vfs.OS{}}
	o := DefaultOptions()
	o.Dir, o.FS, o.Now = dir, disk, now
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	return s, disk
}

func waitSealed(s *Store) {
	for s.Stats().Segments > 1 {
		time.Sleep(100 * time.Microsecond)
	}
}

// dropCache makes the runs in dir be read from the disk.
func dropCache(b *testing.B, dir string) {
	names, err := filepath.Glob(filepath.Join(dir, "run-*"))
	if err != nil || len(names) == 0 {
		b.Fatalf("no runs in %s: %v", dir, err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

// load makes entries. Its clock stands still until fire makes everything due.
type load struct {
	clock atomic.Int64
	rng   *rand.Rand
	entry Entry
	names []Flow
	due   func(i int) int64
}

func newLoad(size int) *load {
	l := &load{rng: rand.New(rand.NewPCG(1, 1))}
	l.clock.Store(time.Now().UnixMilli())
	l.entry.Key = fmt.Sprintf("%0*d", benchKey, 7)
	l.entry.Body = make([]byte, size)
	for i := range l.entry.Body {
		l.entry.Body[i] = byte(l.rng.Uint32())
	}
	for i := range benchFlows {
		l.names = append(l.names, Flow{Broker: "broker-a", Topic: fmt.Sprintf("topic-%02d", i)})
	}
	l.due = func(int) int64 { return l.now() + 3_600_000 + l.rng.Int64N(benchAhead.Milliseconds()) }
	return l
}

func (l *load) now() int64 { return l.clock.Load() }

// recordBytes is the size of a put record, padded.
func (l *load) recordBytes() int {
	return (40 + len("broker-a") + len("topic-00") + benchKey + len(l.entry.Body) + 7) &^ 7
}

// answers counts what was answered.
type answers struct {
	n    atomic.Int64
	more chan struct{}
}

func newAnswers() *answers { return &answers{more: make(chan struct{}, 1)} }

func (x *answers) add() {
	x.n.Add(1)
	poke(x.more)
}

// wait waits for n answers.
func (x *answers) wait(n int) {
	for x.n.Load() < int64(n) {
		<-x.more
	}
}

// put puts n entries, at most benchWindow of them unanswered.
func (l *load) put(b testing.TB, s *Store, n int) {
	x := newAnswers()
	done := func(err error) {
		if err != nil {
			b.Error(err)
		}
		x.add()
	}
	for i := range n {
		x.wait(i - benchWindow)
		l.entry.Flow = l.names[i%len(l.names)]
		l.entry.Lane = uint16(i % 8)
		l.entry.Due = l.due(i)
		if _, err := s.Put(&l.entry, done); err != nil {
			b.Fatal(err)
		}
	}
	x.wait(n)
}

// fire makes everything due and returns when all n entries are loaded and settled and their space is given back.
func (l *load) fire(b *testing.B, s *Store, n int) {
	l.clock.Add(2 * benchAhead.Milliseconds())
	s.Start(func(items []Item) {
		for _, it := range items {
			if _, err := s.Load(it); err != nil {
				b.Error(err)
			}
			s.Settle(it)
		}
	})
	for s.Stats().Pending > 0 || s.Stats().Runs > 0 {
		time.Sleep(time.Millisecond)
	}
}

// sides sums up what one side took.
type sides struct {
	n         int
	wall, cpu time.Duration
}

func (s *sides) measure(n int, work func()) {
	start, cpu := time.Now(), cpuTime()
	work()
	s.wall += time.Since(start)
	s.cpu += cpuTime() - cpu
	s.n += n
}

func (s *sides) perSecond() float64 { return float64(s.n) / s.wall.Seconds() }

func (s *sides) cpuMicros() float64 { return float64(s.cpu.Nanoseconds()) / 1000 / float64(s.n) }

func report(b *testing.B, store, plain *sides) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(store.perSecond(), "msg/s")
	b.ReportMetric(store.cpuMicros(), "cpu-us/msg")
	b.ReportMetric(plain.perSecond(), "plain-msg/s")
	b.ReportMetric(plain.cpuMicros(), "plain-cpu-us/msg")
	b.ReportMetric(store.perSecond()/plain.perSecond(), "ratio")
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// plain appends groups to files that were filled with zeros before, one after the other, over and over.
type plain struct {
	files []vfs.File
	at    int64
	group []byte
	size  int // of a record
}

const (
	plainFiles     = 3
	plainFileBytes = 64 << 20
)

func newPlain(b *testing.B, size int) *plain {
	p := &plain{group: make([]byte, size*benchGroup), size: size}
	zeros := make([]byte, 1<<20)
	for i := range plainFiles {
		f, err := vfs.OS{}.Create(filepath.Join(b.TempDir(), fmt.Sprint("plain", i)))
		if err != nil {
			b.Fatal(err)
		}
		for off := int64(0); off < plainFileBytes; off += int64(len(zeros)) {
			if _, err := f.WriteAt(zeros, off); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Sync(false); err != nil {
			b.Fatal(err)
		}
		p.files = append(p.files, f)
		b.Cleanup(func() { f.Close() })
	}
	return p
}

func (p *plain) append(b *testing.B, n int) {
	for n > 0 {
		part := p.group[:min(n, benchGroup)*p.size]
		n -= benchGroup
		if p.at+int64(len(part)) > plainFileBytes {
			p.files = append(p.files[1:], p.files[0])
			p.at = 0
		}
		f := p.files[0]
		if _, err := f.WriteAt(part, p.at); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(true); err != nil {
			b.Fatal(err)
		}
		p.at += int64(len(part))
	}
}

// countingFS counts what is written.
type countingFS struct {
	vfs.FS
	bytes, writes, syncs atomic.Int64
}

func (c *countingFS) Create(path string) (vfs.File, error) { return c.wrap(c.FS.Create(path)) }
func (c *countingFS) Open(path string) (vfs.File, error)   { return c.wrap(c.FS.Open(path)) }

func (c *countingFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countingFile{f, c}, nil
}

type countingFile struct {
	vfs.File
	c *countingFS
}

func (f countingFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.c.bytes.Add(int64(n))
	f.c.writes.Add(1)
	return n, err
}

func (f countingFile) Sync(data bool) error {
	f.c.syncs.Add(1)
	return f.File.Sync(data)
}

// BenchmarkSettle fires entries that are due 5000 a second or all at once, and settles each as a delivery
// would: one at a time, a moment after it fired.
func BenchmarkSettle(b *testing.B) {
	for _, rate := range []int{5000, 0} {
		name := "full-speed"
		if rate > 0 {
			name = fmt.Sprint(rate, "per-s")
		}
		b.Run(name, func(b *testing.B) {
			l := newLoad(256)
			s, disk := openCounting(b, filepath.Join(b.TempDir(), "store"), func() int64 { return time.Now().UnixMilli() })
			defer s.Close()
			l.clock.Store(time.Now().UnixMilli() + 2000)
			l.due = func(i int) int64 {
				if rate == 0 {
					return l.now()
				}
				return l.now() + int64(i)*1000/int64(rate)
			}
			l.put(b, s, b.N)
			time.Sleep(time.Until(time.UnixMilli(l.now())))
			fired := make(chan Item, b.N)
			go func() {
				for it := range fired {
					s.Settle(it)
				}
			}()
			before, writes := disk.bytes.Load(), disk.writes.Load()
			var a sides
			b.ResetTimer()
			a.measure(b.N, func() {
				s.Start(func(items []Item) {
					for _, it := range items {
						fired <- it
					}
				})
				for s.Stats().Pending > 0 {
					time.Sleep(5 * time.Millisecond)
				}
			})
			b.StopTimer()
			close(fired)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(a.perSecond(), "msg/s")
			b.ReportMetric(a.cpuMicros(), "cpu-us/msg")
			b.ReportMetric(float64(b.N)/float64(disk.writes.Load()-writes), "msg/write")
			b.ReportMetric(float64(disk.bytes.Load()-before)/float64(b.N), "written-B/msg")
		})
	}
}

// BenchmarkSettleIsWritten measures how long a lane waits for its settle to be written, at 5000 a second, while
// about 20 000 puts a second keep the disk busy with syncs.
func BenchmarkSettleIsWritten(b *testing.B) {
	l := newLoad(256)
	s, _ := openCounting(b, filepath.Join(b.TempDir(), "store"), func() int64 { return time.Now().UnixMilli() })
	defer s.Close()
	start := time.Now().UnixMilli() + 3000
	l.due = func(i int) int64 { return start + int64(i)/5 }
	l.put(b, s, b.N)
	time.Sleep(time.Until(time.UnixMilli(start)))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		flood := newLoad(256)
		for {
			select {
			case <-stop:
				return
			default:
				flood.put(b, s, 200)
				time.Sleep(9 * time.Millisecond)
			}
		}
	}()
	waits := make(chan time.Duration, b.N)
	b.ResetTimer()
	s.Start(func(items []Item) {
		for _, it := range items {
			at := time.Now()
			s.SettleThen(it, func() { waits <- time.Since(at) })
		}
	})
	all := make([]time.Duration, b.N)
	for i := range all {
		all[i] = <-waits
	}
	b.StopTimer()
	close(stop)
	<-stopped
	slices.Sort(all)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(all[len(all)-1].Microseconds()), "max-us")
}
