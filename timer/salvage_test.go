package timer

import (
	"fmt"
	"slices"
	"testing"
)

// bytesOfRun is where something is in the run of a damageRig.
type bytesOfRun struct {
	name string
	at   func(d *damageRig) int64
	lazy bool // it is not looked at before it is needed
}

var placesOfRun = []bytesOfRun{
	{"magic", func(*damageRig) int64 { return 3 }, false},
	{"head", func(*damageRig) int64 { return 20 }, false},
	{"record length", func(d *damageRig) int64 { return d.lines()[110].off + 4 }, true},
	{"record head", func(d *damageRig) int64 { return d.lines()[150].off + 20 }, true},
	{"record body", func(d *damageRig) int64 { return d.lines()[150].off + headBytes + 30 }, true},
	{"last record", func(d *damageRig) int64 { return d.lines()[d.run.entries-1].off + headBytes + 3 }, true},
	{"index page", func(d *damageRig) int64 { return d.run.pageOffset(2) + 500 }, true},
	{"first index page", func(d *damageRig) int64 { return d.run.indexOff }, true},
	{"key page", func(d *damageRig) int64 { return d.run.keysOff + 100 }, true},
	{"flow table", func(d *damageRig) int64 { return d.run.flowOff + 20 }, false},
	{"footer", func(d *damageRig) int64 { return d.run.size - 50 }, false},
}

// lostBetween returns the numbers of pending entries whose records have bytes in [from, to).
func (d *damageRig) lostBetween(from, to int64) []int {
	var lost []int
	for ord, x := range d.lines() {
		if x.off < to && x.off+int64(x.length) > from && !d.done[x.lsn] {
			lost = append(lost, ord)
		}
	}
	return lost
}

// A run that is damaged anywhere, in any way: all but the records that are hit are delivered, no settled entry comes back, and the next
// Open finds nothing wrong.
func TestDamageInEveryPlaceOfARun(t *testing.T) {
	for _, place := range placesOfRun {
		for _, kind := range []string{"flip", "zero page", "truncate"} {
			t.Run(place.name+"/"+kind, func(t *testing.T) {
				d := newDamageRig(t)
				at := place.at(d)
				d.settle(100)
				lost := d.damage(kind, at)
				d.reopen()
				if st := d.s.Stats(); !place.lazy && (st.Corrupt == 0 || len(d.log.lines("level=ERROR", "path="+d.run.path+" ", "offset=")) == 0) {
					t.Fatalf("%+v\n%s", st, d.log.b.String())
				}
				if kind == "truncate" || !place.lazy { // it was copied
					d.wantEvidence()
					d.wantCorrupt(true)
					d.lost = d.s.Stats().Lost
					d.reopen()
					d.wantCorrupt(false)
					d.wantPending(int64(len(d.lsns) - len(d.done) - len(lost)))
					d.wantDelivered(lost...)
					return
				}
				d.wantDelivered(lost...)
				if place.name == "key page" {
					return // nobody looks for a key
				}
				d.wantCorrupt(true)
				if len(d.log.lines("level=ERROR", "path="+d.run.path+" ", "offset=")) == 0 {
					t.Error(d.log.b.String())
				}
				d.until("the evidence", func() bool { return len(d.names(runPrefix, brokenSuffix)) == 1 })
				d.reopen()
				d.wantPending(0)
				d.wantCorrupt(false)
			})
		}
	}
}

// damage damages the run and returns the numbers of the pending entries that it takes.
func (d *damageRig) damage(kind string, at int64) (lost []int) {
	switch kind {
	case "flip":
		lost = d.lostBetween(at, at+1)
		d.flip(d.runName(), at)
	case "zero page":
		from := at / pageBytes * pageBytes
		to := min(from+pageBytes, d.run.size)
		lost = d.lostBetween(from, to)
		d.overwrite(d.runName(), from, make([]byte, to-from))
	case "truncate":
		lost = d.lostBetween(at, d.run.size)
		d.truncate(d.runName(), at)
	}
	return lost
}

func (d *damageRig) wantEvidence() {
	d.t.Helper()
	if got := d.names("", brokenSuffix); !slices.Equal(got, []string{d.runName() + brokenSuffix}) {
		d.t.Errorf("evidence: %v", got)
	}
}

// Entries that were settled, which only a segment knows so far, are not lost with their records, and do not come back out of the copy.
func TestSalvageKnowsFreshSettles(t *testing.T) {
	d := newDamageRig(t)
	lines := d.lines()
	d.clock.Store(lines[50].due)
	d.s.Start(d.c.sink)
	d.done = map[LSN]bool{}
	d.until("the first entries", func() bool {
		for _, it := range d.c.take() {
			d.done[it.LSN] = true
			d.s.Settle(it)
		}
		return d.done[lines[50].lsn]
	})
	mustClose(t, d.s)
	d.mem = d.mem.AfterKill()
	for _, ord := range []int{10, 70} {
		d.flip(d.runName(), lines[ord].off+headBytes+1)
	}
	d.flip(d.runName(), 20)
	d.open()
	d.wantPending(int64(len(d.lsns) - len(d.done) - 1))
	d.wantLogged("entries are lost", d.run.path, fmt.Sprint("offset=", lines[70].off, " number=70 entries=1 lsn=", lines[70].lsn))
	d.wantDelivered(70)
}
