package timer

import (
	"errors"
	"testing"
)

func TestRotIsSkippedCountedAndKept(t *testing.T) {
	r := newRig(t)
	r.put(5, 5000, 200)
	seg := r.segment()
	off := seg.entries[2].off
	r.mem.Kill()
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	r.s.Close()
	r.flip(fileName(segPrefix, seg.id), off+100)
	r.open()
	r.wantPending(4)
	r.wantCorrupt(true)
	r.until("the evidence", func() bool { r.put(20, 5000, 900); return len(r.names(segPrefix, brokenSuffix)) == 1 })
}

func TestTornTailIsCut(t *testing.T) {
	r := newRig(t)
	r.put(5, 5000, 200)
	seg := r.segment()
	off := seg.entries[4].off // the last group: nothing says that it was synced
	r.mem.Kill()
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	r.s.Close()
	r.flip(fileName(segPrefix, seg.id), off+100)
	r.open()
	r.wantPending(4)
	r.wantCorrupt(false)
	r.put(1, 5000, 10)
	r.kill(true) // and stays cut when later groups are synced
	r.wantPending(5)
	r.wantCorrupt(false)
}

func TestRotAfterACleanStartIsSeen(t *testing.T) {
	r := newRig(t)
	r.put(5, 5000, 200)
	seg := r.segment()
	off := seg.entries[4].off
	r.noSeals()
	r.kill(true) // MANIFEST now knows where the segment ends
	r.mem.Kill()
	r.mem = r.mem.AfterPowerLoss(nil, 0)
	r.s.Close()
	r.flip(fileName(segPrefix, seg.id), off+100)
	r.open()
	r.wantPending(4)
	r.wantCorrupt(true)
}

func TestDamagedSegmentHead(t *testing.T) {
	r := newRig(t)
	r.put(5, 5000, 200)
	name := fileName(segPrefix, r.segment().id)
	r.mem.Kill()
	r.mem = r.mem.AfterKill()
	r.s.Close()
	r.flip(name, 20)
	r.open()
	r.wantPending(5)
	r.wantCorrupt(true)
}

func TestLostManifestIsRebuilt(t *testing.T) {
	for _, damage := range []string{"removed", "flipped"} {
		t.Run(damage, func(t *testing.T) {
			r := newRig(t)
			r.put(60, 5000, 900)
			r.until("seals", func() bool { return r.s.Stats().Seals >= 4 })
			mustClose(t, r.s)
			r.mem = r.mem.AfterKill()
			if damage == "flipped" {
				r.flip(manifestName, segHeadBytes+20)
			} else if err := r.mem.Remove("/data/" + manifestName); err != nil {
				t.Fatal(err)
			}
			r.open()
			r.wantPending(60)
			checkInvariants(t, r.s)
			if n := len(r.fireAll(true)); n != 60 {
				t.Fatal(n)
			}
			if damage == "flipped" && len(r.names(manifestName, brokenSuffix)) != 1 {
				t.Fatal("no evidence")
			}
		})
	}
}

func TestTornManifestTail(t *testing.T) {
	r := newRig(t)
	r.o.manifestBytes = 1 << 20
	r.kill(true)
	r.put(60, 5000, 900)
	r.until("seals", func() bool { return r.s.Stats().Seals >= 4 })
	mustClose(t, r.s)
	r.mem = r.mem.AfterKill()
	f, _ := r.mem.Open("/data/" + manifestName)
	size, _ := f.Size()
	f.Truncate(size - 3)
	f.Sync(true)
	r.open() // the last edit is gone: its run is adopted or its segment replayed
	if r.s.Stats().Pending < 60 {
		t.Fatalf("%+v", r.s.Stats())
	}
	checkInvariants(t, r.s)
}

func TestDamagedBodyInRun(t *testing.T) {
	r := newRig(t)
	r.put(15, 5000, 900)
	r.until("a seal", func() bool { return r.s.Stats().Seals >= 1 })
	run := r.s.runs[0]
	r.flip(fileName(runPrefix, run.id), segHeadBytes+headBytes+100)
	r.clock.Store(rigNow + 10_000)
	r.s.Start(r.c.sink)
	first := r.c.wait(t)[0]
	if _, err := r.s.Load(first); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Load: %v", err)
	}
	r.wantCorrupt(true)
}

func TestNewerFormatIsRefused(t *testing.T) {
	r := newRig(t)
	mustClose(t, r.s)
	f, _ := r.mem.Open("/data/" + manifestName)
	head, _ := readAt(f, 0, segHeadBytes)
	le.PutUint32(head[12:], formatVersion+1)
	le.PutUint32(head[8:], checksum(0, head[12:]))
	f.WriteAt(head, 0)
	if _, err := Open(r.o); !errors.Is(err, ErrVersion) {
		t.Fatalf("Open: %v", err)
	}
}

func TestFolderIsLocked(t *testing.T) {
	r := newRig(t)
	if _, err := Open(r.o); !errors.Is(err, ErrLocked) {
		t.Fatalf("second Open: %v", err)
	}
}
