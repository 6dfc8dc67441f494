package timer

import (
	"slices"
	"testing"
)

// segmentRig is a store with one segment that is not sealed, whose end MANIFEST knows.
func segmentRig(t *testing.T) *damageRig {
	t.Helper()
	d := newEmptyDamageRig(t)
	d.noSeals()
	for i := range 40 {
		d.putOne(i, 300)
	}
	d.kill(false) // now MANIFEST knows the end
	d.mem.Kill()
	d.mem = d.mem.AfterKill()
	d.s.Close()
	return d
}

// Damage anywhere in a segment takes the records that it hits, and no others.
func TestDamageInEveryPlaceOfASegment(t *testing.T) {
	for _, place := range []struct {
		name string
		at   func(e *entry) int64
	}{
		{"magic", func(*entry) int64 { return 2 }},
		{"head", func(*entry) int64 { return 30 }},
		{"padding of the head", func(*entry) int64 { return 1000 }},
		{"group record", func(e *entry) int64 { return e.off - 20 }},
		{"record length", func(e *entry) int64 { return e.off + 5 }},
		{"record head", func(e *entry) int64 { return e.off + 20 }},
		{"record body", func(e *entry) int64 { return e.off + headBytes + 50 }},
		{"behind the last record", func(e *entry) int64 { return e.home.size - 5000 }},
	} {
		for _, kind := range []string{"flip", "zero page", "truncate"} {
			t.Run(place.name+"/"+kind, func(t *testing.T) {
				d := segmentRig(t)
				seg := d.segmentOf(d.lsns[20])
				at := place.at(seg.find(d.lsns[20]))
				lost := d.damageSegment(seg, kind, at)
				d.open()
				d.wantPending(int64(len(d.lsns) - len(lost)))
				harmless := place.name == "padding of the head" && kind == "flip" || place.name == "behind the last record" && kind != "truncate"
				d.wantCorrupt(!harmless)
				name := fileName(segPrefix, seg.id)
				if n := len(d.log.lines("level=ERROR", "path=/data/"+name+" ", "offset=")); (n == 0) != harmless {
					t.Errorf("%d lines\n%s", n, d.log.b.String())
				}
				d.hook = nil
				d.fs.Set(nil)
				d.reopen()
				d.wantPending(int64(len(d.lsns) - len(lost)))
				if !harmless {
					d.until("the evidence", func() bool { return slices.Contains(d.names(segPrefix, brokenSuffix), name+brokenSuffix) })
				}
				d.reopen()
				d.wantCorrupt(false)
				d.wantSurvivors(lost)
			})
		}
	}
}

func (r *rig) segmentOf(lsn LSN) *segment {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, g := range r.s.segs {
		if g.find(lsn) != nil {
			return g
		}
	}
	r.t.Fatalf("lsn %d is in no segment", lsn)
	return nil
}

func (d *damageRig) damageSegment(seg *segment, kind string, at int64) (lost []LSN) {
	from, to, name := at, at+1, fileName(segPrefix, seg.id)
	switch kind {
	case "flip":
		d.flip(name, at)
	case "zero page":
		from = at / pageBytes * pageBytes
		to = from + pageBytes
		d.overwrite(name, from, make([]byte, pageBytes))
	case "truncate":
		to = seg.size
		d.truncate(name, at)
	}
	for _, e := range seg.entries {
		if e.off < to && e.off+int64(e.length) > from {
			lost = append(lost, e.lsn)
		}
	}
	return lost
}

func (d *damageRig) wantSurvivors(lost []LSN) {
	d.t.Helper()
	want := slices.DeleteFunc(slices.Clone(d.lsns), func(lsn LSN) bool { return slices.Contains(lost, lsn) })
	slices.Sort(want)
	if got := d.deliver(); !slices.Equal(got, want) {
		d.t.Fatalf("%d delivered, want %d", len(got), len(want))
	}
}

