package timer

import "testing"

// After a clean end nothing in the log is a torn tail, not even in its last group.
func TestDamageInTheLastGroupAfterACloseIsNoticed(t *testing.T) {
	r := newRig(t)
	lsns := r.put(5, 50_000, 100)
	r.s.mu.Lock()
	seg := r.s.segs[len(r.s.segs)-1]
	last := seg.find(lsns[4])
	name, off := fileName(segPrefix, seg.id), last.off
	r.s.mu.Unlock()
	mustClose(t, r.s)
	r.flip(name, off+headBytes+60)
	r.open()
	r.wantPending(4)
	r.wantCorrupt(true)
	r.until("evidence", func() bool { return len(r.names(segPrefix, brokenSuffix)) == 1 })
}

func TestACleanEndIsNoDamage(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.put(3, 50_000, 100)
		mustClose(t, r.s)
		r.open()
		r.wantCorrupt(false)
	}
	r.wantPending(9)
}
