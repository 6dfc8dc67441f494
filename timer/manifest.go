package timer

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	manMagic     = "DGMANIF\n"
	manFrameHead = 16
	maxEditBytes = 256 << 20
)

// The operations of an edit. Part of the format: never renumber.
const (
	opNextFile  = 1  // id
	opFloor     = 2  // LSN
	opAddSeg    = 3  // id, epoch, size
	opDropSeg   = 4  // id
	opCutSeg    = 5  // id, offset
	opAddRun    = 6  // id, epoch, entries
	opDropRun   = 7  // id
	opDone      = 8  // run id, count, then count times: word number, word
	opCancelled = 9  // the same, of those that were cancelled
	opIdentity  = 10 // a random number
	opDamaged   = 11 // id
)

// numbers says how many numbers follow the first in an operation, -1 if it carries words, and false if there is no such operation.
func numbers(op byte) (n int, ok bool) {
	switch op {
	case opNextFile, opFloor, opDropSeg, opDropRun, opIdentity, opDamaged:
		return 0, true
	case opCutSeg:
		return 1, true
	case opAddSeg, opAddRun:
		return 2, true
	case opDone, opCancelled:
		return -1, true
	}
	return 0, false
}

// word is 64 bits of a run's done bitmap.
type word struct {
	at   uint32
	bits uint64
}

// manifestOp is one operation; which fields count depends on op.
type manifestOp struct {
	op   byte
	id   uint64
	n, m uint64
	bits []word
}

func addSeg(g *segment) manifestOp {
	return manifestOp{op: opAddSeg, id: g.id, n: g.epoch, m: uint64(g.size)}
}

func addRun(r *run) manifestOp {
	return manifestOp{op: opAddRun, id: r.id, n: r.epoch, m: uint64(r.entries)}
}

func cutSeg(c *cutRequest) manifestOp {
	return manifestOp{op: opCutSeg, id: c.seg.id, n: uint64(c.end)}
}

type segMeta struct {
	epoch uint64
	size  int64
	cut   int64 // where its records end, 0: unknown
}

type runMeta struct {
	epoch   uint64
	entries int
}

// runBits are bitmaps of runs: words by number, by run id.
type runBits map[uint64]map[uint32]uint64

func (b runBits) merge(o manifestOp) {
	words := b[o.id]
	if words == nil {
		words = map[uint32]uint64{}
		b[o.id] = words
	}
	for _, w := range o.bits {
		words[w.at] |= w.bits
	}
}

// manifestState is what MANIFEST says.
type manifestState struct {
	nextFile uint64 // no file had this id or a higher one
	floor    LSN    // no number up to this is given out again; runs up to it that are not named are superseded
	segs     map[uint64]segMeta
	runs     map[uint64]runMeta
	damaged  map[uint64]bool // runs and segments that are evidence
	identity uint64          // of the store; 0: none yet

	done, cancelled runBits         // these are filled by readManifest only
	dropped         map[uint64]bool // runs and segments
}

func newManifestState() *manifestState {
	return &manifestState{
		nextFile:  1,
		segs:      map[uint64]segMeta{},
		runs:      map[uint64]runMeta{},
		damaged:   map[uint64]bool{},
		done:      runBits{},
		cancelled: runBits{},
		dropped:   map[uint64]bool{},
	}
}

// apply changes the state; bits and what was dropped are kept only if keepBits.
func (m *manifestState) apply(ops []manifestOp, keepBits bool) {
	for _, o := range ops {
		if keepBits && (o.op == opDropSeg || o.op == opDropRun) {
			m.dropped[o.id] = true
		}
		switch o.op {
		case opNextFile:
			m.nextFile = max(m.nextFile, o.id)
		case opFloor:
			m.floor = max(m.floor, LSN(o.id))
		case opAddSeg:
			m.segs[o.id] = segMeta{epoch: o.n, size: int64(o.m)}
		case opDropSeg:
			delete(m.segs, o.id)
			delete(m.damaged, o.id)
		case opCutSeg:
			if g, ok := m.segs[o.id]; ok {
				g.cut = int64(o.n)
				m.segs[o.id] = g
			}
		case opAddRun:
			m.runs[o.id] = runMeta{epoch: o.n, entries: int(o.m)}
		case opDropRun:
			delete(m.runs, o.id)
			delete(m.damaged, o.id)
			delete(m.done, o.id)
			delete(m.cancelled, o.id)
		case opDamaged:
			m.damaged[o.id] = true
		case opIdentity:
			m.identity = o.id
		case opDone:
			if keepBits {
				m.done.merge(o)
			}
		case opCancelled:
			if keepBits {
				m.cancelled.merge(o)
			}
		}
	}
}

