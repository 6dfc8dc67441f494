package codec

import (
	"slices"
	"strconv"
	"strings"
)

// maxValues bounds how many values one body may hold, some ten for each broker, so that a body of 16 MiB does not take
// gigabytes as a tree.
const maxValues = 1 << 18

type valueKind byte

const (
	kindNull valueKind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// value is a JSON value of a body: members in their order, doubles included, and numbers as text.
type value struct {
	kind    valueKind
	text    string   // of a string, number or bool
	members []member // of an object or, without names, an array
}

type member struct {
	name  string
	value value
}

func stringValue(s string) value { return value{kind: kindString, text: s} }

func intValue(n int64) value { return value{kind: kindNumber, text: strconv.FormatInt(n, 10)} }

// parseValue reads a whole body as name servers write it: strict JSON, or with member names without quotes.
func parseValue(b []byte) (value, error) {
	p := valueParser{scanner: scanner{b: b}, left: maxValues}
	v, err := p.value(0)
	if err != nil {
		return value{}, err
	}
	return v, p.end()
}

// parseObject reads a body whose outermost value has to be an object; what says what the body is.
func parseObject(b []byte, what string) (value, error) {
	v, err := parseValue(b)
	if err != nil {
		return value{}, err
	}
	if v.kind != kindObject {
		return value{}, frameErr(0, "%s: expected a JSON object", what)
	}
	return v, nil
}

type valueParser struct {
	scanner
	left int // values that may still follow
}

func (p *valueParser) value(depth int) (value, error) {
	c := p.peek()
	if depth > maxDepth {
		return value{}, frameErr(p.at, "JSON nests deeper than %d", maxDepth)
	}
	if p.left--; p.left < 0 {
		return value{}, frameErr(p.at, "JSON holds more than %d values", maxValues)
	}
	switch c {
	case '{':
		return p.list(depth, kindObject, '}')
	case '[':
		return p.list(depth, kindArray, ']')
	case '"':
		raw, escaped, err := p.str()
		return stringValue(text(raw, escaped)), err
	}
	start := p.at
	raw := string(p.token())
	switch {
	case !isScalar([]byte(raw)):
		return value{}, frameErr(start, "JSON: expected a value")
	case raw == "null":
		return value{}, nil
	case raw == "true", raw == "false":
		return value{kind: kindBool, text: raw}, nil
	}
	return value{kind: kindNumber, text: strictNumber(raw)}, nil
}

// strictNumber drops leading zeros, which JSON forbids.
func strictNumber(s string) string {
	digits, minus := strings.CutPrefix(s, "-")
	for len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		digits = digits[1:]
	}
	if minus {
		return "-" + digits
	}
	return digits
}

func (p *valueParser) list(depth int, kind valueKind, end byte) (value, error) {
	v := value{kind: kind}
	p.at++
	for first := true; ; first = false {
		more, err := p.more(first, end)
		if err != nil || !more {
			return v, err
		}
		var m member
		if kind == kindObject {
			name, err := p.key()
			if err != nil {
				return value{}, err
			}
			m.name = string(name)
		}
		if m.value, err = p.value(depth + 1); err != nil {
			return value{}, err
		}
		v.members = append(v.members, m)
	}
}

// get returns the member of that name, the last of doubles as Java readers do; null if there is none.
func (v *value) get(name string) *value {
	for i := range slices.Backward(v.members) {
		if v.members[i].name == name {
			return &v.members[i].value
		}
	}
	return &value{}
}

// only drops all doubles of that name but the last, so that a change to it leaves none as it was, and
// returns it; nil if there is none.
func (v *value) only(name string) *value {
	last := -1
	for i := range v.members {
		if v.members[i].name == name {
			last = i
		}
	}
	if last < 0 {
		return nil
	}
	kept := v.members[:0]
	at := 0
	for i, m := range v.members {
		if m.name == name && i != last {
			continue
		}
		if i == last {
			at = len(kept)
		}
		kept = append(kept, m)
	}
	v.members = kept
	return &v.members[at].value
}

// set gives the member of that name a new value, or adds it.
func (v *value) set(name string, to value) {
	if old := v.only(name); old != nil {
		*old = to
		return
	}
	v.add(name, to)
}

func (v *value) add(name string, to value) {
	v.members = append(v.members, member{name, to})
}

// empty tells whether v is null or the empty string.
func (v *value) empty() bool {
	return v.kind == kindNull || v.kind == kindString && v.text == ""
}

// str is the text of a string, number or bool; "" of anything else.
func (v *value) str() string { return v.text }

// int32 reads a number, or a string that holds one; null is 0.
func (v *value) int32(what string) (int32, error) {
	if v.kind == kindNull {
		return 0, nil
	}
	n, err := strconv.ParseInt(v.text, 10, 32)
	if err != nil || v.kind == kindBool {
		return 0, frameErr(0, "%s: expected a 32-bit number", what)
	}
	return int32(n), nil
}

// each calls f for all members of a value that has to be of that kind, or null, which has none.
func (v *value) each(kind valueKind, what string, f func(m *member) error) error {
	if v.kind != kind && v.kind != kindNull {
		return frameErr(0, "%s: expected %s", what, kindNames[kind])
	}
	for i := range v.members {
		if err := f(&v.members[i]); err != nil {
			return err
		}
	}
	return nil
}

var kindNames = map[valueKind]string{kindArray: "an array", kindObject: "an object"}

// append writes strict JSON without blanks; all member names get quotes.
func (v *value) append(dst []byte) []byte {
	switch v.kind {
	case kindNull:
		return append(dst, "null"...)
	case kindBool, kindNumber:
		return append(dst, v.text...)
	case kindString:
		return appendJSONString(dst, v.text)
	case kindArray:
		return v.appendMembers(dst, '[', ']')
	default:
		return v.appendMembers(dst, '{', '}')
	}
}

func (v *value) appendMembers(dst []byte, open, end byte) []byte {
	dst = append(dst, open)
	for i := range v.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v.kind == kindObject {
			dst = append(appendJSONString(dst, v.members[i].name), ':')
		}
		dst = v.members[i].value.append(dst)
	}
	return append(dst, end)
}
