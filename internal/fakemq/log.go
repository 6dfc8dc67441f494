package fakemq

import (
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/delaygate/delaygate/codec"
)

// record is a stored message: its encoded form, and what is needed to find and filter it.
type record struct {
	raw      []byte
	offset   int64 // physical
	queue    *queue
	position int64 // offset in the queue
	storedMs int64
	tagsCode int64 // hash of the TAGS property, 0 without one
	keys     []string
}

// messageLog holds a broker's records in physical order, and an index by topic and key. Beyond its bounds the
// oldest record goes.
type messageLog struct {
	maxMessages int
	maxBytes    int64

	records []*record
	bytes   int64
	end     int64 // physical offset of the next record
	count   int64 // records ever appended
	index   map[string][]*record
}

func (l *messageLog) init() { l.index = make(map[string][]*record) }

// append encodes m at the end of q; PhysicalOffset, QueueOffset and QueueID of m are set here.
func (l *messageLog) append(q *queue, m *codec.StoredMessage) *record {
	m.PhysicalOffset, m.QueueOffset, m.QueueID = l.end, q.max(), q.id
	raw := codec.AppendStored(nil, m)
	rec := &record{raw: raw, offset: l.end, queue: q, position: m.QueueOffset, storedMs: m.StoreTimestamp}
	rec.tagsCode, rec.keys = indexTerms(m)
	l.end += int64(len(raw))
	l.bytes += int64(len(raw))
	l.count++
	l.records = append(l.records, rec)
	q.records = append(q.records, rec)
	for _, key := range rec.keys {
		l.index[key] = append(l.index[key], rec)
	}
	for len(l.records) > 1 && (len(l.records) > l.maxMessages || l.bytes > l.maxBytes) {
		l.dropOldest()
	}
	return rec
}

func (l *messageLog) dropOldest() {
	rec := l.records[0]
	l.records[0] = nil
	l.records = l.records[1:]
	l.bytes -= int64(len(rec.raw))
	q := rec.queue
	q.records[0] = nil
	q.records = q.records[1:]
	q.min = rec.position + 1
	for _, key := range rec.keys {
		if rest := l.index[key][1:]; len(rest) > 0 {
			l.index[key] = rest
		} else {
			delete(l.index, key)
		}
	}
}

// start is the physical offset of the oldest record.
func (l *messageLog) start() int64 {
	if len(l.records) == 0 {
		return l.end
	}
	return l.records[0].offset
}

// at returns the record that starts at this physical offset, or nil.
func (l *messageLog) at(offset int64) *record {
	i, ok := slices.BinarySearchFunc(l.records, offset, func(r *record, at int64) int {
		return int(min(max(r.offset-at, -1), 1))
	})
	if !ok {
		return nil
	}
	return l.records[i]
}

// find returns at most limit records of a topic with that key or UNIQ_KEY, stored within [from, to] ms, the
// oldest first.
func (l *messageLog) find(topic, key string, from, to int64, limit int) []*record {
	var found []*record
	for _, rec := range l.index[topic+"#"+key] {
		if rec.storedMs >= from && rec.storedMs <= to && len(found) < limit {
			found = append(found, rec)
		}
	}
	return found
}

func indexTerms(m *codec.StoredMessage) (tagsCode int64, keys []string) {
	props := codec.ParseProperties(m.Properties)
	if tags, ok := props.Get(codec.PropTags); ok {
		tagsCode = javaHash(tags)
	}
	if uniq, ok := props.Get(codec.PropUniqKey); ok {
		keys = append(keys, m.Topic+"#"+uniq)
	}
	if words, ok := props.Get(codec.PropKeys); ok {
		for _, word := range strings.Fields(words) {
			if key := m.Topic + "#" + word; !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return tagsCode, keys
}

// message decodes a record. The error is impossible for what append has encoded, so it is dropped.
func (r *record) message() codec.StoredMessage {
	m, _, _ := codec.DecodeStored(r.raw)
	return m
}

// javaHash is String.hashCode of s, which is what clients send as codeSet and brokers keep as tags code.
func javaHash(s string) int64 {
	var h int32
	for _, unit := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(unit)
	}
	return int64(h)
}
