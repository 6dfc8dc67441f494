package timer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/delaygate/delaygate/timer/vfs"
)

// openDamagedRun is damagedRun for a file that is not open.
func openDamagedRun(fs vfs.FS, path string, id uint64, meta runMeta) (*run, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := damagedRun(f, path, id, meta)
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// damagedRun opens a run whose head, footer or flow table is damaged, or whose end is missing. Its index is mended as far as that
// goes; flow numbers in it mean nothing. meta is what MANIFEST says of it, zero if nothing. The error wraps ErrCorrupt when there is
// nothing to be saved.
func damagedRun(f vfs.File, path string, id uint64, meta runMeta) (*run, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	foot, seeds := readEnds(f, size, id, meta)
	for _, epoch := range seeds {
		r := &run{dataFile: newDataFile(id, epoch, path, f, size)}
		r.dataFile.run, r.mend.nameless, r.mend.tolerant = r, true, true
		if foot.ok && foot.epoch == epoch && foot.plausible(size) {
			r.runFooter = foot.runFooter
		} else if err := r.guessLayout(meta.entries); err != nil {
			return nil, err
		}
		if r.entries > 0 {
			r.prepare()
			if foot.ok {
				r.sources, _, _ = r.flowTable() // none if it is damaged
			}
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w: %s: no record in it can be found", ErrCorrupt, path)
}

// footing is what the end of a run file says.
type footing struct {
	runFooter
	epoch uint64
	ok    bool
}

// readEnds reads the footer, and returns every epoch that the file may have: what MANIFEST says comes first.
func readEnds(f vfs.File, size int64, id uint64, meta runMeta) (foot footing, epochs []uint64) {
	add := func(epoch uint64) {
		for _, e := range epochs {
			if e == epoch {
				return
			}
		}
		epochs = append(epochs, epoch)
	}
	if meta != (runMeta{}) {
		add(meta.epoch)
	}
	if head, err := readAt(f, 0, segHeadBytes); err == nil {
		if got, epoch, err := decodeHead(head, runMagic); err == nil && got == id {
			add(epoch)
		}
	}
	if size < footBytes {
		return foot, epochs
	}
	if b, err := readAt(f, size-footBytes, footBytes); err == nil {
		got, epoch, ok := foot.decode(b)
		if foot.epoch, foot.ok = epoch, ok && got == id; foot.ok {
			add(epoch)
		}
	}
	return foot, epochs
}

// guessLayout finds out how many entries a run without a footer has, and where its index is. entries is what MANIFEST says, 0 if nothing.
func (r *run) guessLayout(entries int) error {
	off, last, ok, err := r.findIndex()
	if err != nil {
		return err
	}
	r.indexOff, r.cutOff = roundUp(max(r.size, segHeadBytes)), !ok // behind the end: every page counts as damaged
	if ok {
		r.indexOff = off
	}
	if entries == 0 && ok {
		entries, err = r.countFrom(last)
	} else if entries == 0 {
		entries, err = r.recordsIn(segHeadBytes)
	}
	if err != nil {
		return err
	}
	r.entries, r.pages = min(entries, maxRunEntries), (entries+pageEntries-1)/pageEntries
	r.minLSN, r.maxLSN = 0, 0
	return nil
}

// foundPage is an index page that was found by its checksum.
type foundPage struct {
	no int
	b  []byte
}

// findIndex looks for index pages: they lie at multiples of 4096, and each says which it is. last is the last of them.
func (r *run) findIndex() (off int64, last foundPage, ok bool, err error) {
	win := window{f: r.f, end: r.size, tolerant: true}
	for at := int64(pageBytes); at+pageBytes <= r.size; at += pageBytes {
		b, err := win.bytes(at, pageBytes)
		if err != nil {
			return 0, last, false, err
		}
		no, n := le.Uint32(b[4:]), le.Uint32(b[8:])
		start := at - int64(no)*pageBytes
		if n == 0 || n > pageEntries || start < pageBytes || ok && start != off || le.Uint32(b) != checksum(r.seed, b[4:]) {
			continue
		}
		off, ok = start, true
		last = foundPage{int(no), append(last.b[:0], b...)}
	}
	return off, last, ok, nil
}

// countFrom returns how many entries there are up to the end of page last, and of records behind it.
func (r *run) countFrom(last foundPage) (int, error) {
	n := int(le.Uint32(last.b[8:]))
	x := pageEntry(last.b, n-1)
	more, err := r.recordsIn(x.off + int64(padded(int(x.length))))
	return last.no*pageEntries + n + more, err
}

// recordsIn counts the records from off to the index.
func (r *run) recordsIn(off int64) (int, error) {
	groups, err := r.findGroups(off, r.bodyEnd())
	n := 0
	for _, g := range groups {
		n += g.n
	}
	return n, err
}

// salvageRuns copies what is sound in damaged runs to new ones. The old ones become evidence when MANIFEST names the new ones.
func (rc *recovery) salvageRuns(set *runSet) error {
	for _, id := range sortedKeys(set.damaged) {
		name := rc.locate(runPrefix, id, rc.state.runs[id].epoch)
		if rc.rebuilt && superseded(id, set.found) {
			rc.broken = append(rc.broken, name)
			delete(rc.state.runs, id)
			continue
		}
		out, err := rc.salvage(id, name, set.damaged[id])
		for vfs.IsFull(err) && rc.s.giveUpReserve() {
			out, err = rc.salvage(id, name, set.damaged[id])
		}
		if vfs.IsFull(err) {
			rc.putAside(id, name, err)
			continue
		}
		if err != nil {
			return err
		}
		rc.broken = append(rc.broken, name)
		delete(rc.state.runs, id)
		if out != nil {
			set.found[out.id] = out
		}
	}
	return nil
}

// putAside leaves a damaged run that there is no room to copy as it is, and MANIFEST as well: the next Open tries again.
func (rc *recovery) putAside(id uint64, name string, err error) {
	s := rc.s
	s.corrupt("a run is damaged, and the disk is too full to copy what is sound in it; its entries wait: make room and restart", s.path(name), "offset", 0,
		"entries", rc.pendingIn(id), "err", err)
	ops := wordOps(id, opDone, rc.state.done[id])
	s.aside[id] = append(ops, wordOps(id, opCancelled, rc.state.cancelled[id])...)
}

func wordOps(id uint64, op byte, words map[uint32]uint64) []manifestOp {
	if len(words) == 0 {
		return nil
	}
	o := manifestOp{op: op, id: id}
	for _, at := range slices.Sorted(maps.Keys(words)) {
		o.bits = append(o.bits, word{at, words[at]})
	}
	return []manifestOp{o}
}

// superseded says whether a run was merged into another.
func superseded(id uint64, found map[uint64]*run) bool {
	for _, r := range found {
		if slices.Contains(r.sources, id) {
			return true
		}
	}
	return false
}

// salvage copies what is pending and sound in a damaged run; nil if there is nothing.
func (rc *recovery) salvage(id uint64, name string, damage error) (*run, error) {
	s := rc.s
	old, err := openDamagedRun(s.o.FS, s.path(name), id, rc.state.runs[id])
	if errors.Is(err, ErrCorrupt) {
		pending := rc.pendingIn(id)
		s.corrupt("a run is damaged beyond help, its entries are lost unless their segment is still there", s.path(name), "offset", damageOffset(damage),
			"entries", pending, "err", damage)
		s.lost += int64(max(0, pending))
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("salvage %s: %w", s.path(name), err)
	}
	if s.tool.readsOnly() {
		return rc.useDamaged(old, damage)
	}
	defer old.f.Close()
	old.load(rc.state.done[id], rc.state.cancelled[id])
	lost, unsure, err := rc.sift(old)
	if err != nil {
		return nil, fmt.Errorf("salvage %s: %w", s.path(name), err)
	}
	j := s.salvageJob(old)
	out, err := j.run()
	if err != nil {
		return nil, fmt.Errorf("salvage %s: %w", s.path(name), err)
	}
	kept := 0
	if out != nil {
		kept = out.entries
	}
	s.corrupt("a run is damaged; what is pending and sound in it was copied to a new one", old.path, "offset", damageOffset(damage), "err", damage,
		"new", fileName(runPrefix, j.id), "copied", kept, "lost at most", len(lost), "may fire again", unsure)
	rc.lost = append(rc.lost, lostIn{old.path, lost})
	return out, nil
}

// useDamaged makes a damaged run one that can be read as far as it is sound.
func (rc *recovery) useDamaged(r *run, damage error) (*run, error) {
	rc.s.corrupt("a run is damaged; repairing it, or a start, copies what is pending and sound in it to a new one", r.path,
		"offset", damageOffset(damage), "err", damage)
	r.load(rc.state.done[r.id], rc.state.cancelled[r.id])
	lost, _, err := rc.sift(r)
	rc.lost = append(rc.lost, lostIn{r.path, lost})
	return r, err
}

// sift marks as done what is lost of a damaged run, and returns it. unsure is how many entries may fire again.
func (rc *recovery) sift(r *run) (lost []numbered, unsure int, err error) {
	r.mend.report = func(_ *run, m *mendReport) {
		r.accept(m)
		lost, unsure = append(lost, m.lost...), unsure+len(m.unsure)
	}
	if rc.rebuilt {
		if err := rc.s.findPunched(r); err != nil {
			return nil, 0, err
		}
	}
	records, err := rc.siftRecords(r)
	lost = append(lost, records...)
	slices.SortFunc(lost, func(a, b numbered) int { return cmp.Compare(a.ord, b.ord) })
	return lost, unsure, err
}

// siftRecords marks as done the pending entries of a run whose records are damaged, and returns them. It reads all index pages.
func (rc *recovery) siftRecords(r *run) (lost []numbered, err error) {
	first, last := LSN(math.MaxUint64), LSN(0)
	win := window{f: r.f, end: r.bodyEnd(), tolerant: true}
	b := make([]byte, pageBytes)
	for page := range r.pages {
		if err := r.readPage(page, b); err != nil {
			return nil, err
		}
		for i := range r.pageLen(page) {
			ord, x := page*pageEntries+i, pageEntry(b, i)
			if x.lost() {
				continue
			}
			first, last = min(first, x.lsn), max(last, x.lsn)
			if r.isDone(ord) {
				continue
			}
			rec, err := win.bytes(x.off, int(x.length))
			if err != nil {
				return nil, err
			}
			if !x.names(rec, r.seed) {
				r.setDone(ord)
				lost = append(lost, numbered{ord, x})
			}
		}
	}
	if r.maxLSN == 0 { // there was no footer
		r.minLSN, r.maxLSN = first, last
	}
	return lost, nil
}

// lostIn are entries that a damaged file has lost.
type lostIn struct {
	path    string
	entries []numbered
}

// tellLost reports what files have lost, when it is known what of it was settled.
func (rc *recovery) tellLost() {
	for _, l := range rc.lost {
		rc.s.tellLost(l.path, slices.DeleteFunc(l.entries, func(x numbered) bool { return rc.settled[x.key()] && !x.lost() }))
	}
}
