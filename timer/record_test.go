package timer

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func putRecord(e *Entry, lsn LSN, seed uint32) []byte {
	n, _ := putLength(e)
	b := appendPut(nil, e, n, lsn)
	signRecord(b, seed)
	return b
}

// The bytes of the format, one field per line.
func TestGoldenRecords(t *testing.T) {
	put := putRecord(&Entry{Flow: Flow{"b-a", "Topic"}, Lane: 0x0102, Due: 0x1122334455667788, Key: "KEY", Keys: "a b", Body: []byte("body")}, 0x0a0b0c0d, 0x5eed)
	group := make([]byte, headBytes)
	putGroupHead(group, 0x64, 0x63, 0x48)
	signRecord(group, 0x5eed)
	settle := appendSettles(nil, []settle{{key: key{due: 5, lsn: 6}}}, 7)
	signRecord(settle, 0x5eed)
	cancel := appendCancel(nil, key{due: 0x0d, lsn: 0x0c}, 0x0b)
	signRecord(cancel, 0x5eed)
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"put": {put, `
			%CRC%    checksum
			3a000000 length 58
			02       put
			00
			0201     lane
			0300     broker length
			0500     topic length
			0d0c0b0a00000000 LSN
			8877665544332211 due
			0300     business keys length
			0000
			0300     key length
			%HC%     head check
			622d61   b-a
			546f706963 Topic
			4b4559   KEY
			612062   business keys
			626f6479 body
			000000000000 padding`},
		"group": {group, `
			%CRC%    checksum
			28000000 length 40
			01       group
			00
			0000 0000 0000
			6400000000000000 first LSN
			6300000000000000 synced to
			48000000 bytes that follow
			0000
			%HC%     head check`},
		"settle": {settle, `
			%CRC%    checksum
			38000000 length 56
			03       settle
			00
			0000 0000 0000
			0700000000000000 LSN
			0000000000000000
			00000000 0000
			%HC%     head check
			0600000000000000 LSN
			0500000000000000 due`},
		"cancel": {cancel, `
			%CRC%    checksum
			38000000 length 56
			04       cancel
			00
			0000 0000 0000
			0b00000000000000 LSN
			0000000000000000
			00000000 0000
			%HC%     head check
			0c00000000000000 LSN
			0d00000000000000 due`},
	} {
		want := strings.ReplaceAll(c.want, "%CRC%", hex.EncodeToString(c.got[:4]))
		want = strings.ReplaceAll(want, "%HC%", hex.EncodeToString(c.got[38:40]))
		var hexes strings.Builder
		for line := range strings.Lines(want) {
			for _, f := range strings.Fields(line) {
				if _, err := hex.DecodeString(f); err != nil || len(f) > 16 {
					break
				}
				hexes.WriteString(f)
			}
		}
		if diff := cmp.Diff(hexes.String(), hex.EncodeToString(c.got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		n := int(le.Uint32(c.got[4:]))
		if le.Uint32(c.got) != checksum(0x5eed, c.got[4:n]) || le.Uint16(c.got[38:]) != uint16(checksum(0x5eed, c.got[4:38])) {
			t.Errorf("%s: checks", name)
		}
		if _, ok := parseRecord(c.got, 0x5eed); !ok {
			t.Errorf("%s: not read back", name)
		}
		if _, ok := parseRecord(c.got, 0x5eee); ok {
			t.Errorf("%s: read with another seed", name)
		}
	}
}

func TestEveryFlippedByteIsNoticed(t *testing.T) {
	b := putRecord(&Entry{Flow: Flow{"b", "t"}, Due: 9, Key: "k", Body: []byte("0123456789")}, 3, 1)
	for i := range int(le.Uint32(b[4:])) {
		c := bytes.Clone(b)
		c[i] ^= 0x10
		if _, ok := parseRecord(c, 1); ok {
			t.Errorf("byte %d", i)
		}
	}
}

// A scan finds what lies behind damage, and never anything that is not there.
func FuzzScanRecords(f *testing.F) {
	var b []byte
	for i := range 5 {
		b = append(b, putRecord(&Entry{Flow: Flow{"b", "t"}, Key: "k", Body: body(i, i*9)}, LSN(i+1), 1)...)
	}
	for _, c := range [][]byte{appendCancel(nil, key{7, 2}, 6), appendSettles(nil, []settle{{key: key{8, 3}}, {key: key{9, 4}}}, 7)} {
		signRecord(c, 1)
		b = append(b, c...)
	}
	f.Add(b, 100, byte(1))
	f.Add(b[:len(b)-3], 0, byte(0))
	f.Fuzz(func(t *testing.T, b []byte, at int, x byte) {
		if at >= 0 && at < len(b) {
			b[at] ^= x
		}
		end := int64(4096)
		type found struct {
			off int64
			record
		}
		records := map[int][]found{}
		each := func(nth int, off int64, r *record) { records[nth] = append(records[nth], found{off, *r}) }
		for nth, s := range scanRecords(b, 4096, 1, each) {
			if s.from < end || s.end < s.from || s.end > int64(4096+padded(len(b))) {
				t.Fatalf("stretch %d to %d after %d", s.from, s.end, end)
			}
			end = s.end
			for _, r := range records[nth] {
				got, ok := parseRecord(b[r.off-4096:], 1)
				if !ok || got.lsn != r.lsn {
					t.Fatalf("record at %d", r.off)
				}
				if n := len(r.ended()); r.kind >= kindSettle && n > r.length/settleBytes {
					t.Fatalf("record at %d ends %d entries in %d bytes", r.off, n, r.length)
				}
			}
		}
	})
}

func TestDecodeFlowsRejectsDamage(t *testing.T) {
	flows := []runFlow{{Flow{"b", "t"}, []hourCount{{1, 2}, {-3, 4}}}, {Flow{"", "x"}, nil}}
	sources := []uint64{7, 1 << 40}
	b := encodeFlows(sources, flows)
	from, got, err := decodeFlows(b)
	if err != nil || !slices.Equal(from, sources) {
		t.Fatal(from, err)
	}
	if diff := cmp.Diff(flows, got, cmp.AllowUnexported(runFlow{}, hourCount{})); diff != "" {
		t.Fatal(diff)
	}
	for n := range len(b) {
		if _, _, err := decodeFlows(b[:n]); err == nil {
			t.Fatalf("%d of %d bytes pass", n, len(b))
		}
	}
}

func TestRunBitmap(t *testing.T) {
	r := &run{runFooter: runFooter{entries: 200}}
	r.prepare()
	for _, ord := range []int{0, 63, 64, 130, 199} {
		if !r.setDone(ord) || r.setDone(ord) {
			t.Fatal(ord)
		}
	}
	for _, c := range []struct{ from, to, want int }{{0, 200, 5}, {1, 63, 0}, {63, 65, 2}, {64, 64, 0}, {65, 199, 1}, {130, 131, 1}, {199, 200, 1}} {
		if got := r.doneIn(c.from, c.to); got != c.want {
			t.Errorf("doneIn(%d, %d) = %d, want %d", c.from, c.to, got, c.want)
		}
	}
	if !r.setCancelled(66) || r.setCancelled(66) || r.setCancelled(64) || !r.isCancelled(66) || r.isCancelled(64) {
		t.Fatal("cancelled is what was pending and was cancelled")
	}
	want := []manifestOp{
		{op: opDone, bits: []word{{0, 1 | 1<<63}, {1, 1 | 1<<2}, {2, 1 << 2}, {3, 1 << 7}}},
		{op: opCancelled, bits: []word{{1, 1 << 2}}},
	}
	for _, got := range [][]manifestOp{r.takeDirty(), r.bits()} {
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(manifestOp{}, word{})); diff != "" {
			t.Fatal(diff)
		}
	}
	if r.pending != 194 || len(r.takeDirty()) != 0 {
		t.Fatalf("pending %d, or dirty twice", r.pending)
	}
	again := &run{runFooter: runFooter{entries: 200}}
	again.prepare()
	again.load(map[uint32]uint64{0: 1, 3: 1<<9 | 1<<7}, map[uint32]uint64{3: 1 << 7})
	if again.pending != 198 || !again.isDone(199) || !again.isCancelled(199) || again.isCancelled(0) {
		t.Fatalf("pending %d", again.pending)
	}
}