// MANIFEST damaged anywhere, or gone: all that is pending is delivered.
func TestDamageInEveryPlaceOfManifest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(d *damageRig, size int64, edits []int64)
		log    string // none when it looks like the end of a crash
		exact  bool   // nothing comes back
	}{
		{"magic", func(d *damageRig, _ int64, _ []int64) { d.flip(manifestName, 1) }, "MANIFEST is damaged", false},
		{"head", func(d *damageRig, _ int64, _ []int64) { d.flip(manifestName, 30) }, "MANIFEST is damaged", false},
		{"first edit", func(d *damageRig, _ int64, e []int64) { d.flip(manifestName, e[0]+20) }, "MANIFEST is damaged", true},
		{"middle edit", func(d *damageRig, _ int64, e []int64) { d.flip(manifestName, e[len(e)/2]+17) }, "MANIFEST is damaged", false},
		{"last edit", func(d *damageRig, _ int64, e []int64) { d.flip(manifestName, e[len(e)-1]+17) }, "", false},
		{"all zeros", func(d *damageRig, n int64, _ []int64) { d.overwrite(manifestName, 0, make([]byte, n)) }, "MANIFEST is damaged", false},
		{"garbage", func(d *damageRig, n int64, _ []int64) { d.overwrite(manifestName, 0, body(1, int(n))) }, "MANIFEST is damaged", false},
		{"empty", func(d *damageRig, _ int64, _ []int64) { d.truncate(manifestName, 0) }, "MANIFEST is damaged", false},
		{"only a head", func(d *damageRig, _ int64, _ []int64) { d.truncate(manifestName, segHeadBytes) }, "MANIFEST is damaged", false},
		{"torn in the first edit", func(d *damageRig, _ int64, e []int64) { d.truncate(manifestName, e[0]+30) }, "MANIFEST is damaged", false},
		{"torn in the last edit", func(d *damageRig, n int64, _ []int64) { d.truncate(manifestName, n-3) }, "", false},
		{"removed", func(d *damageRig, _ int64, _ []int64) { d.mem.Remove("/data/" + manifestName) }, "MANIFEST is missing", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDamageRig(t)
			d.o.manifestBytes = 1 << 20
			d.reopen()
			d.find()
			d.settle(100)
			b, err := readFile(d.mem, "/data/"+manifestName)
			if err != nil {
				t.Fatal(err)
			}
			tc.damage(d, int64(len(b)), editsOf(t, b))
			d.open()
			checkInvariants(t, d.s)
			d.wantCorrupt(tc.log != "")
			if tc.log != "" {
				d.wantLogged(tc.log, "path=/data/"+manifestName)
			}
			kept := tc.log == "MANIFEST is damaged"
			if got := d.names("", brokenSuffix); kept != slices.Equal(got, []string{manifestName + brokenSuffix}) {
				t.Errorf("evidence: %v", got)
			}
			pending := d.s.Stats().Pending
			d.reopen()
			d.wantCorrupt(false)
			d.wantPending(pending)
			got := d.deliver()
			for i, lsn := range d.lsns {
				_, fired := slices.BinarySearch(got, lsn)
				if !fired && !d.done[lsn] || fired && d.done[lsn] && tc.exact {
					t.Errorf("entry %d: fired %v, settled before %v", i, fired, d.done[lsn])
				}
			}
			if len(slices.Compact(got)) != len(got) {
				t.Error("something was delivered twice")
			}
		})
	}
}

// editsOf returns where the edits of a MANIFEST begin.
func editsOf(t *testing.T, b []byte) []int64 {
	t.Helper()
	id, epoch, err := decodeHead(b, manMagic)
	if err != nil {
		t.Fatal(err)
	}
	var edits []int64
	for at := segHeadBytes; at < len(b); {
		n := editLength(b[at:], seedOf(id, epoch), 0)
		if n == 0 {
			t.Fatalf("no edit at %d", at)
		}
		edits = append(edits, int64(at))
		at += n
	}
	if len(edits) < 4 {
		t.Fatalf("only %d edits", len(edits))
	}
	return edits
}

