package timer

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/delaygate/delaygate/timer/vfs"
)

const windowBytes = 256 << 10

// window is a moving part of a file in RAM.
type window struct {
	f        vfs.File
	end      int64 // nothing at or past it is read
	tolerant bool  // pages that cannot be read are zeros
	from     int64 // of buf in the file
	buf      []byte
}

// bytes returns n bytes at off, fewer only at the end. They stay valid until the next call.
func (w *window) bytes(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(0, w.end-off)))
	if off >= w.from && off+int64(n) <= w.from+int64(len(w.buf)) {
		return w.buf[off-w.from:][:n], nil
	}
	size := int(min(int64(max(n, windowBytes)), w.end-off))
	if cap(w.buf) < size {
		w.buf = make([]byte, size)
	}
	w.from, w.buf = off, w.buf[:size]
	got, err := w.f.ReadAt(w.buf, off)
	if got < size && err != nil && w.tolerant {
		got = readWhatIsThere(w.f, w.buf, off)
	}
	if w.buf = w.buf[:got]; got >= n {
		return w.buf[:n], nil
	}
	w.buf = w.buf[:0]
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("read %d bytes at %d: %w", n, off, err)
}

// readWhatIsThere fills b from off on; pages that cannot be read are zeros. It returns how many bytes there are.
func readWhatIsThere(f vfs.File, b []byte, off int64) int {
	for at := 0; at < len(b); {
		n := min(len(b)-at, pageBytes-int((off+int64(at))%pageBytes))
		page := b[at : at+n]
		got, err := f.ReadAt(page, off+int64(at))
		if got < n && !errors.Is(err, io.EOF) {
			got, err = f.ReadAt(page, off+int64(at))
		}
		if got < n {
			clear(page[got:])
			if errors.Is(err, io.EOF) {
				return at + got
			}
		}
		at += n
	}
	return len(b)
}

// The kinds of places in the body of a run.
const (
	placeRecord  = iota // a sound record
	placeDamaged        // the fixed part of a record is sound, so it counts and its length is known; the rest is not
	placeGap            // bytes in which no record could be found: any number of records may have been there
)

// place is a stretch of the body of a run.
type place struct {
	kind     int
	off, end int64 // padding included

	length int // of the record; the rest is set for records and damaged ones
	due    int64
	lsn    LSN
	lane   uint16
	rec    []byte // sound records only; valid until the next step
}

// bodyScan walks through the records of a run. RAM: the larger of a window and a record.
type bodyScan struct {
	win  window
	seed uint32
	at   int64
}

// scanBody scans the bytes [from, to). The caller holds r.mend.mu or is alone.
func (r *run) scanBody(from, to int64) *bodyScan {
	return &bodyScan{win: window{f: r.f, end: to, tolerant: r.mend.tolerant}, seed: r.seed, at: from}
}

// next returns the next place; false at the end.
func (s *bodyScan) next() (place, bool, error) {
	if s.at >= s.win.end {
		return place{}, false, nil
	}
	p, err := s.record(s.at)
	if err == nil && p.kind == placeGap {
		p.end, err = s.gapEnd(s.at + 8)
	}
	s.at = p.end
	return p, true, err
}

// record looks at the record at off. What does not even have a sound fixed part is a gap of unknown end.
func (s *bodyScan) record(off int64) (place, error) {
	p := place{kind: placeGap, off: off}
	head, err := s.win.bytes(off, headBytes)
	if err != nil {
		return p, err
	}
	n := putHeadLength(head, s.seed)
	if n == 0 || off+int64(n) > s.win.end {
		return p, nil
	}
	rec, err := s.win.bytes(off, n)
	if err != nil {
		return p, err
	}
	p.kind, p.length, p.end = placeDamaged, n, min(off+int64(padded(n)), s.win.end)
	p.lane, p.lsn, p.due = le.Uint16(rec[10:]), LSN(le.Uint64(rec[16:])), int64(le.Uint64(rec[24:]))
	if _, ok := parseRecord(rec, s.seed); ok {
		p.kind, p.rec = placeRecord, rec
	}
	return p, nil
}

// gapEnd returns where the first sound record at or past off begins, or the end.
func (s *bodyScan) gapEnd(off int64) (int64, error) {
	for ; off+headBytes <= s.win.end; off += 8 {
		head, err := s.win.bytes(off, headBytes)
		if err != nil {
			return 0, err
		}
		if putHeadLength(head, s.seed) == 0 {
			continue
		}
		p, err := s.record(off)
		if err != nil {
			return 0, err
		}
		if p.kind == placeRecord {
			return off, nil
		}
	}
	return s.win.end, nil
}

// putHeadLength returns the length of the put record that begins with b, or 0 if its fixed part is damaged. Only 16 bits
// of checksum guard it, but many of its other bits have no choice either.
func putHeadLength(b []byte, seed uint32) int {
	if len(b) < headBytes || b[8] != kindPut || b[9] != 0 || le.Uint16(b[34:]) != 0 {
		return 0
	}
	length := int64(le.Uint32(b[4:]))
	names := int64(le.Uint16(b[12:])) + int64(le.Uint16(b[14:])) + int64(le.Uint16(b[32:])) + int64(le.Uint16(b[36:]))
	if length < headBytes+names || length > maxSegmentBytes || le.Uint16(b[38:]) != uint16(checksum(seed, b[4:38])) {
		return 0
	}
	return int(length)
}

// zeros says whether [from, to) holds nothing but zeros.
func (s *bodyScan) zeros(from, to int64) bool {
	for ; from < to; from += windowBytes {
		b, err := s.win.bytes(from, int(min(to-from, windowBytes)))
		if err != nil || len(bytes.TrimLeft(b, "\x00")) > 0 {
			return false
		}
	}
	return true
}
