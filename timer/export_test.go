package timer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/delaygate/delaygate/timer/vfs"
)

// hookWriter calls a function before each write.
type hookWriter struct {
	bytes.Buffer
	before func(n int)
	n      int
}

func (w *hookWriter) Write(b []byte) (int, error) {
	if w.n++; w.before != nil {
		w.before(w.n)
	}
	return w.Buffer.Write(b)
}

func export(t fataler, s *Store, q Filter) []byte {
	t.Helper()
	var w bytes.Buffer
	x, err := s.Export(context.Background(), &w, q)
	if err != nil || x.Bytes != int64(w.Len()) {
		t.Fatalf("export: %+v of %d bytes, %v", x, w.Len(), err)
	}
	return w.Bytes()
}

// wantNoReaders: who has read the files has let go of them. The loader and the janitor may be at work.
func wantNoReaders(t fataler, s *Store) {
	t.Helper()
	for end := time.Now().Add(modelPatience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		refs := 0
		for _, g := range s.segs {
			refs += g.refs
		}
		for _, r := range s.runs {
			refs += r.refs
		}
		for _, d := range s.trash {
			refs += d.refs
		}
		s.mu.Unlock()
		if refs == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d references to files are left", refs)
		}
	}
}

// said is all that an entry says.
func said(e Entry) string {
	return fmt.Sprintf("%q %q %d %d %q %q %d %08x", e.Flow.Broker, e.Flow.Topic, e.Lane, e.Due, e.Key, e.Keys, len(e.Body), checksum(0, e.Body))
}

// content is what is pending in a store, as a multiset without LSNs.
func content(t fataler, s *Store) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, row := range listAll(t, func() *Store { return s }, Query{Limit: 1000}, nil) {
		e, _, err := s.Get(row.Due, row.LSN)
		if err != nil {
			t.Fatalf("%v", err)
		}
		all[said(e)]++
	}
	return all
}

func (m *scanModel) content() map[string]int {
	all := map[string]int{}
	for _, e := range m.entries {
		all[said(e)]++
	}
	return all
}

// Puts, settles, cancels, seals and merges go on during an export: what is pending from the beginning to the end is in it once, in order, and
// nothing that was settled before, nor that was put later.
func TestExportWhileEntriesComeAndGo(t *testing.T) {
	steps := 0
	rapid.Check(t, func(rt *rapid.T) {
		m := newScanModel(rt)
		defer func() { m.s.Close() }()
		m.o.scanLines = rapid.SampledFrom([]int{1, 20, 300}).Draw(rt, "lines")
		m.restart()
		m.putMany(m.rng.IntN(150))
		m.settle(m.rng.Int64N(2_000_000), m.rng.IntN(20))
		before := m.snapshot()
		w := hookWriter{before: func(n int) {
			if steps++; n < 10 {
				m.putMany(m.rng.IntN(30))
				m.settle(m.rng.Int64N(2_000_000), m.rng.IntN(20))
				m.cancel(m.rng.IntN(20))
			}
		}}
		x, err := m.s.Export(context.Background(), &w, Filter{})
		if err != nil || x.Damaged != 0 {
			rt.Fatalf("%+v, %v", x, err)
		}
		wantNoReaders(rt, m.s)
		got, err := readPort(&w.Buffer)
		if err != io.EOF || int64(len(got)) != x.Entries {
			rt.Fatalf("%d entries are in it, %+v, %v", len(got), x, err)
		}
		if !slices.IsSortedFunc(got, func(a, b Entry) int { return int(a.Due - b.Due) }) {
			rt.Fatalf("not sorted by due time")
		}
		must, may := map[string]int{}, map[string]int{}
		for k, e := range before.pending {
			if may[said(e)]++; !m.gone[k] {
				must[said(e)]++
			}
		}
		for _, e := range got {
			may[said(e)]--
			must[said(e)]--
		}
		for e, n := range may {
			if n < 0 {
				rt.Fatalf("too often in it: %s", e)
			}
		}
		for e, n := range must {
			if n > 0 {
				rt.Fatalf("not in it: %s", e)
			}
		}
	})
	t.Logf("%d steps", steps)
	if steps < 50 {
		t.Fatalf("only %d steps", steps)
	}
}

