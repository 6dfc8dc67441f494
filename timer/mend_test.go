package timer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Damage of the index while the store runs: its pages are built anew from the records.
func TestDamagedIndexPages(t *testing.T) {
	at := func(page int) func(*damageRig) {
		return func(d *damageRig) { d.flip(d.runName(), d.run.pageOffset(page)+pageHead+5) }
	}
	zero := func(from, to int) func(*damageRig) {
		return func(d *damageRig) {
			d.overwrite(d.runName(), d.run.pageOffset(from), make([]byte, (to-from)*pageBytes))
		}
	}
	record := func(ord int, at int64) func(*damageRig) {
		return func(d *damageRig) { d.flip(d.runName(), d.lines()[d.ord(ord)].off+at) }
	}
	both := func(damage ...func(*damageRig)) func(*damageRig) {
		return func(d *damageRig) {
			for _, do := range damage {
				do(d)
			}
		}
	}
	for _, tc := range []struct {
		name   string
		damage func(*damageRig)
		pages  []int
		lost   []int
	}{
		{"first", at(0), []int{0}, nil},
		{"middle", at(1), []int{1}, nil},
		{"last", at(3), []int{3}, nil},
		{"two apart", both(at(0), at(2)), []int{0, 2}, nil},
		{"two in a row", zero(1, 3), []int{1, 2}, nil},
		{"all", zero(0, 4), []int{0, 1, 2, 3}, nil},
		{"and the body of a record", both(record(150, headBytes+20), at(1)), []int{1}, []int{150}},
		{"and the head of a record", both(record(150, 4), at(1)), []int{1}, []int{150}},
		{"and two heads", both(record(150, 4), record(151, 20), at(1)), []int{1}, []int{150, 151}},
		{"and the first record of the page", both(record(127, 20), at(1)), []int{1}, []int{127}},
		{"and the last record of the page", both(record(253, 20), at(1)), []int{1}, []int{253}},
		{"all, and the very first record", both(record(0, 20), zero(0, 4)), []int{0, 1, 2, 3}, []int{0}},
		{"all, and the very last record", both(record(-1, 20), zero(0, 4)), []int{0, 1, 2, 3}, []int{-1}},
		{"all, and one in the middle", both(record(200, 20), zero(0, 4)), []int{0, 1, 2, 3}, []int{200}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDamageRig(t)
			tc.damage(d)
			d.wantDelivered(tc.lost...)
			for _, page := range tc.pages {
				d.wantLogged("an index page is damaged", d.run.path, fmt.Sprint("offset=", d.run.pageOffset(page), " "))
			}
			if len(tc.lost) > 0 {
				d.wantLogged("entries are lost", d.run.path, fmt.Sprint("number=", tc.lost[0], " entries=", len(tc.lost)))
			}
			if st := d.s.Stats(); st.Corrupt != int64(len(tc.pages)+min(1, len(tc.lost))) {
				t.Errorf("corrupt %d", st.Corrupt)
			}
			d.until("the evidence", func() bool {
				return slices.Equal(d.names(runPrefix, brokenSuffix), []string{d.runName() + brokenSuffix})
			})
			d.reopen()
			d.wantPending(0)
			d.wantCorrupt(false)
		})
	}
}

// What a page says of an entry is the same before and after it was damaged.
func TestMendedPageIsTheSame(t *testing.T) {
	d := newDamageRig(t)
	want := d.lines()
	for page := range d.run.pages {
		d.flip(d.runName(), d.run.pageOffset(page))
	}
	b := make([]byte, pageBytes)
	for ord, x := range want {
		if err := d.run.readPage(ord/pageEntries, b); err != nil {
			t.Fatal(err)
		}
		if got := pageEntry(b, ord%pageEntries); got != x {
			t.Fatalf("entry %d: %+v, want %+v", ord, got, x)
		}
		if got, line, ok, err := d.run.find(x.key()); got != ord || line != x || !ok || err != nil {
			t.Fatalf("find %v: %d %+v %v %v", x.key(), got, line, ok, err)
		}
	}
}

// Settled entries stay settled when their page is damaged, over a crash and by replayed settles.
func TestDoneEntriesOfADamagedPage(t *testing.T) {
	d := newDamageRig(t)
	lines := d.lines()
	d.clock.Store(lines[180].due)
	d.s.Start(d.c.sink)
	settled := map[LSN]bool{}
	d.until("firing", func() bool {
		for _, it := range d.c.take() {
			settled[it.LSN] = true
			d.s.Settle(it)
		}
		return len(settled) >= 181
	})
	mustClose(t, d.s)
	d.mem = d.mem.AfterKill()
	d.flip(d.runName(), d.run.pageOffset(1)+100) // the settled ones of it are in segments only
	d.open()
	d.wantPending(int64(len(d.lsns) - len(settled)))
	checkInvariants(t, d.s)
	got := d.deliver()
	for _, lsn := range got {
		if settled[lsn] {
			t.Errorf("lsn %d came back", lsn)
		}
	}
	if len(got)+len(settled) != len(d.lsns) {
		t.Errorf("%d and %d of %d", len(settled), len(got), len(d.lsns))
	}
}

