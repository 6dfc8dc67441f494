package codec

import (
	"encoding/binary"
	"math"
)

// BatchMessage is one message inside the body of a batch (SEND_BATCH_MESSAGE, 320, or a send whose header
// says batch). The body is a sequence of them (RocketMQ MessageDecoder, 4.x and 5.x):
//
//	size  meaning
//	4     size, this word included
//	4     magic, 0: not read
//	4     CRC of the body, 0: not read
//	4     flag, the application's own
//	4+n   body
//	2+n   properties
type BatchMessage struct {
	Flag       int32
	Body       []byte
	Properties string
}

// batchFixed counts the bytes of a message with nothing in it.
const batchFixed = 4 + 4 + 4 + 4 + 4 + 2

// DecodeBatch reads the body of a batch; the messages' bodies alias b. It refuses sizes that contradict the
// lengths inside, and bytes behind the last message.
func DecodeBatch(b []byte) ([]BatchMessage, error) {
	r := reader{b: b}
	var all []BatchMessage
	for r.err == nil && r.at < len(b) {
		all = append(all, r.batchMessage())
	}
	if r.err != nil {
		return nil, r.err
	}
	return all, nil
}

func (r *reader) batchMessage() BatchMessage {
	start := r.at
	size := int(r.int32("size"))
	r.int32("magic")
	r.int32("body CRC")
	m := BatchMessage{Flag: r.int32("flag")}
	m.Body = r.take(int(r.int32("body length")), "body")
	m.Properties = string(r.take(int(r.int16("properties length")), "properties"))
	if r.err == nil && r.at-start != size {
		got := r.at - start
		r.at = start
		r.fail("message says it has %d bytes and has %d", size, got)
	}
	return m
}

// AppendBatchMessage appends m to the body of a batch. A message whose properties are longer than 32 767
// bytes, or that is longer than a frame may be, has no such form: dst is returned as it was.
func AppendBatchMessage(dst []byte, m BatchMessage) []byte {
	size := batchFixed + len(m.Body) + len(m.Properties)
	if len(m.Properties) > math.MaxInt16 || size > MaxFrame {
		return dst
	}
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(size))
	dst = be.AppendUint64(dst, 0) // magic and body CRC
	dst = be.AppendUint32(dst, uint32(m.Flag))
	dst = be.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	dst = be.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...)
}
