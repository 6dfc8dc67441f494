package codec

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"net/netip"
)

// StoredMessage is a message as brokers keep it in the commit log and hand it to consumers: bodies of the
// replies to pulls, pops, views and queries are such records, one behind the other (RocketMQ
// MessageDecoder, 4.x and 5.x).
//
//	size     meaning
//	4        size of the record, this word included
//	4        magic: DAA320A7, or DAA320AB with two bytes of topic length (5.0 and later)
//	4        CRC-32 (IEEE) of the body, top bit cleared
//	4        queue id
//	4        flag, the application's own
//	8        queue offset
//	8        physical offset
//	4        system flag: 0x10 born host is IPv6, 0x20 store host is IPv6
//	8        born timestamp, ms
//	4+4      born host: IP, port; 16+4 if IPv6
//	8        store timestamp, ms
//	4+4      store host; 16+4 if IPv6
//	4        reconsume times
//	8        prepared transaction offset
//	4+n      body
//	1+n      topic; 2+n with the second magic
//	2+n      properties
type StoredMessage struct {
	Topic                     string
	QueueID, Flag             int32
	QueueOffset               int64
	PhysicalOffset            int64
	SysFlag                   int32
	BornTimestamp             int64 // ms since 1970, the producer's clock
	BornHost                  netip.AddrPort
	StoreTimestamp            int64 // ms since 1970, the broker's clock
	StoreHost                 netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	Body                      []byte // as sent: compressed if SysFlag says so
	Properties                string
}

const (
	sysFlagBornHost6  int32 = 0x10
	sysFlagStoreHost6 int32 = 0x20

	storedMagic1 uint32 = 0xDAA320A7
	storedMagic2 uint32 = 0xDAA320AB

	// storedFixed counts the bytes of a record with IPv4 hosts, a short topic and nothing in it.
	storedFixed = 4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 8 + 8 + 4 + 8 + 4 + 1 + 2

	crcMask = 0x7FFFFFFF
)

// ErrBodyCRC is what DecodeStored wraps when nothing is wrong with a record but its body.
var ErrBodyCRC = errors.New("codec: the body does not fit its checksum")

// DecodeStored reads the record b starts with and returns its size in bytes; Body aliases b, strings are
// copies. With ErrBodyCRC the message and the size are returned all the same; with any other error the
// size is 0.
func DecodeStored(b []byte) (StoredMessage, int, error) {
	head := reader{b: b}
	size := int(head.int32("record size"))
	if head.err == nil && (size < storedFixed || size > len(b)) {
		head.at = 0
		head.fail("record of %d bytes: expected %d to %d", size, storedFixed, len(b))
	}
	if head.err != nil {
		return StoredMessage{}, 0, head.err
	}
	r := reader{b: b[:size], at: head.at}
	m, crc := r.stored()
	if r.err != nil {
		return StoredMessage{}, 0, r.err
	}
	if bodyCRC(m.Body) != crc&crcMask {
		return m, size, ErrBodyCRC
	}
	return m, size, nil
}

// stored reads what follows the record size.
func (r *reader) stored() (m StoredMessage, crc uint32) {
	magic := uint32(r.int32("magic"))
	if magic != storedMagic1 && magic != storedMagic2 {
		r.at -= 4
		r.fail("magic %08X: expected %08X or %08X", magic, storedMagic1, storedMagic2)
	}
	crc = uint32(r.int32("body CRC"))
	m.QueueID = r.int32("queue id")
	m.Flag = r.int32("flag")
	m.QueueOffset = r.int64("queue offset")
	m.PhysicalOffset = r.int64("physical offset")
	m.SysFlag = r.int32("system flag")
	m.BornTimestamp = r.int64("born timestamp")
	m.BornHost = r.host(m.SysFlag&sysFlagBornHost6 != 0, "born host")
	m.StoreTimestamp = r.int64("store timestamp")
	m.StoreHost = r.host(m.SysFlag&sysFlagStoreHost6 != 0, "store host")
	m.ReconsumeTimes = r.int32("reconsume times")
	m.PreparedTransactionOffset = r.int64("prepared transaction offset")
	m.Body = r.take(int(r.int32("body length")), "body")
	m.Topic = string(r.take(r.topicLength(magic), "topic"))
	m.Properties = string(r.take(int(r.int16("properties length")), "properties"))
	return m, crc
}

func (r *reader) topicLength(magic uint32) int {
	if magic == storedMagic2 {
		return int(r.int16("topic length"))
	}
	if b := r.take(1, "topic length"); b != nil {
		return int(int8(b[0]))
	}
	return 0
}

func bodyCRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & crcMask }

// AppendStored appends the record of m. The two system flags that tell the hosts' form are set from the
// hosts, and the second magic is taken for a topic of more than 127 bytes. A message whose topic or
// properties are longer than 32 767 bytes, or that is longer than a frame may be, has no such form: dst is
// returned as it was.
func AppendStored(dst []byte, m *StoredMessage) []byte {
	size := storedFixed + len(m.Body) + len(m.Topic) + len(m.Properties)
	if len(m.Topic) > math.MaxInt16 || len(m.Properties) > math.MaxInt16 || size > MaxFrame {
		return dst
	}
	magic := storedMagic1
	if len(m.Topic) > math.MaxInt8 {
		magic = storedMagic2
		size++
	}
	flag := m.SysFlag &^ (sysFlagBornHost6 | sysFlagStoreHost6)
	if isHost6(m.BornHost) {
		flag |= sysFlagBornHost6
		size += 12
	}
	if isHost6(m.StoreHost) {
		flag |= sysFlagStoreHost6
		size += 12
	}
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(size))
	dst = be.AppendUint32(dst, magic)
	dst = be.AppendUint32(dst, bodyCRC(m.Body))
	dst = be.AppendUint32(dst, uint32(m.QueueID))
	dst = be.AppendUint32(dst, uint32(m.Flag))
	dst = be.AppendUint64(dst, uint64(m.QueueOffset))
	dst = be.AppendUint64(dst, uint64(m.PhysicalOffset))
	dst = be.AppendUint32(dst, uint32(flag))
	dst = be.AppendUint64(dst, uint64(m.BornTimestamp))
	dst = appendHost(dst, m.BornHost)
	dst = be.AppendUint64(dst, uint64(m.StoreTimestamp))
	dst = appendHost(dst, m.StoreHost)
	dst = be.AppendUint32(dst, uint32(m.ReconsumeTimes))
	dst = be.AppendUint64(dst, uint64(m.PreparedTransactionOffset))
	dst = be.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	if magic == storedMagic2 {
		dst = be.AppendUint16(dst, uint16(len(m.Topic)))
	} else {
		dst = append(dst, byte(len(m.Topic)))
	}
	dst = append(dst, m.Topic...)
	dst = be.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...)
}
