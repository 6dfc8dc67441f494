package codec

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds how deep objects and arrays may nest.
const maxDepth = 64

// scanner walks over JSON as released clients write it: strict JSON, and object keys without quotes.
type scanner struct {
	b  []byte
	at int

	name [64]byte // the last key, if it had escapes: room for all known names with every letter escaped
}

func (s *scanner) space() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	s.space()
	if s.at < len(s.b) {
		return s.b[s.at]
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c || s.at >= len(s.b) {
		return frameErr(s.at, "JSON: expected %q", c)
	}
	s.at++
	return nil
}

// more steps to the next member of an object or array that ends with end; first is true before the first.
func (s *scanner) more(first bool, end byte) (bool, error) {
	c := s.peek()
	switch {
	case s.at >= len(s.b):
		return false, frameErr(s.at, "JSON ends before %q", end)
	case c == end:
		s.at++
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, frameErr(s.at, "JSON: expected ',' or %q", end)
	}
	s.at++
	if s.peek() == end {
		return false, frameErr(s.at, "JSON: expected a value before %q", end)
	}
	return true, nil
}

// key reads a member's name and the colon behind it. The result is good until the next call.
func (s *scanner) key() ([]byte, error) {
	name, escaped, err := s.rawKey()
	if err == nil && escaped {
		name = appendUnescaped(s.name[:0], name)
	}
	return name, err
}

// rawKey is key without resolving escapes.
func (s *scanner) rawKey() (name []byte, escaped bool, err error) {
	if s.peek() == '"' {
		name, escaped, err = s.str()
	} else if name = s.token(); len(name) == 0 {
		err = frameErr(s.at, "JSON: expected a member's name")
	}
	if err != nil {
		return nil, false, err
	}
	return name, escaped, s.expect(':')
}

// token reads a bare word: a number, true, false, null or a key without quotes.
func (s *scanner) token() []byte {
	start := s.at
	for s.at < len(s.b) {
		c := s.b[s.at]
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '+', c == '.', c == '_':
			s.at++
			continue
		}
		break
	}
	return s.b[start:s.at]
}

// str reads a string and returns what is between the quotes, as it stands. Each byte is looked at twice at
// most, however many escapes there are.
func (s *scanner) str() (raw []byte, escaped bool, err error) {
	start := s.at + 1
	quote := start - 1
	for i := start; i <= len(s.b); {
		if quote < i {
			n := bytes.IndexByte(s.b[i:], '"')
			if n < 0 {
				break
			}
			quote = i + n
		}
		n := bytes.IndexByte(s.b[i:quote], '\\')
		if n < 0 {
			s.at = quote + 1
			return s.b[start:quote], escaped, nil
		}
		escaped = true
		i += n + 2
	}
	return nil, false, frameErr(s.at, "JSON: string without end")
}

// scalar reads a string, number or word as text; null is false. Objects and arrays give their JSON text.
func (s *scanner) scalar(depth int) (raw []byte, escaped, ok bool, err error) {
	switch s.peek() {
	case '"':
		raw, escaped, err = s.str()
		return raw, escaped, err == nil, err
	case '{', '[':
		start := s.at
		err = s.skip(depth)
		return s.b[start:s.at], false, err == nil, err
	}
	start := s.at
	raw = s.token()
	if !isScalar(raw) {
		return nil, false, false, frameErr(start, "JSON: expected a value")
	}
	return raw, false, string(raw) != "null", nil
}

func isScalar(t []byte) bool {
	if len(t) == 0 {
		return false
	}
	if t[0] == '-' || t[0] >= '0' && t[0] <= '9' {
		return isNumber(t)
	}
	return string(t) == "true" || string(t) == "false" || string(t) == "null"
}

// isNumber accepts JSON numbers, and leading zeros, which some encoders write.
func isNumber(t []byte) bool {
	i := 0
	if t[0] == '-' {
		i++
	}
	digits := func() bool {
		start := i
		for i < len(t) && t[i] >= '0' && t[i] <= '9' {
			i++
		}
		return i > start
	}
	if !digits() {
		return false
	}
	if i < len(t) && t[i] == '.' {
		if i++; !digits() {
			return false
		}
	}
	if i < len(t) && (t[i] == 'e' || t[i] == 'E') {
		i++
		if i < len(t) && (t[i] == '+' || t[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(t)
}

// skip steps over any value.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return frameErr(s.at, "JSON nests deeper than %d", maxDepth)
	}
	switch s.peek() {
	case '{':
		return s.skipMembers(depth, '}')
	case '[':
		return s.skipMembers(depth, ']')
	}
	_, _, _, err := s.scalar(depth)
	return err
}

func (s *scanner) skipMembers(depth int, end byte) error {
	s.at++
	for first := true; ; first = false {
		more, err := s.more(first, end)
		if err != nil || !more {
			return err
		}
		if end == '}' {
			if err := s.skipKey(depth); err != nil {
				return err
			}
		}
		if err := s.skip(depth + 1); err != nil {
			return err
		}
	}
}

// skipKey steps over a member's name, which in bodies that describe offsets may be an object.
func (s *scanner) skipKey(depth int) error {
	if s.peek() != '{' {
		_, _, err := s.rawKey()
		return err
	}
	if err := s.skip(depth + 1); err != nil {
		return err
	}
	return s.expect(':')
}

// text renders what str or scalar returned.
func text(raw []byte, escaped bool) string {
	if escaped {
		return string(appendUnescaped(make([]byte, 0, len(raw)), raw))
	}
	return string(raw)
}

// appendUnescaped resolves the escapes of a string. Of an escape that JSON does not know the backslash is
// dropped; \u without four hex digits and half of a surrogate pair become U+FFFD.
func appendUnescaped(out, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' || i+1 == len(raw) {
			out = append(out, c)
			i++
			continue
		}
		i += 2
		switch raw[i-1] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, n := codepoint(raw[i-2:])
			out = utf8.AppendRune(out, r)
			i += n - 2
		default:
			out = append(out, raw[i-1])
		}
	}
	return out
}

// codepoint reads \uXXXX, or a surrogate pair of them, and returns the bytes used.
func codepoint(b []byte) (rune, int) {
	hi, ok := hex4(b[2:])
	if !ok {
		return utf8.RuneError, 2
	}
	if utf16.IsSurrogate(hi) && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if lo, ok := hex4(b[8:]); ok {
			if r := utf16.DecodeRune(hi, lo); r != utf8.RuneError {
				return r, 12
			}
		}
	}
	return hi, 6
}

// hex4 reads the four hex digits that b begins with.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

const hexDigits = "0123456789abcdef"

// appendJSONString writes s in quotes as strict JSON; bytes that are no UTF-8 become U+FFFD.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, `\ufffd`...)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
		default:
			dst = append(dst, '\\', c)
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