// From one store into another, through a line that breaks at random and an import that is begun anew after each: in the end there is
// exactly what there was.
func TestImportAfterInterruptions(t *testing.T) {
	broken, skipped := 0, int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		m := newScanModel(rt)
		defer func() { m.s.Close() }()
		m.putMany(m.rng.IntN(200))
		twins := m.rng.IntN(6) // two messages with nothing that tells them apart
		for range twins {
			e := Entry{Flow: Flow{"b1", "t1"}, Due: m.clock.Load() + 5000, Body: []byte("twin")}
			lsn, err := putWait(m.s, &e)
			if err != nil {
				rt.Fatalf("%v", err)
			}
			m.entries[key{e.Due, lsn}] = e
		}
		m.settle(m.rng.Int64N(2_000_000), m.rng.IntN(20))
		stream := export(rt, m.s, Filter{})

		to := newScanModel(rt)
		defer func() { to.s.Close() }()
		to.name = "other"
		to.putMany(m.rng.IntN(30))
		want := to.content()
		for e, n := range m.content() {
			want[e] += n
		}
		for range rapid.IntRange(0, 3).Draw(rt, "interruptions") {
			cut := m.rng.IntN(len(stream))
			im, err := to.s.Import(context.Background(), bytes.NewReader(stream[:cut]))
			if !errors.Is(err, ErrDamagedExport) || im.Read != im.Taken+im.Skipped {
				rt.Fatalf("cut at %d: %+v, %v", cut, im, err)
			}
			broken++
			to.restart()
		}
		for _, first := range []bool{true, false} {
			im, err := to.s.Import(context.Background(), bytes.NewReader(stream))
			if err != nil || im.Read != int64(len(m.entries)) || im.Taken+im.Skipped != im.Read || !first && im.Taken > 0 {
				rt.Fatalf("first %v: %+v of %d, %v", first, im, len(m.entries), err)
			}
			skipped += im.Skipped
			wantNoReaders(rt, to.s)
			if got := content(rt, to.s); !maps.Equal(got, want) {
				rt.Fatalf("first %v: %d entries, want %d", first, len(got), len(want))
			}
		}
	})
	t.Logf("%d interruptions, %d skipped", broken, skipped)
	if broken < 5 {
		t.Fatal("too few to say anything")
	}
}

func TestImportComparesWhatMakesAnEntryTheSame(t *testing.T) {
	there := Entry{Flow: Flow{"b", "t"}, Lane: 1, Due: rigNow + 5000, Key: "key", Keys: "x", Body: []byte("body")}
	nameless := Entry{Flow: Flow{"b", "t"}, Lane: 1, Due: rigNow + 5000, Keys: "x", Body: []byte("body")}
	with := func(e Entry, change func(*Entry)) Entry { change(&e); return e }
	for name, tc := range map[string]struct {
		in   []Entry
		skip int64
	}{
		"the same":                      {[]Entry{there}, 1},
		"the same twice":                {[]Entry{there, there}, 1},
		"other body":                    {[]Entry{with(there, func(e *Entry) { e.Body = nil })}, 1},
		"other broker":                  {[]Entry{with(there, func(e *Entry) { e.Flow.Broker = "c" })}, 1},
		"other due":                     {[]Entry{with(there, func(e *Entry) { e.Due++ })}, 0},
		"other topic":                   {[]Entry{with(there, func(e *Entry) { e.Flow.Topic = "u" })}, 0},
		"other key":                     {[]Entry{with(there, func(e *Entry) { e.Key = "l" })}, 0},
		"names that run together":       {[]Entry{with(there, func(e *Entry) { e.Flow.Topic, e.Key = "tke", "y" })}, 0},
		"no key":                        {[]Entry{nameless}, 1},
		"no key, twice":                 {[]Entry{nameless, nameless}, 1},
		"no key, other body":            {[]Entry{with(nameless, func(e *Entry) { e.Body = nil })}, 0},
		"no key, other broker":          {[]Entry{with(nameless, func(e *Entry) { e.Flow.Broker = "c" })}, 0},
		"no key, other lane":            {[]Entry{with(nameless, func(e *Entry) { e.Lane |= 1 << 8 })}, 0},
		"no key, other business keys":   {[]Entry{with(nameless, func(e *Entry) { e.Keys = "" })}, 0},
		"backwards, both there":         {[]Entry{with(there, func(e *Entry) { e.Due += 9 }), there, nameless}, 2},
		"the first millisecond of time": {[]Entry{with(there, func(e *Entry) { e.Due = -1 << 63 })}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, e := range []Entry{there, nameless} {
				if _, err := putWait(r.s, &e); err != nil {
					t.Fatal(err)
				}
			}
			stream, _ := portStream(1, tc.in)
			im, err := r.s.Import(context.Background(), bytes.NewReader(stream))
			if want := (Imported{Read: int64(len(tc.in)), Skipped: tc.skip, Taken: int64(len(tc.in)) - tc.skip}); err != nil || im != want {
				t.Errorf("%+v, want %+v; %v", im, want, err)
			}
			r.wantPending(2 + im.Taken)
		})
	}
}

