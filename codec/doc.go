// Package codec is the wire format of RocketMQ's remoting protocol: frames, both header serializations,
// send headers, property strings, stored messages, batches, message ids, routes and cluster tables.
//
// A frame, all numbers big endian:
//
//	offset  size     meaning
//	0       4        L, the number of bytes that follow
//	4       1        serialize type of the header: 0 JSON, 1 ROCKETMQ (here: Binary)
//	5       3        H, header length
//	8       H        header
//	8+H     L-4-H    body, may be empty
//
// A JSON header is one object:
//
//	{"code":310,"extFields":{"a":"group","b":"topic"},"flag":0,"language":"JAVA","opaque":7,"version":401}
//
// A Binary header:
//
//	offset  size  meaning
//	0       2     code, signed: codes above 32 767 exist in JSON only
//	2       1     language
//	3       2     version
//	5       4     opaque
//	9       4     flag: bit 0 response, bit 1 one-way
//	13      4     r, length of the remark
//	17      r     remark, UTF-8
//	17+r    4     e, length of the fields
//	21+r    e     fields: int16 key length, key, int32 value length, value; repeated
//
// Every length is checked before memory is taken. A frame that is not well formed gives a [*FrameError]
// that names the offset. Decoders are tolerant where released clients are: values of fields that are
// numbers or booleans, keys in any order, integer keys without quotes, nulls, unknown members. What is
// written is strict, and all values are strings, since the Go client drops a frame with any other.
//
// All functions may be called from any goroutine.
package codec
