package timer

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// The kinds of records. Part of the format: never renumber.
const (
	kindGroup  = 1 // opens a group of records that were written together
	kindPut    = 2
	kindSettle = 3
	kindCancel = 4
)

// headBytes is the size of the fixed part of every record.
const headBytes = 40

// settlesPerRecord bounds a settle record so that it fits the smallest segment.
const settlesPerRecord = 256

const settleBytes = 16

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// seedOf is what checksums in a file start from: bytes of an earlier life of a recycled file, or of another
// file, never pass for its own.
func seedOf(id, epoch uint64) uint32 {
	var b [16]byte
	le.PutUint64(b[:], id)
	le.PutUint64(b[8:], epoch)
	return crc32.Checksum(b[:], castagnoli)
}

func checksum(seed uint32, b []byte) uint32 { return crc32.Update(seed, castagnoli, b) }

// record is a parsed record; its slices alias the buffer it was parsed from.
type record struct {
	kind               byte
	lane               uint16
	lsn                LSN
	due                int64 // group: the LSN up to which everything was synced when it was written
	broker, topic, key []byte
	keys               []byte // put: business keys, separated by blanks
	body               []byte // put: the body; settle, cancel: 16 bytes each
	length             int    // without padding
}

func padded(n int) int { return (n + 7) &^ 7 }

// putLength is the length of the put record for e, without padding, or false when a field is too long.
func putLength(e *Entry) (int, bool) {
	if len(e.Flow.Broker) > math.MaxUint16 || len(e.Flow.Topic) > math.MaxUint16 || len(e.Key) > math.MaxUint16 ||
		len(e.Keys) > math.MaxUint16 || len(e.Body) > maxSegmentBytes {
		return 0, false
	}
	return headBytes + len(e.Flow.Broker) + len(e.Flow.Topic) + len(e.Key) + len(e.Keys) + len(e.Body), true
}

// appendHead appends the fixed part with both checks left zero.
func appendHead(b []byte, kind byte, length int, lane uint16, lsn LSN, due int64) []byte {
	var h [headBytes]byte
	le.PutUint32(h[4:], uint32(length))
	h[8] = kind
	le.PutUint16(h[10:], lane)
	le.PutUint64(h[16:], uint64(lsn))
	le.PutUint64(h[24:], uint64(due))
	return append(b, h[:]...)
}

func appendPadding(b []byte, length int) []byte {
	return append(b, make([]byte, padded(length)-length)...)
}

// appendPut appends a put record; signRecord must follow.
func appendPut(b []byte, e *Entry, length int, lsn LSN) []byte {
	at := len(b)
	b = appendHead(b, kindPut, length, e.Lane, lsn, e.Due)
	le.PutUint16(b[at+12:], uint16(len(e.Flow.Broker)))
	le.PutUint16(b[at+14:], uint16(len(e.Flow.Topic)))
	le.PutUint16(b[at+32:], uint16(len(e.Keys)))
	le.PutUint16(b[at+36:], uint16(len(e.Key)))
	b = append(b, e.Flow.Broker...)
	b = append(b, e.Flow.Topic...)
	b = append(b, e.Key...)
	b = append(b, e.Keys...)
	b = append(b, e.Body...)
	return appendPadding(b, length)
}

// appendSettles appends one settle record for at most settlesPerRecord keys; signRecord must follow.
func appendSettles(b []byte, keys []settle, lsn LSN) []byte {
	n := len(keys) * settleBytes
	b = appendHead(b, kindSettle, headBytes+n, 0, lsn, 0)
	for _, k := range keys {
		b = appendKey(b, k.key)
	}
	return b
}

// appendCancel appends the record of one cancel; signRecord must follow.
func appendCancel(b []byte, k key, lsn LSN) []byte {
	return appendKey(appendHead(b, kindCancel, headBytes+settleBytes, 0, lsn, 0), k)
}

func appendKey(b []byte, k key) []byte {
	b = le.AppendUint64(b, uint64(k.lsn))
	return le.AppendUint64(b, uint64(k.due))
}

// putGroupHead writes a group record over b[:headBytes]: the group's first LSN, the LSN up to which all is synced,
// and how many bytes of records follow.
func putGroupHead(b []byte, first, synced LSN, size int) {
	h := appendHead(b[:0], kindGroup, headBytes, 0, first, int64(synced))
	le.PutUint32(h[32:], uint32(size))
}

// signRecord fills in the checks of the record at the start of b.
func signRecord(b []byte, seed uint32) {
	le.PutUint16(b[38:], uint16(checksum(seed, b[4:38])))
	length := int(le.Uint32(b[4:]))
	le.PutUint32(b, checksum(seed, b[4:length]))
}

// recordLength returns the length of the record that b starts with if its fixed part is intact and it lies
// inside b, else 0.
func recordLength(b []byte, seed uint32) int {
	if len(b) < headBytes {
		return 0
	}
	length := int(le.Uint32(b[4:]))
	if length < headBytes || length > len(b) {
		return 0
	}
	if le.Uint16(b[38:]) != uint16(checksum(seed, b[4:38])) {
		return 0
	}
	return length
}

// parseRecord reads the record that b starts with. False: it is not an intact record.
func parseRecord(b []byte, seed uint32) (record, bool) {
	length := recordLength(b, seed)
	if length == 0 || le.Uint32(b) != checksum(seed, b[4:length]) {
		return record{}, false
	}
	r := record{
		kind:   b[8],
		lane:   le.Uint16(b[10:]),
		lsn:    LSN(le.Uint64(b[16:])),
		due:    int64(le.Uint64(b[24:])),
		length: length,
	}
	if r.kind == kindGroup {
		return r, true
	}
	return r, r.split(b[:length])
}

// split sets the names, keys and body from the whole record b. False: they do not fit in.
func (r *record) split(b []byte) bool {
	broker, topic := int(le.Uint16(b[12:])), int(le.Uint16(b[14:]))
	keys, key := int(le.Uint16(b[32:])), int(le.Uint16(b[36:]))
	rest := b[headBytes:]
	if broker+topic+key+keys > len(rest) {
		return false
	}
	r.broker, rest = rest[:broker], rest[broker:]
	r.topic, rest = rest[:topic], rest[topic:]
	r.key, rest = rest[:key], rest[key:]
	r.keys, r.body = rest[:keys], rest[keys:]
	return true
}

// ended returns the keys in a settle or cancel record.
func (r *record) ended() []key {
	keys := make([]key, 0, len(r.body)/settleBytes)
	for b := r.body; len(b) >= settleBytes; b = b[settleBytes:] {
		keys = append(keys, key{due: int64(le.Uint64(b[8:])), lsn: LSN(le.Uint64(b))})
	}
	return keys
}
