package codec

import (
	"math"
	"strconv"
)

// jsonHead fills h from a frame cut at its header's end.
func jsonHead(b []byte, h *Head) error {
	s := scanner{b: b, at: headStart}
	if err := s.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return err
		}
		if !more {
			return s.end()
		}
		name, err := s.key()
		if err != nil {
			return err
		}
		if known, err := s.headMember(name, h); err != nil {
			return err
		} else if known {
			continue
		}
		if err := s.skip(0); err != nil {
			return err
		}
	}
}

// headMember reads the value of a member that Head has a place for.
func (s *scanner) headMember(name []byte, h *Head) (known bool, err error) {
	switch string(name) {
	case "code":
		h.Code, err = s.int32()
	case "version":
		h.Version, err = s.int32()
	case "opaque":
		h.Opaque, err = s.int32()
	case "flag":
		h.Flag, err = s.int32()
	case "language":
		h.Language, err = s.language()
	default:
		return false, nil
	}
	return true, err
}

// end checks that nothing but blanks follows.
func (s *scanner) end() error {
	if s.peek(); s.at < len(s.b) {
		return frameErr(s.at, "%d bytes behind the JSON object of a header", len(s.b)-s.at)
	}
	return nil
}

// int32 reads a number, with or without quotes; null is 0.
func (s *scanner) int32() (int32, error) {
	s.space()
	start := s.at
	raw, _, ok, err := s.scalar(0)
	if err != nil || !ok {
		return 0, err
	}
	neg := len(raw) > 0 && raw[0] == '-'
	digits := raw
	if neg {
		digits = raw[1:]
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' || n > math.MaxInt32 {
			return 0, frameErr(start, "%q is not a 32-bit integer", clip(raw))
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	if len(digits) == 0 || n > math.MaxInt32 || n < math.MinInt32 {
		return 0, frameErr(start, "%q is not a 32-bit integer", clip(raw))
	}
	return int32(n), nil
}

// language reads an enum name, or its ordinal, as fastjson does.
func (s *scanner) language() (Language, error) {
	if s.peek() == '"' {
		raw, _, err := s.str()
		return languageByName(raw), err
	}
	raw, _, ok, err := s.scalar(0)
	if err != nil || !ok {
		return LangUnknown, err
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	if err != nil {
		return LangUnknown, nil
	}
	return languageByCode(n), nil
}

// clip shortens foreign bytes for an error text.
func clip(b []byte) []byte { return b[:min(len(b), 32)] }

func decodeJSON(b []byte, c *Command) error {
	s := scanner{b: b, at: headStart}
	if err := s.expect('{'); err != nil {
		return err
	}
	h := Head{Language: LangUnknown}
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return err
		}
		if !more {
			c.Code, c.Language, c.Version, c.Opaque, c.Flag = h.Code, h.Language, h.Version, h.Opaque, h.Flag
			return s.end()
		}
		name, err := s.key()
		if err != nil {
			return err
		}
		if err := s.member(name, &h, c); err != nil {
			return err
		}
	}
}

func (s *scanner) member(name []byte, h *Head, c *Command) error {
	if known, err := s.headMember(name, h); known || err != nil {
		return err
	}
	switch string(name) {
	case "remark":
		raw, escaped, ok, err := s.scalar(0)
		if ok {
			c.Remark = text(raw, escaped)
		}
		return err
	case "extFields":
		return s.fields(c)
	}
	return s.skip(0)
}

func (s *scanner) fields(c *Command) error {
	if s.peek() != '{' {
		start := s.at
		if _, _, ok, err := s.scalar(0); err != nil || !ok {
			return err
		}
		return frameErr(start, "extFields is no object")
	}
	s.at++
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil || !more {
			return err
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		name := string(key)
		raw, escaped, ok, err := s.scalar(1)
		if err != nil {
			return err
		}
		if len(c.Fields) == maxFields {
			return frameErr(s.at, "more than %d fields", maxFields)
		}
		if ok {
			c.Fields = append(c.Fields, Field{name, text(raw, escaped)})
		}
	}
}

func appendJSONHeader(dst []byte, c *Command) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(c.Code), 10)
	dst = append(dst, `,"extFields":{`...)
	for i, f := range c.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, f.Name)
		dst = append(dst, ':')
		dst = appendJSONString(dst, f.Value)
	}
	dst = append(dst, `},"flag":`...)
	dst = strconv.AppendInt(dst, int64(c.Flag), 10)
	dst = append(dst, `,"language":"`...)
	dst = append(dst, c.Language.String()...)
	dst = append(dst, `","opaque":`...)
	dst = strconv.AppendInt(dst, int64(c.Opaque), 10)
	if c.Remark != "" {
		dst = append(dst, `,"remark":`...)
		dst = appendJSONString(dst, c.Remark)
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = strconv.AppendInt(dst, int64(c.Version), 10)
	return append(dst, '}')
}
