package timer

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
)

// logBuffer collects what a store logs.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines returns the lines that have all these parts.
func (l *logBuffer) lines(parts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(l.b.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			out = append(out, line)
		}
	}
	return out
}

// damageRig is a store with one sealed run of many pages, and what is in it.
type damageRig struct {
	*rig
	log  *logBuffer
	run  *run
	lsns []LSN        // of all entries, those of the run first, in order of their number there
	done map[LSN]bool // settled before the damage
	lost int64        // what stores before this one counted as lost
}

const (
	damageEntries = 400 // four index pages
	damageHours   = 3
)

func newEmptyDamageRig(t *testing.T) *damageRig {
	t.Helper()
	d := &damageRig{rig: newRig(t), log: &logBuffer{}}
	d.o.SegmentBytes = 128 << 10
	d.o.Log = slog.New(slog.NewTextHandler(d.log, nil))
	d.kill(false)
	return d
}

// newDamageRig puts entries of two flows over three hours, in an order that is not that of their due times, and waits until they are
// sealed.
func newDamageRig(t *testing.T) *damageRig {
	t.Helper()
	d := newEmptyDamageRig(t)
	for i := range damageEntries {
		d.putOne(i, 60)
	}
	for i := damageEntries; d.s.Stats().Seals == 0; i++ {
		d.putOne(i, 20_000)
	}
	d.find()
	return d
}

func (d *damageRig) putOne(i, size int) {
	d.t.Helper()
	e := &Entry{
		Flow: Flow{"b", fmt.Sprint("topic", i%2)}, Lane: uint16(i % 4), Key: fmt.Sprint("key", i), Body: body(i, size),
		Due: rigNow + 5000 + int64(i*7%damageEntries)*damageHours*hourMs/damageEntries,
	}
	lsn, err := putWait(d.s, e)
	if err != nil {
		d.t.Fatal(err)
	}
	d.lsns = append(d.lsns, lsn)
}

// find looks up the run and puts lsns into its order.
func (d *damageRig) find() {
	d.t.Helper()
	d.s.mu.Lock()
	d.run = d.s.runs[0]
	d.s.mu.Unlock()
	var sealed []LSN
	for _, x := range d.lines() {
		sealed = append(sealed, x.lsn)
	}
	rest := slices.DeleteFunc(d.lsns, func(lsn LSN) bool { return slices.Contains(sealed, lsn) })
	d.lsns = append(sealed, rest...)
}

// lines returns the index of the run.
func (d *damageRig) lines() []indexEntry {
	d.t.Helper()
	var lines []indexEntry
	b := make([]byte, pageBytes)
	for page := range d.run.pages {
		if err := d.run.readRawPage(page, b); err != nil {
			d.t.Fatal(err)
		}
		for i := range d.run.pageLen(page) {
			lines = append(lines, pageEntry(b, i))
		}
	}
	return lines
}

// inSegment returns where the record of an entry lies that is not sealed.
func (r *rig) inSegment(lsn LSN) (file string, off int64) {
	r.t.Helper()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, g := range r.s.segs {
		if e := g.find(lsn); e != nil {
			return fileName(segPrefix, g.id), e.off
		}
	}
	r.t.Fatalf("lsn %d is in no segment", lsn)
	return "", 0
}

// ord counts negative numbers from the end of the run.
func (d *damageRig) ord(n int) int {
	if n < 0 {
		return d.run.entries + n
	}
	return n
}

// reopen closes the store and opens it again.
func (d *damageRig) reopen() {
	d.t.Helper()
	mustClose(d.t, d.s)
	d.mem = d.mem.AfterKill()
	d.open()
}

func (d *damageRig) runName() string { return fileName(runPrefix, d.run.id) }

// overwrite changes bytes of a file.
func (r *rig) overwrite(name string, off int64, b []byte) {
	r.t.Helper()
	f, err := r.mem.Open("/data/" + name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, off); err != nil {
		r.t.Fatal(err)
	}
	f.Sync(true)
}

func (r *rig) truncate(name string, size int64) {
	r.t.Helper()
	f, err := r.mem.Open("/data/" + name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		r.t.Fatal(err)
	}
	f.Sync(true)
}

// settle fires and settles everything up to the run's entry number n, until MANIFEST knows of it, and stops the store.
func (d *damageRig) settle(n int) {
	d.t.Helper()
	last := d.lines()[n]
	d.clock.Store(last.due)
	d.s.Start(d.c.sink)
	d.done = map[LSN]bool{}
	d.until("the first entries", func() bool {
		for _, it := range d.c.take() {
			d.done[it.LSN] = true
			d.s.Settle(it)
		}
		return d.done[last.lsn]
	})
	for i, seals := damageEntries, d.s.Stats().Seals; d.s.Stats().Seals == seals; i++ {
		d.putOne(i, 20_000)
	}
	mustClose(d.t, d.s)
	d.mem = d.mem.AfterKill()
}

// deliver fires and settles all that is pending. It returns what was delivered, sorted.
func (r *rig) deliver() []LSN {
	r.t.Helper()
	got := r.deliverUntil(func(int) bool {
		checkInvariants(r.t, r.s)
		return r.s.Stats().Pending == 0
	})
	return got
}

// deliverUntil is deliver until enough says so, which is told how many were delivered.
func (r *rig) deliverUntil(enough func(int) bool) []LSN {
	r.t.Helper()
	r.clock.Store(rigNow + 10*hourMs)
	r.s.Start(r.c.sink)
	var delivered []LSN
	r.until("the end of firing", func() bool {
		for _, it := range r.c.take() {
			if _, err := r.s.Load(it); err == nil {
				delivered = append(delivered, it.LSN)
				r.s.Settle(it)
			} else if !errors.Is(err, ErrCorrupt) {
				r.t.Fatal(err)
			}
		}
		return enough(len(delivered))
	})
	slices.Sort(delivered)
	return delivered
}

// wantDelivered says that exactly the entries but those numbered lost are delivered; negative numbers count from the end of the run.
func (d *damageRig) wantDelivered(lost ...int) {
	d.t.Helper()
	for i, ord := range lost {
		lost[i] = d.ord(ord)
	}
	var want, gone []LSN
	for i, lsn := range d.lsns {
		switch {
		case slices.Contains(lost, i):
			gone = append(gone, lsn)
		case !d.done[lsn]:
			want = append(want, lsn)
		}
	}
	slices.Sort(want)
	got := d.deliver()
	for i, lsn := range d.lsns {
		_, has := slices.BinarySearch(got, lsn)
		if has == (slices.Contains(lost, i) || d.done[lsn]) {
			d.t.Errorf("entry %d, lsn %d: delivered %v", i, lsn, has)
		}
	}
	if !slices.Equal(got, want) {
		d.t.Fatalf("%d delivered, want %d without %v", len(got), len(want), gone)
	}
	if n := d.lost + d.s.Stats().Lost; n != int64(len(lost)) {
		d.t.Errorf("%d entries counted as lost, want %d", n, len(lost))
	}
}

// wantLogged says that a line was logged once that has these parts.
func (d *damageRig) wantLogged(parts ...string) {
	d.t.Helper()
	if n := len(d.log.lines(parts...)); n != 1 {
		d.t.Errorf("%d lines with %q in the log:\n%s", n, parts, d.log.b.String())
	}
}
