package timer

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/timer/vfs"
)

func noBits(uint64) []manifestOp { return nil }

func testManifest(fs vfs.FS) *manifest {
	return &manifest{fs: fs, dir: "/data", limit: 1 << 20, state: newManifestState()}
}

func TestManifestIsDurableAfterEachCommit(t *testing.T) {
	mem := vfs.NewMem()
	m := testManifest(mem)
	m.limit = 300 // so that some commits rewrite
	bits := map[uint64][]manifestOp{}
	for id := uint64(1); id < 40; id++ {
		ops := []manifestOp{{op: opAddSeg, id: id, n: id * 7, m: id * 9}, {op: opNextFile, id: id + 1}, {op: opFloor, id: id * 100}}
		if id > 3 {
			ops = append(ops, manifestOp{op: opDropSeg, id: id - 3}, manifestOp{op: opCutSeg, id: id - 1, n: 4096 + id})
			bits[1000+id] = []manifestOp{
				{op: opDone, id: 1000 + id, bits: []word{{0, id}}}, {op: opCancelled, id: 1000 + id, bits: []word{{1, id}}},
			}
			ops = append(append(ops, manifestOp{op: opAddRun, id: 1000 + id, n: id, m: 64}), bits[1000+id]...)
		}
		if id > 20 {
			ops = append(ops, manifestOp{op: opDropRun, id: 1000 + id - 10})
		}
		if err := m.commit(ops, func(id uint64) []manifestOp { return bits[id] }); err != nil {
			t.Fatal(err)
		}
		got, err := readManifest(mem.AfterPowerLoss(nil, 0), "/data/"+manifestName)
		if err != nil {
			t.Fatalf("after commit %d: %v", id, err)
		}
		for run := range got.done {
			if _, ok := got.runs[run]; !ok || got.done[run][0] != run-1000 || got.cancelled[run][1] != run-1000 {
				t.Fatalf("bits of run %d: %v", run, got.done[run])
			}
		}
		if len(got.done) != len(got.runs) {
			t.Fatalf("%d runs, bits of %d", len(got.runs), len(got.done))
		}
		got.done, got.cancelled, got.dropped = runBits{}, runBits{}, map[uint64]bool{}
		if diff := cmp.Diff(m.state, got, cmp.AllowUnexported(manifestState{}, segMeta{}, runMeta{})); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestManifestAfterFailedCommitIsRewritten(t *testing.T) {
	mem := vfs.NewMem()
	fs := vfs.NewFaulty(mem)
	m := testManifest(fs)
	if err := m.commit([]manifestOp{{op: opAddSeg, id: 1, n: 1}}, noBits); err != nil {
		t.Fatal(err)
	}
	fault := errors.New("fault")
	fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if op == vfs.OpWrite {
			return &vfs.Fault{Err: fault, Short: true}
		}
		return nil
	})
	if err := m.commit([]manifestOp{{op: opAddSeg, id: 2, n: 2}}, noBits); !errors.Is(err, fault) {
		t.Fatal(err)
	}
	got, err := readManifest(mem, "/data/"+manifestName)
	if err != nil || len(got.segs) != 1 {
		t.Fatalf("a torn edit: %v, %v", got, err)
	}
	fs.Set(nil)
	if err := m.rewrite(noBits); err != nil {
		t.Fatal(err)
	}
	if got, err = readManifest(mem, "/data/"+manifestName); err != nil || len(got.segs) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestManifestDamageIsTornTailOrCorrupt(t *testing.T) {
	mem := vfs.NewMem()
	m := testManifest(mem)
	var ends []int64
	for id := uint64(1); id < 6; id++ {
		if err := m.commit([]manifestOp{{op: opAddSeg, id: id, n: id}}, noBits); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, m.size)
	}
	for off := int64(0); off < m.size; off++ {
		c := mem.AfterKill()
		f, _ := c.Open("/data/" + manifestName)
		b, _ := readAt(f, off, 1)
		f.WriteAt([]byte{b[0] ^ 1}, off)
		got, err := readManifest(c, "/data/"+manifestName)
		if off < ends[3] {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d flipped: %v, %v", off, got, err)
			}
		} else if err != nil || len(got.segs) != 4 {
			t.Fatalf("byte %d of the last edit flipped: %v, %v", off, got, err)
		}
	}
}

func FuzzParseOps(f *testing.F) {
	f.Add(appendEdit(nil, 1, 1, []manifestOp{{op: opAddSeg, id: 1, n: 2}, {op: opDone, id: 3, bits: []word{{1, 2}}}})[manFrameHead:])
	f.Fuzz(func(t *testing.T, b []byte) {
		ops, err := parseOps(b)
		if err != nil {
			return
		}
		if again := appendEdit(nil, 1, 1, ops)[manFrameHead:]; string(again) != string(b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
