package codec

import (
	"encoding/binary"
	"math"
)

// binaryFixed is the number of bytes of a Binary header without remark and fields.
const binaryFixed = 21

// binaryHead fills h from a frame cut at its header's end.
func binaryHead(b []byte, h *Head) error {
	if len(b) < headStart+binaryFixed {
		return frameErr(len(b), "a ROCKETMQ header has at least %d bytes, this one %d", binaryFixed, len(b)-headStart)
	}
	p := b[headStart:]
	h.Code = int32(int16(binary.BigEndian.Uint16(p)))
	h.Language = languageByCode(int64(p[2]))
	h.Version = int32(int16(binary.BigEndian.Uint16(p[3:])))
	h.Opaque = int32(binary.BigEndian.Uint32(p[5:]))
	h.Flag = int32(binary.BigEndian.Uint32(p[9:]))
	return nil
}

func decodeBinary(b []byte, c *Command) error {
	var h Head
	if err := binaryHead(b, &h); err != nil {
		return err
	}
	c.Code, c.Language, c.Version, c.Opaque, c.Flag = h.Code, h.Language, h.Version, h.Opaque, h.Flag
	remark, at, err := block32(b, headStart+13, "remark")
	if err != nil {
		return err
	}
	c.Remark = string(remark)
	fields, end, err := block32(b, at, "fields")
	if err != nil {
		return err
	}
	if end != len(b) {
		return frameErr(end, "%d bytes behind the fields of a ROCKETMQ header", len(b)-end)
	}
	c.Fields, err = binaryFields(b[:end], end-len(fields))
	return err
}

// binaryFields reads name and value pairs from at to the end of b.
func binaryFields(b []byte, at int) (Fields, error) {
	var out Fields
	for at < len(b) {
		if len(out) == maxFields {
			return nil, frameErr(at, "more than %d fields", maxFields)
		}
		if len(b)-at < 2 {
			return nil, frameErr(at, "field name length is cut off")
		}
		n := int(int16(binary.BigEndian.Uint16(b[at:])))
		if n < 0 || n > len(b)-at-2 {
			return nil, frameErr(at, "field name length %d exceeds the header", n)
		}
		name := string(b[at+2 : at+2+n])
		value, next, err := block32(b, at+2+n, "field value")
		if err != nil {
			return nil, err
		}
		out = append(out, Field{name, string(value)})
		at = next
	}
	return out, nil
}

// block32 reads an int32 length and that many bytes at offset at.
func block32(b []byte, at int, what string) (block []byte, next int, err error) {
	if len(b)-at < 4 {
		return nil, 0, frameErr(at, "%s length is cut off", what)
	}
	n := int(int32(binary.BigEndian.Uint32(b[at:])))
	if n < 0 || n > len(b)-at-4 {
		return nil, 0, frameErr(at, "%s length %d exceeds the header", what, n)
	}
	return b[at+4 : at+4+n], at + 4 + n, nil
}

func appendBinaryHeader(dst []byte, c *Command) ([]byte, error) {
	if c.Code > math.MaxInt16 || c.Code < math.MinInt16 {
		return dst, frameErr(headStart, "code %d does not fit a ROCKETMQ header, use JSON", c.Code)
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(c.Code))
	lang := c.Language
	if lang == LangUnknown {
		lang = LangOther
	}
	dst = append(dst, byte(lang))
	dst = binary.BigEndian.AppendUint16(dst, uint16(c.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.Opaque))
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.Flag))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.Remark)))
	dst = append(dst, c.Remark...)
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, f := range c.Fields {
		if len(f.Name) > math.MaxInt16 {
			return dst, frameErr(len(dst), "field name of %d bytes does not fit a ROCKETMQ header", len(f.Name))
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(f.Name)))
		dst = append(dst, f.Name...)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.Value)))
		dst = append(dst, f.Value...)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst, nil
}
