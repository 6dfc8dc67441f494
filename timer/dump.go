package timer

import (
	"errors"
	"fmt"
	"path"
	"slices"
)

// Pending is an entry that Dump found, with the place of its record.
type Pending struct {
	Entry
	LSN    LSN
	File   string // its name in the folder
	Offset int64  // bytes
}

// Dump calls emit with every pending entry, in (due, LSN) order; what emit gets is valid until it returns. An error of emit ends it. Damage
// is reported and left out. It changes nothing; pass vfs.ReadOnly to be sure. It holds the lock of the folder. RAM: what Open takes, and up
// to 300 KiB for each run.
//
// Errors: what emit said, or as of Verify.
func Dump(fs FS, dir string, emit func(Pending) error, report func(Problem)) (Summary, error) {
	t, err := openTool(fs, dir, true, report)
	if err != nil {
		return Summary{}, err
	}
	err = t.dump(emit)
	sum, serr := t.summary()
	return sum, errors.Join(err, serr, t.close())
}

// dumpSource is a file that is dumped: the present entry, and how to get to the next.
type dumpSource struct {
	file    *dataFile
	x       indexEntry
	next    func() (bool, error)
	records window
}

func (t *tool) dump(emit func(Pending) error) error {
	heads := heap[*dumpSource]{less: func(a, b *dumpSource) bool { return a.x.key().less(b.x.key()) }}
	sources := make([]*dumpSource, 0, len(t.s.segs)+len(t.s.runs))
	for _, g := range t.s.segs {
		sources = append(sources, segmentSource(g))
	}
	for _, r := range t.s.runs {
		sources = append(sources, t.runSource(r))
	}
	for _, d := range sources {
		more, err := d.next()
		if err != nil {
			return err
		}
		if more {
			heads.push(d)
		}
	}
	for heads.len() > 0 {
		d := heads.min()
		if err := t.emit(d, emit); err != nil {
			return err
		}
		more, err := d.next()
		if err != nil {
			return err
		}
		heads.next(more)
	}
	return nil
}

// emit hands the present entry on, or reports that it is damaged.
func (t *tool) emit(d *dumpSource, emit func(Pending) error) error {
	b, err := d.records.bytes(d.x.off, int(d.x.length))
	if err != nil {
		return fmt.Errorf("timer: %s: %w", d.file.path, err)
	}
	rec, ok := parseRecord(b, d.file.seed)
	if !ok || rec.lsn != d.x.lsn {
		if r := d.file.run; r != nil {
			r.pending--
		}
		t.s.tellLost(d.file.path, []numbered{{indexEntry: d.x}})
		return nil
	}
	return emit(Pending{Entry: rec.entry(), LSN: rec.lsn, File: path.Base(d.file.path), Offset: d.x.off})
}

// segmentSource walks through what is pending in a segment.
func segmentSource(g *segment) *dumpSource {
	pend := slices.DeleteFunc(slices.Clone(g.entries), func(e *entry) bool { return e.done })
	slices.SortFunc(pend, func(a, b *entry) int { return a.key().compare(b.key()) })
	d := &dumpSource{file: &g.dataFile, records: window{f: g.f, end: g.size, tolerant: true}}
	d.next = func() (bool, error) {
		if len(pend) == 0 {
			return false, nil
		}
		e := pend[0]
		pend = pend[1:]
		d.x = indexEntry{due: e.due, lsn: e.lsn, length: uint32(e.length), off: e.off}
		return true, nil
	}
	return d
}

// runSource walks through what is pending in a run.
func (t *tool) runSource(r *run) *dumpSource {
	d := &dumpSource{file: &r.dataFile, records: window{f: r.f, end: r.bodyEnd(), tolerant: true}}
	pages := pageReader{run: r}
	ord := -1
	d.next = func() (bool, error) {
		for {
			if ord = nextBit(r.done, r.entries, ord+1, false); ord == r.entries {
				return false, nil
			}
			b, _, err := pages.page(ord / pageEntries)
			if err != nil {
				return false, err
			}
			if d.x = pageEntry(b, ord%pageEntries); !d.x.lost() {
				return true, nil
			}
		}
	}
	return d
}