// Files that have each other's names, or one too many.
func TestFilesWithOtherNames(t *testing.T) {
	move := func(d *damageRig, from, to string) {
		if err := d.mem.Rename("/data/"+from, "/data/"+to); err != nil {
			d.t.Fatal(err)
		}
	}
	copyFile := func(d *damageRig, from, to string) {
		b, err := readFile(d.mem, "/data/"+from)
		if err != nil {
			d.t.Fatal(err)
		}
		if _, err := d.mem.Create("/data/" + to); err != nil {
			d.t.Fatal(err)
		}
		d.overwrite(to, 0, b)
	}
	const strange = 0x7777
	for _, tc := range []struct {
		name   string
		damage func(d *damageRig, runs, segs []string)
		broken []string // by their names, "" stands for the strange one of runs
		log    string
	}{
		{"two runs swapped", func(d *damageRig, runs, _ []string) {
			move(d, runs[0], "x")
			move(d, runs[1], runs[0])
			move(d, "x", runs[1])
		}, nil, "gets its own again"},
		{"a run renamed", func(d *damageRig, runs, _ []string) { move(d, runs[0], fileName(runPrefix, strange)) }, nil, "gets its own again"},
		{"a run doubled", func(d *damageRig, runs, _ []string) { copyFile(d, runs[0], fileName(runPrefix, strange)) },
			[]string{fileName(runPrefix, strange)}, "is another than its name says"},
		{"a run over another", func(d *damageRig, runs, _ []string) { copyFile(d, runs[0], runs[1]) }, nil, ""},
		{"two segments swapped", func(d *damageRig, _, segs []string) {
			move(d, segs[0], "x")
			move(d, segs[1], segs[0])
			move(d, "x", segs[1])
		}, nil, "gets its own again"},
		{"a segment renamed", func(d *damageRig, _, segs []string) { move(d, segs[0], fileName(segPrefix, strange)) }, nil, "gets its own again"},
		{"a segment doubled", func(d *damageRig, _, segs []string) { copyFile(d, segs[0], fileName(segPrefix, strange)) },
			[]string{fileName(segPrefix, strange)}, "is another than its name says"},
		{"a run missing", func(d *damageRig, runs, _ []string) { d.mem.Remove("/data/" + runs[0]) }, nil, "a run is missing"},
		{"a segment missing", func(d *damageRig, _, segs []string) { d.mem.Remove("/data/" + segs[0]) }, nil, "a segment is missing"},
		{"a run empty", func(d *damageRig, runs, _ []string) { d.truncate(runs[0], 0) }, nil, "a run is damaged"},
		{"a segment empty", func(d *damageRig, _, segs []string) { d.truncate(segs[0], 0) }, nil, "a segment is cut off"},
		{"a run full of garbage", func(d *damageRig, runs, _ []string) { d.overwrite(runs[0], 0, body(7, 1<<20)) }, nil, "a run is damaged"},
		{"a segment full of garbage", func(d *damageRig, _, segs []string) { d.overwrite(segs[0], 0, body(7, 128<<10)) }, nil, "are damaged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDamageRig(t)
			for i := damageEntries; d.s.Stats().Runs < 2; i++ {
				d.putOne(i, 9000)
			}
			d.noSeals()
			for i := 2 * damageEntries; d.s.Stats().Segments < 3; i++ {
				d.putOne(i, 9000)
			}
			d.kill(false)
			runs, segs := d.named()
			lost := map[LSN]bool{}
			switch {
			case slices.Contains([]string{"a run missing", "a run empty", "a run full of garbage"}, tc.name):
				lost = d.in(runs[0])
			case tc.name == "a run over another":
				lost = d.in(runs[1])
			case slices.Contains([]string{"a segment missing", "a segment empty", "a segment full of garbage"}, tc.name):
				lost = d.in(segs[0])
			}
			mustClose(t, d.s)
			d.mem = d.mem.AfterKill()
			tc.damage(d, runs, segs)
			d.open()
			d.wantCorrupt(true)
			d.wantPending(int64(len(d.lsns) - len(lost)))
			if tc.log != "" && len(d.log.lines("level=ERROR", tc.log, "path=")) == 0 {
				t.Errorf("%q is not in the log:\n%s", tc.log, d.log.b.String())
			}
			for _, name := range tc.broken {
				if !slices.Contains(d.names("", brokenSuffix), name+brokenSuffix) {
					t.Errorf("no evidence %s, only %v", name, d.names("", brokenSuffix))
				}
			}
			d.hook = nil
			d.fs.Set(nil)
			d.until("seals", func() bool { return d.s.Stats().Segments == 1 })
			d.reopen()
			d.wantCorrupt(false)
			d.wantSurvivors(sortedLSNs(lost))
		})
	}
}

func sortedLSNs(m map[LSN]bool) []LSN {
	var out []LSN
	for lsn := range m {
		out = append(out, lsn)
	}
	slices.Sort(out)
	return out
}

// named returns the names of the runs and of the segments with something in them.
func (d *damageRig) named() (runs, segs []string) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	for _, r := range d.s.runs {
		runs = append(runs, fileName(runPrefix, r.id))
	}
	for _, g := range d.s.segs {
		if len(g.entries) > 0 {
			segs = append(segs, fileName(segPrefix, g.id))
		}
	}
	if len(runs) < 2 || len(segs) < 2 {
		d.t.Fatalf("runs %v, segments %v", runs, segs)
	}
	return runs, segs
}

// in returns what is pending in a file.
func (d *damageRig) in(name string) map[LSN]bool {
	lsns := map[LSN]bool{}
	d.s.mu.Lock()
	for _, g := range d.s.segs {
		for _, e := range g.entries {
			if fileName(segPrefix, g.id) == name {
				lsns[e.lsn] = true
			}
		}
	}
	runs := slices.Clone(d.s.runs)
	d.s.mu.Unlock()
	for _, r := range runs {
		if fileName(runPrefix, r.id) != name {
			continue
		}
		d.s.eachLine(r, 0, r.entries, func(_ int, x indexEntry) { lsns[x.lsn] = true })
	}
	return lsns
}
