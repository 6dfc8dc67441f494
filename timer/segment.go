package timer

import (
	"fmt"
	"sort"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	segMagic     = "DGSEGMT\n"
	segHeadBytes = 64
	segDataStart = 4096
)

// segment is an intake segment that is not sealed yet. Guarded by Store.mu.
type segment struct {
	dataFile
	entries []*entry // in LSN order, settled ones included
	keys    *segKeys // by which these are found
	first   LSN      // lowest and highest LSN in it, 0 while it is empty
	last    LSN
	full    bool    // nothing will be appended: it may be sealed
	far     []*flow // those that have it in far
}

func newSegment(id, epoch uint64, path string, f vfs.File, size int64) *segment {
	g := &segment{dataFile: newDataFile(id, epoch, path, f, size), keys: new(segKeys)}
	g.seg = g
	return g
}

// add appends an entry with the hashes of its keys.
func (g *segment) add(e *entry, hashes []uint32) {
	for _, h := range hashes {
		g.keys.add(h, uint32(len(g.entries)), g.size)
	}
	g.entries = append(g.entries, e)
}

// find returns the entry with that LSN, or nil.
func (g *segment) find(lsn LSN) *entry { return findEntry(g.entries, lsn) }

// findEntry returns the entry with that LSN of some in LSN order, or nil.
func findEntry(entries []*entry, lsn LSN) *entry {
	at := sort.Search(len(entries), func(i int) bool { return entries[i].lsn >= lsn })
	if at < len(entries) && entries[at].lsn == lsn {
		return entries[at]
	}
	return nil
}

func (g *segment) saw(lsn LSN) {
	if g.first == 0 {
		g.first = lsn
	}
	g.last = max(g.last, lsn)
}

// encodeHead builds the first bytes of a segment or a run.
func encodeHead(magic string, id, epoch uint64) []byte {
	b := make([]byte, segHeadBytes)
	copy(b, magic)
	le.PutUint32(b[12:], formatVersion)
	le.PutUint64(b[16:], id)
	le.PutUint64(b[24:], epoch)
	le.PutUint32(b[8:], checksum(0, b[12:]))
	return b
}

// decodeHead reads them. Its error wraps ErrVersion when a newer version wrote the file.
func decodeHead(b []byte, magic string) (id, epoch uint64, err error) {
	if len(b) < segHeadBytes || string(b[:8]) != magic || le.Uint32(b[8:]) != checksum(0, b[12:segHeadBytes]) {
		return 0, 0, damagedAt("its head", 0)
	}
	if v := le.Uint32(b[12:]); v > formatVersion {
		return 0, 0, fmt.Errorf("%w (format %d, this version reads up to %d)", ErrVersion, v, formatVersion)
	}
	return le.Uint64(b[16:]), le.Uint64(b[24:]), nil
}

// stretch is what a scan found between two damaged places of a segment.
type stretch struct {
	from, end int64      // of its records in the file
	started   bool       // it has a record
	synced    LSN        // highest LSN that a group in it knew to be synced
	opens     LSN        // and what its first group knew
	last      LSN        // its highest LSN
	lost      []numbered // damaged puts right behind it; only those whose fixed part is sound
}

// scanRecords walks through the records in b, which begins at base in the file. Behind a damaged place it goes on
// at the next intact record. each, unless it is nil, is told of every record, with its place in the file and the number of its stretch; the
// record aliases b.
func scanRecords(b []byte, base int64, seed uint32, each func(nth int, off int64, r *record)) []stretch {
	var out []stretch
	cur := stretch{from: base, end: base}
	for at := 0; at+headBytes <= len(b); {
		r, ok := parseRecord(b[at:], seed)
		if !ok {
			cur.lost = damagedPuts(b, at, base, seed)
			next := nextRecord(b, at, seed)
			if next < 0 {
				break
			}
			out = append(out, cur)
			at = next
			cur = stretch{from: base + int64(at), end: base + int64(at)}
			continue
		}
		cur.add(&r)
		if each != nil {
			each(len(out), base+int64(at), &r)
		}
		at += padded(r.length)
		cur.end = base + int64(at)
	}
	return append(out, cur)
}

func (t *stretch) add(r *record) {
	first := !t.started
	t.started = true
	if r.kind == kindGroup {
		if first {
			t.opens = LSN(r.due)
		}
		t.synced = max(t.synced, LSN(r.due))
		return
	}
	t.last = max(t.last, r.lsn)
}

// damagedPuts returns the puts in a row from at on of which only the fixed part is sound.
func damagedPuts(b []byte, at int, base int64, seed uint32) (lost []numbered) {
	for at+headBytes <= len(b) {
		n := recordLength(b[at:], seed)
		if _, sound := parseRecord(b[at:], seed); n == 0 || sound {
			break
		}
		if n == putHeadLength(b[at:], seed) {
			lost = append(lost, numbered{len(lost), indexEntry{
				due: int64(le.Uint64(b[at+24:])), lsn: LSN(le.Uint64(b[at+16:])), length: uint32(n), off: base + int64(at),
			}})
		}
		at += padded(n)
	}
	return lost
}

// nextRecord returns where the first intact record behind the damaged one at at begins, -1 if there is none.
func nextRecord(b []byte, at int, seed uint32) int {
	if n := recordLength(b[at:], seed); n > 0 { // only what follows its fixed part is damaged
		at += padded(n)
	} else {
		at += 8
	}
	for ; at+headBytes <= len(b); at += 8 {
		if recordLength(b[at:], seed) == 0 {
			continue
		}
		if _, ok := parseRecord(b[at:], seed); ok {
			return at
		}
	}
	return -1
}