// With more than one gap in a row of damaged pages it is not known which of the records between them are done: they fire again, and none
// that is pending gets lost.
func TestAmbiguousRecordsFireAgain(t *testing.T) {
	d := newDamageRig(t)
	lines := d.lines()
	d.s.mu.Lock()
	done := map[LSN]bool{}
	for ord := 0; ord < 400; ord += 2 {
		d.run.setDone(ord)
		done[lines[ord].lsn] = true
		d.s.wheel.count(d.run.names[lines[ord].flow], lines[ord].due, -1)
	}
	d.s.mu.Unlock()
	d.overwrite(d.runName(), lines[140].off+4, make([]byte, 8)) // pending or not, these two cannot be found
	d.overwrite(d.runName(), lines[241].off+4, make([]byte, 8))
	d.flip(d.runName(), d.run.pageOffset(1))
	want := 0
	for ord, x := range lines {
		if again := ord > 140 && ord < 241; again || !done[x.lsn] && ord != 241 {
			want++
		}
	}
	want += len(d.lsns) - len(lines)
	got := d.deliverUntil(func(n int) bool { return n >= want })
	for ord, x := range lines {
		_, fired := slices.BinarySearch(got, x.lsn)
		between := ord > 140 && ord < 241
		want := between || !done[x.lsn] && ord != 241
		if fired != want {
			t.Errorf("entry %d: fired %v, want %v", ord, fired, want)
		}
	}
	d.wantLogged("some entries may fire again", d.run.path)
	if n := len(d.log.lines("entries are lost", d.run.path)); n == 0 || n > 2 {
		t.Errorf("%d lost", n)
	}
	d.until("the end of the run", func() bool { return len(d.names(runPrefix, brokenSuffix)) == 1 })
	d.reopen() // and then the counts are exact again
	d.wantPending(0)
	checkInvariants(t, d.s)
}

// Whatever is damaged, the counts stay right and nothing undamaged is lost.
func TestRandomDamageOfARun(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			d := newDamageRig(t)
			lines, rng := d.lines(), rand.New(rand.NewPCG(seed, 1))
			hit := map[LSN]bool{}
			for range 1 + rng.IntN(4) {
				x := lines[rng.IntN(len(lines))]
				hit[x.lsn] = true
				d.flip(d.runName(), x.off+rng.Int64N(int64(x.length)))
			}
			for range 1 + rng.IntN(3) {
				d.flip(d.runName(), d.run.pageOffset(rng.IntN(d.run.pages))+rng.Int64N(pageBytes))
			}
			got := d.deliver()
			for _, lsn := range d.lsns {
				if _, ok := slices.BinarySearch(got, lsn); ok == hit[lsn] {
					t.Errorf("lsn %d: delivered %v, damaged %v", lsn, ok, hit[lsn])
				}
			}
		})
	}
}

// A record that is found to be damaged when it is due is given up once, for good: it holds no place in its window, and does not come back.
func TestDamagedRecordIsLostOnce(t *testing.T) {
	for _, where := range []string{"run", "segment"} {
		t.Run(where, func(t *testing.T) {
			d := newDamageRig(t)
			ord, file, off := 7, d.runName(), d.lines()[7].off
			if where == "segment" {
				ord = len(d.lsns) - 1
				file, off = d.inSegment(d.lsns[ord])
			}
			d.flip(file, off+headBytes+3)
			d.wantDelivered(ord)
			d.wantLogged("an entry is lost", "/data/"+file, fmt.Sprint("offset=", off, " lsn=", d.lsns[ord], " "))
			if n := d.s.Stats().Corrupt; n != 1 {
				t.Errorf("corrupt %d", n)
			}
			if where == "run" {
				d.until("the evidence", func() bool { return slices.Equal(d.names(runPrefix, brokenSuffix), []string{file + brokenSuffix}) })
			}
			d.reopen()
			d.wantPending(0)
		})
	}
}

// A run whose index or key table is damaged is written anew while the store goes on.
func TestDamagedRunIsWrittenAnew(t *testing.T) {
	for _, place := range []string{"index page", "key page"} {
		t.Run(place, func(t *testing.T) {
			d := newDamageRig(t)
			d.o.MaxRuns, d.o.lookEvery = 2, time.Millisecond
			d.reopen()
			d.find()
			lines := d.lines()
			d.flip(d.runName(), lines[300].off+headBytes+2) // goes along as it is
			if place == "index page" {
				d.flip(d.runName(), d.run.pageOffset(1)+40)
				if _, _, _, err := d.run.find(lines[130].key()); err != nil { // somebody looks
					t.Fatal(err)
				}
			} else {
				d.flip(d.runName(), d.run.keysOff+40)
				for i := damageEntries; d.s.Stats().Seals < 2; i++ { // a merge looks at it
					d.putOne(i, 20_000)
				}
			}
			d.until("the evidence", func() bool {
				return slices.Equal(d.names(runPrefix, brokenSuffix), []string{d.runName() + brokenSuffix})
			})
			d.reopen()
			d.wantCorrupt(false)
			d.wantDelivered(300)
		})
	}
}

// MANIFEST remembers which files are evidence.
func TestEvidenceOutlivesTheProcess(t *testing.T) {
	d := newDamageRig(t)
	lines := d.lines()
	d.flip(d.runName(), lines[5].off+headBytes+2)
	d.clock.Store(lines[20].due)
	d.s.Start(d.c.sink)
	d.done = map[LSN]bool{}
	d.until("the damage", func() bool {
		for _, it := range d.c.take() {
			d.done[it.LSN] = true
			if _, err := d.s.Load(it); err == nil {
				d.s.Settle(it)
			}
		}
		return d.done[lines[20].lsn]
	})
	d.until("MANIFEST", func() bool {
		m, err := readManifest(d.mem, "/data/"+manifestName)
		return err == nil && m.damaged[d.run.id]
	})
	d.reopen()
	d.wantDelivered()
	d.until("the evidence", func() bool {
		return slices.Equal(d.names(runPrefix, brokenSuffix), []string{d.runName() + brokenSuffix})
	})
}
