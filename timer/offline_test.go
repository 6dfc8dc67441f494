package timer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/delaygate/delaygate/timer/vfs"
)

// verify runs Verify and checks that it changes nothing.
func (d *damageRig) verify() ([]Problem, Summary) {
	d.t.Helper()
	before := d.content()
	var found []Problem
	sum, err := Verify(d.mem, "/data", func(p Problem) { found = append(found, p) })
	if err != nil {
		d.t.Fatal(err)
	}
	if sum.Problems != len(found) {
		d.t.Errorf("%d problems, %d reported", sum.Problems, len(found))
	}
	if d.content() != before {
		d.t.Error("Verify has changed something")
	}
	return found, sum
}

// content returns the names and bytes of all files.
func (d *damageRig) content() string {
	var all strings.Builder
	for _, n := range d.names("", "") {
		b, err := readFile(d.mem, "/data/"+n)
		if err != nil {
			d.t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %x\n", n, b)
	}
	return all.String()
}

// dump returns what Dump finds, in its order.
func (d *damageRig) dump() []Pending {
	d.t.Helper()
	before := d.content()
	var all []Pending
	if _, err := Dump(d.mem, "/data", func(p Pending) error {
		p.Body = slices.Clone(p.Body)
		all = append(all, p)
		return nil
	}, func(Problem) {}); err != nil {
		d.t.Fatal(err)
	}
	if d.content() != before {
		d.t.Error("Dump has changed something")
	}
	return all
}

func (d *damageRig) wantDump(lost ...int) {
	d.t.Helper()
	var got, want []LSN
	all := d.dump()
	for i, p := range all {
		got = append(got, p.LSN)
		if i > 0 && !(key{all[i-1].Due, all[i-1].LSN}).less(key{p.Due, p.LSN}) {
			d.t.Fatalf("%v is behind %v", p, all[i-1])
		}
		n := 0
		if _, err := fmt.Sscanf(p.Key, "key%d", &n); err != nil || string(p.Body) != string(body(n, len(p.Body))) || p.Flow != (Flow{"b", fmt.Sprint("topic", n%2)}) {
			d.t.Fatalf("entry %+v", p)
		}
	}
	for i, lsn := range d.lsns {
		if !d.done[lsn] && !slices.Contains(lost, i) {
			want = append(want, lsn)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		d.t.Fatalf("%d dumped, want %d", len(got), len(want))
	}
}

// Verify sees damage in every place of a run and says what is lost, Dump has the rest, Repair makes the folder sound.
func TestToolsOnADamagedRun(t *testing.T) {
	for _, place := range placesOfRun {
		for _, kind := range []string{"flip", "zero page", "truncate"} {
			t.Run(place.name+"/"+kind, func(t *testing.T) {
				d := newDamageRig(t)
				at := place.at(d)
				d.settle(100)
				if found, sum := d.verify(); len(found) != 0 || sum.Pending != int64(len(d.lsns)-len(d.done)) || sum.Runs == 0 || sum.Lost != 0 {
					t.Fatalf("before the damage: %v, %+v", found, sum)
				}
				lost := d.damage(kind, at)
				found, sum := d.verify()
				if sum.Lost != int64(len(lost)) || sum.Pending != int64(len(d.lsns)-len(d.done)-len(lost)) {
					t.Fatalf("%d are lost: %+v\n%v", len(lost), sum, found)
				}
				if !slices.ContainsFunc(found, func(p Problem) bool { return p.File == d.runName() && p.What != "" }) {
					t.Fatalf("not seen: %v", found)
				}
				d.wantDump(lost...)

				repaired, err := Repair(d.mem, "/data", func(Problem) {})
				if err != nil || repaired.Lost != sum.Lost || repaired.Problems == 0 || repaired.Segments != 0 {
					t.Fatalf("%+v, %v", repaired, err)
				}
				d.wantEvidence()
				if found, sum := d.verify(); len(found) != 0 || sum.Evidence != 1 {
					t.Fatalf("after the repair: %v, %+v", found, sum)
				}
				d.wantDump(lost...)
				d.open()
				d.wantCorrupt(false)
				d.lost = int64(len(lost))
				d.wantDelivered(lost...)
			})
		}
	}
}

// The bytes of delivered entries are nobody's business, be they holes or rot.
func TestVerifyLeavesDoneEntriesAlone(t *testing.T) {
	d := newDamageRig(t)
	lines := d.lines()
	d.settle(100)
	d.overwrite(d.runName(), segHeadBytes, make([]byte, lines[90].off-segHeadBytes))
	d.flip(d.runName(), lines[95].off+20)
	if found, sum := d.verify(); len(found) != 0 || sum.Lost != 0 {
		t.Fatalf("%v, %+v", found, sum)
	}
	d.wantDump()
}

func TestToolsOnDamagedSegmentsAndManifest(t *testing.T) {
	d := segmentRig(t)
	seg := d.segmentOf(d.lsns[20])
	lost := d.damageSegment(seg, "flip", seg.find(d.lsns[20]).off+headBytes+5)
	d.flip(manifestName, 30)
	found, sum := d.verify()
	for _, want := range []string{"MANIFEST offset 0: MANIFEST is damaged", fmt.Sprint(fileName(segPrefix, seg.id), " offset ", seg.find(d.lsns[20]).off)} {
		if !slices.ContainsFunc(found, func(p Problem) bool { return strings.HasPrefix(p.String(), want) }) {
			t.Errorf("no problem %q: %v", want, found)
		}
	}
	if sum.Lost != 1 || len(lost) != 1 {
		t.Errorf("%+v", sum)
	}
	d.wantDump(20)
	if sum, err := Repair(d.mem, "/data", func(Problem) {}); err != nil || sum.Lost != 1 || sum.Segments != 0 || sum.Evidence != 2 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if found, sum := d.verify(); len(found) != 0 || sum.Pending != int64(len(d.lsns)-1) {
		t.Fatalf("%v, %+v", found, sum)
	}
	d.open()
	d.wantCorrupt(false)
	d.wantSurvivors(lost)
}

func TestToolsRefuse(t *testing.T) {
	d := newDamageRig(t)
	tools := map[string]func(FS, string) error{
		"verify": func(fs FS, dir string) error { _, err := Verify(fs, dir, func(Problem) {}); return err },
		"dump": func(fs FS, dir string) error {
			_, err := Dump(fs, dir, func(Pending) error { return nil }, func(Problem) {})
			return err
		},
		"repair": func(fs FS, dir string) error { _, err := Repair(fs, dir, func(Problem) {}); return err },
	}
	for name, run := range tools {
		if err := run(d.mem, "/data"); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "/data") {
			t.Errorf("%s beside a store: %v", name, err)
		}
		if err := run(d.mem, "/elsewhere"); !errors.Is(err, ErrNoStore) {
			t.Errorf("%s of nothing: %v", name, err)
		}
		if err := run(vfs.ReadOnly{}, t.TempDir()+"/no"); !vfs.IsNotExist(err) {
			t.Errorf("%s of no folder: %v", name, err)
		}
	}
	mustClose(t, d.s)
	for name, run := range tools {
		if err := run(d.mem, "/data"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, _ := d.mem.Open("/data/" + manifestName)
	head, _ := readAt(f, 0, segHeadBytes)
	le.PutUint32(head[12:], formatVersion+1)
	le.PutUint32(head[8:], checksum(0, head[12:]))
	f.WriteAt(head, 0)
	before := d.content()
	for name, run := range tools {
		if err := run(d.mem, "/data"); !errors.Is(err, ErrVersion) {
			t.Errorf("%s of a newer store: %v", name, err)
		}
	}
	if d.content() != before {
		t.Error("a newer store was changed")
	}
}
