package timer

import (
	"errors"
	"fmt"

	"github.com/delaygate/delaygate/timer/vfs"
)

const runWriteSize = 1 << 20 // bytes per write

// runLayout is what must be known before a run is written.
type runLayout struct {
	entries           int
	bodies            int64 // bytes of records, padding included
	minLSN, maxLSN    LSN   // of the segments it comes from
	firstSeg, lastSeg uint64
	sources           []uint64 // the runs it is merged from
}

// runWriter writes a run file. Records and index pages go to two places of it, each in one sequence, so that RAM does not grow
// with the run but for its key table.
type runWriter struct {
	s         *Store
	r         *run
	left      int // entries that were announced and not put
	bodies    stream
	index     stream
	page      []byte // the open index page
	onPage    int
	pageNo    int
	ids       map[*flow]uint32
	table     []runFlow // by id
	resign    *resigner // nil: records are signed anew
	keys      []keyLine
	skipKeys  bool // finishWith brings them
	hashSpace []byte
}

// stream appends to one stretch of a file.
type stream struct {
	f   vfs.File
	at  int64 // where buf ends in the file
	buf []byte
}

func (t *stream) add(b []byte) error {
	t.buf = append(t.buf, b...)
	t.at += int64(len(b))
	if len(t.buf) < runWriteSize {
		return nil
	}
	return t.flush()
}

// pad adds zeros up to a multiple of a page.
func (t *stream) pad() error {
	return t.add(make([]byte, (pageBytes-t.at%pageBytes)%pageBytes))
}

func (t *stream) flush() error {
	_, err := t.f.WriteAt(t.buf, t.at-int64(len(t.buf)))
	t.buf = t.buf[:0]
	return err
}

// newRun begins the run file with that id. What it returns ends with finish or giveUp.
func (s *Store) newRun(id uint64, l runLayout) (*runWriter, error) {
	epoch := newEpoch()
	path := s.path(fileName(runPrefix, id))
	f, err := s.o.FS.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	r := &run{dataFile: newDataFile(id, epoch, path, f, 0)}
	r.dataFile.run = r
	r.mend.report = s.mended
	r.entries, r.pages = l.entries, (l.entries+pageEntries-1)/pageEntries
	r.minLSN, r.maxLSN, r.firstSeg, r.lastSeg, r.sources = l.minLSN, l.maxLSN, l.firstSeg, l.lastSeg, l.sources
	r.indexOff = (segHeadBytes + l.bodies + pageBytes - 1) / pageBytes * pageBytes
	w := &runWriter{
		s: s, r: r, left: l.entries, page: make([]byte, pageBytes), ids: map[*flow]uint32{},
		bodies: stream{f: f}, index: stream{f: f, at: r.indexOff},
	}
	if err := w.bodies.add(encodeHead(runMagic, id, epoch)); err != nil {
		return nil, w.giveUp(err)
	}
	return w, nil
}

// put appends the record rec, which comes after all before it in (due, LSN) order, and returns its offset. rec gets its new
// checks in place.
func (w *runWriter) put(rec []byte, f *flow, lane uint16) (int64, error) {
	if w.resign != nil {
		w.resign.sign(rec)
	} else {
		signRecord(rec, w.r.seed)
	}
	if !w.skipKeys {
		w.keys = appendKeyLines(w.keys, rec, uint32(w.r.entries-w.left), &w.hashSpace)
	}
	off := w.bodies.at
	x := indexEntry{due: int64(le.Uint64(rec[24:])), lsn: LSN(le.Uint64(rec[16:])), length: uint32(len(rec)), lane: lane}
	return off, w.add(rec, f, x)
}

// putDamaged appends a record that is damaged where it comes from, so that it is here too. x is its line in the index there.
func (w *runWriter) putDamaged(rec []byte, f *flow, x indexEntry) error {
	le.PutUint16(rec[38:], ^uint16(checksum(w.r.seed, rec[4:38])))
	return w.add(rec, f, x)
}