// What the import itself has put is not taken for what was there.
func TestImportOfTwinsOutOfOrder(t *testing.T) {
	r := newRig(t)
	twin := Entry{Flow: Flow{"b", "t"}, Due: rigNow + 9000, Body: []byte("twin")}
	stream, frames := portStream(1, []Entry{twin, {Flow: Flow{"b", "t"}, Due: rigNow + 5000}, twin})
	first := bytes.NewReader(stream[:frames[1]])
	rest := lazyReader{make: func() io.Reader {
		r.until("the first is pending", func() bool { return r.s.Stats().Pending == 1 })
		return bytes.NewReader(stream[frames[1]:])
	}}
	im, err := r.s.Import(context.Background(), io.MultiReader(first, &rest))
	if err != nil || im.Taken != 3 {
		t.Fatalf("%+v, %v", im, err)
	}
}

// lazyReader makes its reader when it is first read from.
type lazyReader struct {
	make func() io.Reader
	r    io.Reader
}

func (l *lazyReader) Read(b []byte) (int, error) {
	if l.r == nil {
		l.r = l.make()
	}
	return l.r.Read(b)
}

// More entries in one millisecond, and in all, than are compared at a time.
func TestImportOfMoreThanAWindow(t *testing.T) {
	r := newRig(t)
	r.o.scanLines = 20
	r.kill(false)
	n := 3 * r.o.importWindow
	var entries []Entry
	for i := range n {
		entries = append(entries, Entry{Flow: Flow{"b", "t"}, Due: rigNow + 1000 + int64(i/(n/2)), Key: fmt.Sprint(i), Body: body(i, 150)})
	}
	for i := range 100 {
		entries = append(entries, Entry{Flow: Flow{"b", "t"}, Due: rigNow + 9000, Key: fmt.Sprint(i)})
	}
	stream, _ := portStream(1, entries)
	all := int64(len(entries))
	for _, want := range []Imported{{all, all, 0}, {all, 0, all}} {
		im, err := r.s.Import(context.Background(), bytes.NewReader(stream))
		if err != nil || im != want {
			t.Fatalf("%+v, want %+v; %v", im, want, err)
		}
		r.until("most are in runs", func() bool { return r.s.Stats().Segments == 1 })
	}
	if got, _ := portStreamOf(t, r.s); !sameEntries(got, entries) {
		t.Fatalf("%d entries come back, want %d", len(got), len(entries))
	}
}

func portStreamOf(t fataler, s *Store) ([]Entry, error) {
	t.Helper()
	return readPort(bytes.NewReader(export(t, s, Filter{})))
}

func TestExportOfATopic(t *testing.T) {
	r := newRig(t)
	for i := range 40 {
		e := Entry{Flow: Flow{"b", fmt.Sprint("t", i%4)}, Due: rigNow + int64(i)*1000, Key: fmt.Sprint(i), Body: body(i, 2000)}
		if _, err := putWait(r.s, &e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readPort(bytes.NewReader(export(t, r.s, Filter{Topic: "t2", From: rigNow + 6000, To: rigNow + 22_000})))
	var keys []string
	for _, e := range got {
		keys = append(keys, e.Key)
	}
	if err != io.EOF || !slices.Equal(keys, []string{"6", "10", "14", "18"}) {
		t.Fatalf("%v, %v", keys, err)
	}
}

func TestExportLeavesDamagedRecordsOutAndSaysSo(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		r := newRig(t)
		lsns := r.put(9, 50_000, 600)
		for sealed && r.s.Stats().Seals == 0 {
			r.put(1, 60_000, 2000)
		}
		sc, err := r.s.scan(scanQuery{rows: 100, highest: maxLSN})
		if err != nil {
			t.Fatal(err)
		}
		bad := sc.rows[4]
		if (bad.home.run != nil) != sealed || bad.lsn != lsns[4] {
			t.Fatalf("sealed %v: %+v", sealed, bad)
		}
		r.flip(bad.home.path[len("/data/"):], bad.off+headBytes+100)
		sc.close()
		var w bytes.Buffer
		x, err := r.s.Export(context.Background(), &w, Filter{To: rigNow + 55_000})
		if err != nil || x.Entries != 8 || x.Damaged != 1 {
			t.Fatalf("sealed %v: %+v, %v", sealed, x, err)
		}
		got, err := readPort(&w)
		if err != io.EOF || len(got) != 8 || slices.ContainsFunc(got, func(e Entry) bool { return e.Key == "4" }) {
			t.Fatalf("sealed %v: %d entries, %v", sealed, len(got), err)
		}
	}
}

// An entry is settled, and its record given back to the disk, while the export comes to read it.
func TestExportLeavesOutWhatIsSettledMeanwhile(t *testing.T) {
	r := newRig(t)
	r.put(3, 0, 100)
	seg := r.segment()
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op != vfs.OpRead || r.s.Stats().Pending < 3 {
			return nil
		}
		items, _, _, _ := r.s.due(rigNow)
		r.s.Settle(items[1])
		r.flip(fileName(segPrefix, seg.id), seg.entries[1].off+headBytes+2)
		return nil
	})
	x, err := r.s.Export(context.Background(), io.Discard, Filter{})
	if err != nil || x.Entries != 2 || x.Damaged != 0 {
		t.Fatalf("%+v, %v", x, err)
	}
}

