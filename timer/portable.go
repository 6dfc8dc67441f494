package timer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// The portable stream that Export writes and Import reads. Integers are little endian, checksums are CRC-32C. It
// begins with a head of 32 bytes:
//
//	 0  8  magic "DGEXPOR\n"
//	 8  4  checksum of bytes 12 to 31
//	12  4  version of the format: 1
//	16  8  identity of the store that it came from
//	24  8  when it was begun, Unix ms
//
// Frames follow, one for each entry in the order of due times, and one more that ends the stream. Their checksums start from the checksum of the
// head's 32 bytes and the number of the frame from 0 (8 bytes), so that a frame that is missing, repeated, moved or from another stream is noticed:
//
//	 0  4  checksum of bytes 4 to its end
//	 4  4  length of the frame
//	 8  1  kind: 1 entry, 2 end
//	 9  1  zero
//	10  2  lane
//	12  2  length of the broker name
//	14  2  length of the topic name
//	16  8  due, Unix ms; end: the number of entries
//	24  2  length of the unique key
//	26  2  length of the business keys
//	28  4  checksum of bytes 4 to 27
//	32     broker, topic, unique key, business keys (separated by blanks), body
//
// Nothing follows the end.
const (
	portMagic   = "DGEXPOR\n"
	portVersion = 1
	portHead    = 32
	frameHead   = 32
	frameEntry  = 1
	frameEnd    = 2
	frameChunk  = 1 << 20 // of a frame that is read at once: a length is believed as its bytes come
)

// Errors of Import that are about the stream.
var (
	// ErrDamagedExport: the stream is cut off, damaged, or no export at all.
	ErrDamagedExport = errors.New("timer: the export is damaged")
	// ErrExportVersion: a newer version wrote the stream.
	ErrExportVersion = errors.New("timer: the export was written by a newer version; import it with that version")
)

func encodePortHead(identity uint64, begun int64) []byte {
	b := make([]byte, portHead)
	copy(b, portMagic)
	le.PutUint32(b[12:], portVersion)
	le.PutUint64(b[16:], identity)
	le.PutUint64(b[24:], uint64(begun))
	le.PutUint32(b[8:], checksum(0, b[12:]))
	return b
}

// frameSeed is what the checksums of frame number n start from.
func frameSeed(head uint32, n int64) uint32 {
	var b [8]byte
	le.PutUint64(b[:], uint64(n))
	return checksum(head, b[:])
}

// appendFrame appends the frame of an entry, whose fields must be no longer than Put allows.
func appendFrame(b []byte, e *Entry, seed uint32) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHead)...)
	h := b[at:]
	h[8] = frameEntry
	le.PutUint16(h[10:], e.Lane)
	le.PutUint16(h[12:], uint16(len(e.Flow.Broker)))
	le.PutUint16(h[14:], uint16(len(e.Flow.Topic)))
	le.PutUint64(h[16:], uint64(e.Due))
	le.PutUint16(h[24:], uint16(len(e.Key)))
	le.PutUint16(h[26:], uint16(len(e.Keys)))
	b = append(b, e.Flow.Broker...)
	b = append(b, e.Flow.Topic...)
	b = append(b, e.Key...)
	b = append(b, e.Keys...)
	b = append(b, e.Body...)
	signFrame(b[at:], seed)
	return b
}

func appendEndFrame(b []byte, entries int64, seed uint32) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHead)...)
	b[at+8] = frameEnd
	le.PutUint64(b[at+16:], uint64(entries))
	signFrame(b[at:], seed)
	return b
}

func signFrame(b []byte, seed uint32) {
	le.PutUint32(b[4:], uint32(len(b)))
	le.PutUint32(b[28:], checksum(seed, b[4:28]))
	le.PutUint32(b, checksum(seed, b[4:]))
}

// portReader reads a portable stream.
type portReader struct {
	r     *bufio.Reader
	head  uint32 // checksum of the head
	n     int64  // entries read
	at    int64  // bytes read
	buf   []byte
	ended bool
}