// add appends rec and a line for it; x lacks its place and flow.
func (w *runWriter) add(rec []byte, f *flow, x indexEntry) error {
	if w.left == w.r.entries {
		w.r.minDue = x.due
	}
	w.r.maxDue = x.due
	x.flow, x.off = w.flow(f, x.due), w.bodies.at
	if err := w.bodies.add(rec); err != nil {
		return err
	}
	if err := w.bodies.add(zeroPadding[:padded(len(rec))-len(rec)]); err != nil {
		return err
	}
	w.left--
	return w.line(x)
}

var zeroPadding [8]byte

// line adds a line to the index.
func (w *runWriter) line(x indexEntry) error {
	x.put(w.page[pageHead+w.onPage*indexBytes:])
	w.onPage++
	if w.onPage < pageEntries && w.left > 0 {
		return nil
	}
	signPage(w.page, w.pageNo, w.onPage, w.r.seed)
	err := w.index.add(w.page)
	clear(w.page)
	w.pageNo++
	w.onPage = 0
	return err
}

// flow counts an entry and returns the number of its flow in the flow table.
func (w *runWriter) flow(f *flow, due int64) uint32 {
	id, ok := w.ids[f]
	if !ok {
		id = uint32(len(w.r.names))
		w.ids[f] = id
		w.r.names = append(w.r.names, f)
		w.r.flows = append(w.r.flows, f.name)
		w.table = append(w.table, runFlow{name: f.name})
	}
	table := &w.table[id]
	if h, last := hourOf(due), len(table.hours)-1; last >= 0 && table.hours[last].hour == h {
		table.hours[last].count++
	} else {
		table.hours = append(table.hours, hourCount{h, 1})
	}
	return id
}

// finish writes the rest and makes the file durable.
func (w *runWriter) finish() (*run, error) {
	lines := sortedKeyLines(w.keys)
	return w.finishWith(func() (keyLine, bool, error) {
		if len(lines) == 0 {
			return keyLine{}, false, nil
		}
		l := lines[0]
		lines = lines[1:]
		return l, true, nil
	})
}

// finishWith is finish with the lines of the key table from next, sorted.
func (w *runWriter) finishWith(next func() (keyLine, bool, error)) (*run, error) {
	if err := w.end(next); err != nil {
		return nil, w.giveUp(err)
	}
	w.r.prepare()
	return w.r, nil
}

func (w *runWriter) end(next func() (keyLine, bool, error)) error {
	r := w.r
	if err := w.bodies.pad(); err != nil {
		return err
	}
	if w.left != 0 || w.bodies.at != r.indexOff || w.index.at != r.indexOff+int64(r.pages)*pageBytes {
		return fmt.Errorf("%d entries are missing and its records end at %d, not at %d", w.left, w.bodies.at, r.indexOff)
	}
	if err := w.bodies.flush(); err != nil {
		return err
	}
	r.keysOff = w.index.at
	if err := w.keyPages(next); err != nil {
		return err
	}
	r.keysBytes = w.index.at - r.keysOff
	table := encodeFlows(r.sources, w.table)
	r.flowOff, r.flowLen, r.flowCRC = w.index.at, int64(len(table)), checksum(r.seed, table)
	if err := w.index.add(append(table, r.encode(r.id, r.epoch)...)); err != nil {
		return err
	}
	r.size, r.occupied = w.index.at, w.index.at
	if err := w.index.flush(); err != nil {
		return err
	}
	if err := r.f.Sync(false); err != nil {
		return err
	}
	return w.s.o.FS.SyncDir(w.s.o.Dir)
}

func (w *runWriter) keyPages(next func() (keyLine, bool, error)) error {
	b := make([]byte, pageBytes)
	n, page := 0, 0
	for {
		l, more, err := next()
		if err != nil {
			return err
		}
		if n == pageKeys || !more && n > 0 {
			signPage(b, page|keyPage, n, w.r.seed)
			if err := w.index.add(b); err != nil {
				return err
			}
			clear(b)
			n, page = 0, page+1
		}
		if !more {
			return nil
		}
		l.put(b[pageHead+n*keyBytes:])
		n++
	}
}

// giveUp removes the file and says why.
func (w *runWriter) giveUp(err error) error {
	w.r.f.Close()
	return errors.Join(fmt.Errorf("write %s: %w", w.r.path, err), w.s.o.FS.Remove(w.r.path))
}