func TestExportEndsWithItsContextAndItsWriter(t *testing.T) {
	r := newRig(t)
	r.put(10, 1000, 10)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.s.Export(ctx, io.Discard, Filter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	full := errors.New("pipe is closed")
	if _, err := r.s.Export(context.Background(), failingWriter{full}, Filter{}); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	r.s.Close()
	if _, err := r.s.Export(context.Background(), io.Discard, Filter{}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// The writer of the log is held up: Put says that it is busy, and the import waits; cancelled, it ends and tells what it had taken.
func TestImportWaitsWhileTheStoreIsBusy(t *testing.T) {
	r := newRig(t)
	r.o.GroupBytes = 4096
	r.kill(false)
	var entries []Entry
	for i := range 300 {
		entries = append(entries, Entry{Flow: Flow{"b", "t"}, Due: rigNow + 50_000, Key: fmt.Sprint(i), Body: body(i, 1000)})
	}
	stream, _ := portStream(1, entries)
	held, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpSync && bytes.HasPrefix([]byte(path), []byte("/data/"+segPrefix)) {
			once.Do(func() { close(held) })
			<-let
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	type result struct {
		im  Imported
		err error
	}
	done := make(chan result, 1)
	go func() {
		im, err := r.s.Import(ctx, bytes.NewReader(stream))
		done <- result{im, err}
	}()
	<-held
	r.until("puts are refused", func() bool {
		_, err := r.s.Put(&Entry{Due: rigNow + 90_000, Body: body(1, 1000)}, func(error) {})
		return errors.Is(err, ErrBusy)
	})
	select {
	case res := <-done:
		t.Fatalf("it did not wait: %+v, %v", res.im, res.err)
	default:
	}
	cancel()
	close(let)
	res := <-done
	if !errors.Is(res.err, context.Canceled) || res.im.Taken == 0 || res.im.Taken >= 300 {
		t.Fatalf("%+v, %v", res.im, res.err)
	}
	im, err := r.s.Import(context.Background(), bytes.NewReader(stream))
	if err != nil || im.Taken+res.im.Taken != 300 || im.Skipped != res.im.Taken {
		t.Fatalf("after %+v: %+v, %v", res.im, im, err)
	}
}

func TestImportSaysWhatTheDiskSaid(t *testing.T) {
	r := newRig(t)
	var entries []Entry
	for i := range 400 {
		entries = append(entries, Entry{Flow: Flow{"b", "t"}, Due: rigNow + 50_000, Key: fmt.Sprint(i), Body: body(i, 500)})
	}
	stream, _ := portStream(1, entries)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpCreate || op == vfs.OpWrite {
			return &vfs.Fault{Err: fmt.Errorf("%w: %w", errInjected, syscall.ENOSPC)}
		}
		return nil
	})
	im, err := r.s.Import(context.Background(), bytes.NewReader(stream))
	if !errors.Is(err, ErrFull) || im.Taken != 0 {
		t.Fatalf("%+v, %v", im, err)
	}
	r.fs.Set(nil)
	r.until("the import is taken", func() bool {
		_, err := r.s.Import(context.Background(), bytes.NewReader(stream))
		return err == nil
	})
	if got, _ := portStreamOf(t, r.s); !sameEntries(got, entries) {
		t.Fatalf("%d entries come back, want %d", len(got), len(entries))
	}
	r.s.Close()
	if _, err := r.s.Import(context.Background(), bytes.NewReader(stream)); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestImportOfAnEntryThatIsTooLarge(t *testing.T) {
	r := newRig(t)
	entries := []Entry{
		{Flow: Flow{"b", "t"}, Due: rigNow + 1, Key: "small"},
		{Flow: Flow{"b", "t"}, Due: rigNow + 2, Key: "large", Body: make([]byte, minSegmentBytes)},
	}
	stream, _ := portStream(1, entries)
	im, err := r.s.Import(context.Background(), bytes.NewReader(stream))
	if !errors.Is(err, ErrTooLarge) || im.Taken != 1 {
		t.Fatalf("%+v, %v", im, err)
	}
}