// bitsOf gives the operations for the bitmaps of a run.
type bitsOf func(id uint64) []manifestOp

// snapshot returns the operations that rebuild the state.
func (m *manifestState) snapshot(bits bitsOf) []manifestOp {
	ops := []manifestOp{{op: opIdentity, id: m.identity}, {op: opNextFile, id: m.nextFile}, {op: opFloor, id: uint64(m.floor)}}
	for _, id := range sortedKeys(m.segs) {
		g := m.segs[id]
		ops = append(ops, manifestOp{op: opAddSeg, id: id, n: g.epoch, m: uint64(g.size)})
		if g.cut > 0 {
			ops = append(ops, manifestOp{op: opCutSeg, id: id, n: uint64(g.cut)})
		}
	}
	for _, id := range sortedKeys(m.runs) {
		r := m.runs[id]
		ops = append(ops, manifestOp{op: opAddRun, id: id, n: r.epoch, m: uint64(r.entries)})
		ops = append(ops, bits(id)...)
	}
	for _, id := range sortedKeys(m.damaged) {
		ops = append(ops, manifestOp{op: opDamaged, id: id})
	}
	return ops
}

func sortedKeys[V any](m map[uint64]V) []uint64 {
	keys := make([]uint64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// appendEdit appends one framed edit.
func appendEdit(b []byte, seed uint32, seq uint64, ops []manifestOp) []byte {
	at := len(b)
	b = append(b, make([]byte, manFrameHead)...)
	for _, o := range ops {
		b = append(b, o.op)
		b = le.AppendUint64(b, o.id)
		n, _ := numbers(o.op)
		for _, v := range []uint64{o.n, o.m}[:max(n, 0)] {
			b = le.AppendUint64(b, v)
		}
		if n >= 0 {
			continue
		}
		b = le.AppendUint32(b, uint32(len(o.bits)))
		for _, w := range o.bits {
			b = le.AppendUint32(b, w.at)
			b = le.AppendUint64(b, w.bits)
		}
	}
	le.PutUint32(b[at+4:], uint32(len(b)-at-manFrameHead))
	le.PutUint64(b[at+8:], seq)
	le.PutUint32(b[at:], checksum(seed, b[at+4:]))
	return b
}

// parseOps reads the operations of an intact edit. Its error wraps ErrVersion: what is intact and not understood is newer.
func parseOps(b []byte) ([]manifestOp, error) {
	var ops []manifestOp
	for len(b) > 0 {
		o := manifestOp{op: b[0]}
		n, ok := numbers(o.op)
		if !ok || len(b) < 9+8*max(n, 0) {
			return nil, fmt.Errorf("%w (operation %d in it is not known to format %d, the latest that this version reads)", ErrVersion, o.op, formatVersion)
		}
		o.id, b = le.Uint64(b[1:]), b[9:]
		for _, v := range []*uint64{&o.n, &o.m}[:max(n, 0)] {
			*v, b = le.Uint64(b), b[8:]
		}
		if n < 0 {
			if len(b) < 4 || uint64(len(b)-4) < uint64(le.Uint32(b))*12 {
				return nil, fmt.Errorf("%w (operation %d in it is longer than format %d has it, the latest that this version reads)", ErrVersion, o.op, formatVersion)
			}
			o.bits = make([]word, le.Uint32(b))
			b = b[4:]
			for i := range o.bits {
				o.bits[i] = word{le.Uint32(b), le.Uint64(b[4:])}
				b = b[12:]
			}
		}
		ops = append(ops, o)
	}
	return ops, nil
}

// readManifest reads MANIFEST. The error wraps fs.ErrNotExist when there is none, ErrVersion when it is newer, ErrCorrupt
// when its head, its first edit or one before the last is damaged; then the state is what the other edits say. A torn last edit is left out.
func readManifest(fs vfs.FS, path string) (*manifestState, error) {
	b, err := readFile(fs, path)
	if err != nil {
		return nil, err
	}
	id, epoch, err := decodeHead(b, manMagic)
	if err != nil {
		return newManifestState(), fmt.Errorf("%s: %w", path, err)
	}
	m, seed := newManifestState(), seedOf(id, epoch)
	var damage error
	for at, seq := segHeadBytes, uint64(1); ; {
		n := editLength(b[at:], seed, seq)
		if n == 0 && damage == nil && at == segHeadBytes {
			damage = fmt.Errorf("%s: %w", path, damagedAt("the first edit", int64(at)))
		}
		if n == 0 {
			next := nextEdit(b, at+1, seed)
			if next == len(b) {
				return m, damage
			}
			if damage == nil {
				damage = fmt.Errorf("%s: %w", path, damagedAt("an edit before the last", int64(at)))
			}
			at = next
			n = editLength(b[at:], seed, 0)
		}
		ops, err := parseOps(b[at+manFrameHead : at+n])
		if err != nil {
			return nil, fmt.Errorf("%s at %d: %w", path, at, err)
		}
		m.apply(ops, true)
		seq = le.Uint64(b[at+8:]) + 1
		at += n
	}
}

// nextEdit returns where the first intact edit from at on begins, else the end.
func nextEdit(b []byte, at int, seed uint32) int {
	for at < len(b) && editLength(b[at:], seed, 0) == 0 {
		at++
	}
	return min(at, len(b))
}

// editLength returns the length of the intact edit that b starts with, else 0. seq 0 takes any number.
func editLength(b []byte, seed uint32, seq uint64) int {
	if len(b) < manFrameHead {
		return 0
	}
	n := uint64(le.Uint32(b[4:])) + manFrameHead
	if n == manFrameHead || n > uint64(len(b)) || n > maxEditBytes || seq != 0 && le.Uint64(b[8:]) != seq ||
		le.Uint32(b) != checksum(seed, b[4:n]) {
		return 0
	}
	return int(n)
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b[:n], nil
}

// manifest writes MANIFEST. Only the janitor uses it after Open.
type manifest struct {
	fs    vfs.FS
	dir   string
	limit int64 // smallest size at which it is rewritten

	state *manifestState
	f     vfs.File
	seed  uint32
	seq   uint64
	size  int64
	base  int64 // size after the last rewrite
}

// commit makes ops part of the state and tries to make that durable. After an error nothing is known about what is on
// the disk: call retry until it succeeds before anything is done that relies on the old or the new state.
func (m *manifest) commit(ops []manifestOp, bits bitsOf) error {
	m.state.apply(ops, false)
	if m.f == nil || m.size > m.limit && m.size > 3*m.base {
		return m.rewrite(bits)
	}
	b := appendEdit(nil, m.seed, m.seq+1, ops)
	if _, err := m.f.WriteAt(b, m.size); err != nil {
		return m.lost(fmt.Errorf("append to %s: %w", manifestName, err))
	}
	if err := m.f.Sync(true); err != nil {
		return m.lost(fmt.Errorf("sync %s: %w", manifestName, err))
	}
	m.seq++
	m.size += int64(len(b))
	return nil
}

// lost gives up the file that an error happened on.
func (m *manifest) lost(err error) error {
	m.close()
	return err
}

func (m *manifest) close() {
	if m.f != nil {
		m.f.Close()
		m.f = nil
	}
}

// rewrite replaces MANIFEST by one with only the present state.
func (m *manifest) rewrite(bits bitsOf) error {
	m.close()
	epoch := newEpoch()
	seed := seedOf(0, epoch)
	b := appendEdit(encodeHead(manMagic, 0, epoch), seed, 1, m.state.snapshot(bits))
	tmp, path := m.dir+"/"+manifestTmp, m.dir+"/"+manifestName
	f, err := m.fs.Create(tmp)
	if err != nil {
		return fmt.Errorf("make %s: %w", tmp, err)
	}
	if err := m.install(f, b, tmp, path); err != nil {
		f.Close()
		return err
	}
	m.f, m.seed, m.seq, m.size, m.base = f, seed, 1, int64(len(b)), int64(len(b))
	return nil
}

func (m *manifest) install(f vfs.File, b []byte, tmp, path string) error {
	if _, err := f.WriteAt(b, 0); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := f.Sync(false); err != nil {
		return fmt.Errorf("sync %s: %w", tmp, err)
	}
	if err := m.fs.Rename(tmp, path); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	if err := m.fs.SyncDir(m.dir); err != nil {
		return fmt.Errorf("sync folder %s: %w", m.dir, err)
	}
	return nil
}
