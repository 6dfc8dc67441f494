package codec

import "encoding/binary"

// Command is a whole frame, decoded.
type Command struct {
	Serialize Serialize
	Code      int32
	Language  Language
	Version   int32
	Opaque    int32
	Flag      int32
	Remark    string
	Fields    Fields
	Body      []byte
}

// IsResponse reports whether the command answers a request.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneway reports whether the sender wants no answer.
func (c *Command) IsOneway() bool { return c.Flag&FlagOneway != 0 }

// Head returns what ParseHead would tell, but for the sizes.
func (c *Command) Head() Head {
	return Head{Serialize: c.Serialize, Code: c.Code, Language: c.Language, Version: c.Version, Opaque: c.Opaque, Flag: c.Flag}
}

// Decode reads one whole frame; bytes behind it are an error. The body aliases frame, strings are copies.
// Fields whose value is null are left out.
func Decode(frame []byte) (*Command, error) {
	end, err := HeaderEnd(frame)
	if err != nil {
		return nil, err
	}
	if end == 0 {
		return nil, frameErr(len(frame), "frame ends inside its first 8 bytes")
	}
	size, _ := FrameSize(frame)
	if size != len(frame) {
		return nil, frameErr(0, "frame length says %d bytes, there are %d", size, len(frame))
	}
	c := &Command{Serialize: Serialize(frame[4]), Language: LangUnknown}
	if c.Serialize == Binary {
		err = decodeBinary(frame[:end], c)
	} else {
		err = decodeJSON(frame[:end], c)
	}
	if err != nil {
		return nil, err
	}
	if end < size {
		c.Body = frame[end:size:size]
	}
	return c, nil
}

// Append writes the frame behind dst. It always writes extFields, which Java and C++ clients insist on
// in replies. A code that a Binary header cannot hold and a frame above MaxFrame are errors; dst is
// returned as it was then.
func (c *Command) Append(dst []byte) ([]byte, error) {
	if c.Serialize > Binary {
		return dst, frameErr(lengthWord, "serialize type %d is neither 0 (JSON) nor 1 (ROCKETMQ)", c.Serialize)
	}
	start := len(dst)
	out := append(dst, 0, 0, 0, 0, byte(c.Serialize), 0, 0, 0)
	var err error
	if c.Serialize == Binary {
		out, err = appendBinaryHeader(out, c)
	} else {
		out = appendJSONHeader(out, c)
	}
	if err != nil {
		return dst, err
	}
	headerLen := len(out) - start - headStart
	size := len(out) - start + len(c.Body)
	if size > MaxFrame || headerLen > 0xFFFFFF {
		return dst, frameErr(0, "a frame of %d bytes is above the limit of %d", size, MaxFrame)
	}
	binary.BigEndian.PutUint32(out[start:], uint32(size-lengthWord))
	binary.BigEndian.PutUint32(out[start+4:], uint32(headerLen)|uint32(c.Serialize)<<24)
	return append(out, c.Body...), nil
}

// NewReply returns an answer to the request with head h: same serialize type, opaque and version, as
// some clients read nothing else. Fields are empty, never absent.
func NewReply(h Head, code int32, remark string) *Command {
	s := h.Serialize
	if s == Binary && (code > 32767 || code < -32768) {
		s = JSON
	}
	return &Command{
		Serialize: s, Code: code, Language: LangJava, Version: h.Version,
		Opaque: h.Opaque, Flag: FlagResponse, Remark: remark,
	}
}