func newPortReader(r io.Reader) (*portReader, error) {
	p := &portReader{r: bufio.NewReaderSize(r, 64<<10)}
	b, err := p.take(portHead)
	switch {
	case len(b) < len(portMagic) || string(b[:len(portMagic)]) != portMagic:
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, p.failed(err)
		}
		return nil, fmt.Errorf("%w: it does not begin like one", ErrDamagedExport)
	case err != nil:
		return nil, p.failed(err)
	case le.Uint32(b[8:]) != checksum(0, b[12:]) || le.Uint32(b[12:]) == 0:
		return nil, fmt.Errorf("%w: its first %d bytes", ErrDamagedExport, portHead)
	case le.Uint32(b[12:]) > portVersion:
		return nil, fmt.Errorf("%w (format %d, this version reads up to %d)", ErrExportVersion, le.Uint32(b[12:]), portVersion)
	}
	p.head = checksum(0, b)
	return p, nil
}

// next returns the next entry, io.EOF behind the last one. The entry's body is valid until the call after. Errors of the stream wrap
// ErrDamagedExport, others are the reader's.
func (p *portReader) next() (Entry, error) {
	if p.ended {
		return Entry{}, io.EOF
	}
	seed := frameSeed(p.head, p.n)
	h, err := p.take(frameHead)
	if err != nil {
		return Entry{}, p.failed(err)
	}
	length, kind := int64(le.Uint32(h[4:])), h[8]
	broker, topic, key, keys := int(le.Uint16(h[12:])), int(le.Uint16(h[14:])), int(le.Uint16(h[24:])), int(le.Uint16(h[26:]))
	names := broker + topic + key + keys
	empty := kind == frameEnd && length == frameHead && le.Uint16(h[10:]) == 0
	if le.Uint32(h[28:]) != checksum(seed, h[4:28]) || h[9] != 0 || length < int64(frameHead+names) || kind == frameEnd && !empty {
		return Entry{}, p.damaged()
	}
	b, err := p.takeMore(length - frameHead)
	switch {
	case err != nil:
		return Entry{}, p.failed(err)
	case le.Uint32(b) != checksum(seed, b[4:]):
		return Entry{}, p.damaged()
	case kind == frameEnd:
		return Entry{}, p.end(int64(le.Uint64(b[16:])))
	case kind != frameEntry:
		return Entry{}, fmt.Errorf("%w (its entry %d is of kind %d)", ErrExportVersion, p.n, kind)
	}
	p.n++
	e := Entry{Lane: le.Uint16(b[10:]), Due: int64(le.Uint64(b[16:]))}
	rest := b[frameHead:]
	cut := func(n int) string {
		field := string(rest[:n])
		rest = rest[n:]
		return field
	}
	e.Flow.Broker, e.Flow.Topic, e.Key, e.Keys = cut(broker), cut(topic), cut(key), cut(keys)
	e.Body = rest
	return e, nil
}

// end checks the last frame and that nothing follows it.
func (p *portReader) end(entries int64) error {
	if entries != p.n {
		return fmt.Errorf("%w: it ends after %d entries and says that it has %d", ErrDamagedExport, p.n, entries)
	}
	_, err := p.r.ReadByte()
	switch {
	case err == nil:
		return fmt.Errorf("%w: something follows its end at byte %d", ErrDamagedExport, p.at)
	case !errors.Is(err, io.EOF):
		return p.failed(err)
	}
	p.ended = true
	return io.EOF
}

// take reads n bytes into the beginning of the buffer; err is that of io.ReadFull.
func (p *portReader) take(n int) ([]byte, error) {
	p.buf = p.buf[:0]
	return p.takeMore(int64(n))
}

// takeMore reads n bytes behind those of the call before and returns all.
func (p *portReader) takeMore(n int64) ([]byte, error) {
	for n > 0 {
		at, step := len(p.buf), int(min(n, frameChunk))
		if cap(p.buf)-at < step {
			p.buf = append(make([]byte, 0, max(2*cap(p.buf), at+step)), p.buf...)
		}
		p.buf = p.buf[:at+step]
		got, err := io.ReadFull(p.r, p.buf[at:])
		p.at += int64(got)
		if err != nil {
			p.buf = p.buf[:at+got]
			return p.buf, err
		}
		n -= int64(step)
	}
	return p.buf, nil
}

// failed says why no more could be read.
func (p *portReader) failed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off at byte %d, after %d entries", ErrDamagedExport, p.at, p.n)
	}
	return fmt.Errorf("timer: read the export at byte %d: %w", p.at, err)
}

func (p *portReader) damaged() error {
	return fmt.Errorf("%w: entry %d, before byte %d", ErrDamagedExport, p.n, p.at)
}
