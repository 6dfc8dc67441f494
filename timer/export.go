package timer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	exportRows  = 8192    // of one step of an export
	exportBytes = 4 << 20 // and bytes of records; the last may exceed it
	spanGap     = 512     // what lies between two records that are read at once
)

// Exported is what an Export did.
type Exported struct {
	Entries int64 // in the stream
	Bytes   int64 // of the stream
	Damaged int64 // pending entries that are not in the stream because their records are damaged
}

// Export writes every pending entry that q selects to w as a portable stream, for Import: see portable.go for its format. An entry that is pending from
// the beginning to the end of the call is in it once; one that is put meanwhile is not; one that is settled or cancelled meanwhile may be. RAM is
// bounded: some MiB, and one record. The store goes on working, and keeps no file longer because of a slow w.
//
// It reads the disk and may be called from any goroutine. On an error the stream is not complete, and Import will notice. Errors: what w returned, the error
// of ctx, ErrClosed, or what the disk said.
func (s *Store) Export(ctx context.Context, w io.Writer, q Filter) (Exported, error) {
	head := encodePortHead(s.identity, s.o.Now())
	x := exporter{s: s, w: w, head: checksum(0, head), buf: head}
	s.mu.Lock()
	highest := s.admitted
	s.mu.Unlock()
	for after := (Cursor{}); ; {
		if err := ctx.Err(); err != nil {
			return x.did, fmt.Errorf("timer: export: %w", err)
		}
		next, more, err := x.step(q, after, highest)
		if err != nil {
			return x.did, err
		}
		if err := x.flush(); err != nil {
			return x.did, err
		}
		if !more {
			break
		}
		after = next
	}
	x.buf = appendEndFrame(x.buf, x.did.Entries, frameSeed(x.head, x.did.Entries))
	return x.did, x.flush()
}

// exporter writes a portable stream.
type exporter struct {
	s    *Store
	w    io.Writer
	head uint32 // its checksum
	buf  []byte
	did  Exported
}

// step encodes the entries of one part of a scan.
func (x *exporter) step(q Filter, after Cursor, highest LSN) (next Cursor, more bool, err error) {
	sc, err := x.s.scan(scanQuery{Filter: q, after: after, rows: exportRows, bytes: exportBytes, highest: highest})
	if err != nil {
		return next, false, err
	}
	defer sc.close()
	for _, l := range sc.load() {
		switch {
		case errors.Is(l.err, ErrNotPending):
			continue
		case errors.Is(l.err, ErrCorrupt):
			x.did.Damaged++
			x.s.o.Log.Error("timer: an entry is left out of the export: its record is damaged", "err", l.err, "lsn", l.row.lsn, "due", l.row.due,
				"broker", l.row.flow.name.Broker, "topic", l.row.flow.name.Topic)
			continue
		case l.err != nil:
			return next, false, x.s.failed("export", l.err)
		}
		e := l.rec.entry()
		x.buf = appendFrame(x.buf, &e, frameSeed(x.head, x.did.Entries))
		x.did.Entries++
	}
	return sc.next, sc.more, nil
}

func (x *exporter) flush() error {
	n, err := x.w.Write(x.buf)
	x.did.Bytes += int64(n)
	x.buf = x.buf[:0]
	if cap(x.buf) > 4*exportBytes {
		x.buf = nil
	}
	if err != nil {
		return fmt.Errorf("timer: write the export: %w", err)
	}
	return nil
}

// loaded is a row with its record, or why it could not be read: as scanRow.read.
type loaded struct {
	row *scanRow
	rec record
	err error
}

// load reads the records of all rows, those that lie side by side together, and returns them in the order of the rows.
func (p *scanPage) load() []loaded {
	all := make([]loaded, len(p.rows))
	byPlace := make([]*loaded, 0, len(all))
	for i := range all {
		all[i].row = &p.rows[i]
		if all[i].row.home != nil {
			byPlace = append(byPlace, &all[i])
		}
	}
	slices.SortFunc(byPlace, func(a, b *loaded) int { return a.row.place().compare(b.row.place()) })
	space := func(size int) []byte { return make([]byte, size) } // the records stay in it
	readRecords(len(byPlace), func(i int) recordPlace { return byPlace[i].row.place() }, spanGap, space, func(i int, r record) {
		byPlace[i].rec = r
	})
	for i := range all {
		if l := &all[i]; l.rec.length == 0 { // whatever went wrong
			l.rec, l.err = l.row.read(p.v.s)
		}
	}
	return all
}
