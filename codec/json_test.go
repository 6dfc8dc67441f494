package codec

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestAppendJSONString(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", `""`},
		{"plain", `"plain"`},
		{"a\x01b\x02", `"a\u0001b\u0002"`},
		{"\x00\x1f\t\n\r", `"\u0000\u001f\u0009\u000a\u000d"`},
		{`q"b\s/`, `"q\"b\\s/"`},
		{"\x7fä\u2028值\U0001F600", "\"\x7fä\u2028值\U0001F600\""},
		{"\xff", `"\ufffd"`},
		{"a\xc3", `"a\ufffd"`},
		{"\xed\xa0\x80b", `"\ufffd\ufffd\ufffdb"`}, // half of a surrogate pair in UTF-8
		{"\ufffd", "\"\ufffd\""},
	} {
		if got := string(appendJSONString(nil, tc.in)); got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.in, got, tc.want)
		}
	}
}

func TestEscapes(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`plain`, "plain"},
		{`\"\\\/\b\f\n\r\t`, "\"\\/\b\f\n\r\t"},
		{`\u0001\u0041\u00e4\u00E4\u503c`, "\x01Aää值"},
		{`\ud83d\ude00`, "\U0001F600"},
		{`\ud83d`, "\ufffd"},
		{`\ude00\ud83d`, "\ufffd\ufffd"},
		{`\ud83dx`, "\ufffdx"},
		{`\ud83d\u0041`, "\ufffdA"},
		{`\ud83d\ud83d\ude00`, "\ufffd\U0001F600"},
		{`\u12`, "\ufffd12"},
		{`\u12g4`, "\ufffd12g4"},
		{`\ud83d\ude0`, "\ufffd\ufffdde0"},
		{`\q\'`, "q'"},
	} {
		s := scanner{b: []byte(`"` + tc.in + `"`)}
		raw, escaped, err := s.str()
		if got := text(raw, escaped); got != tc.want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", tc.in, got, err, tc.want)
		}
	}
}

func TestKnownNamesFitTheNameBuffer(t *testing.T) {
	for _, name := range []string{"code", "language", "version", "opaque", "flag", "remark", "extFields"} {
		if n := len(name) * len(`\u0000`); n > len(scanner{}.name) {
			t.Errorf("%s with all letters escaped takes %d bytes", name, n)
		}
	}
}

// valid replaces each byte that is no UTF-8 as encoding/json does.
func valid(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

// checkAgainstStandardLibrary compares what Decode makes of a header that encoding/json takes.
func checkAgainstStandardLibrary(t rapid.TB, header []byte) {
	var want map[string]json.RawMessage
	if !json.Valid(header) || json.Unmarshal(header, &want) != nil || want == nil || len(header) > 1<<16 {
		return
	}
	c, err := Decode(frameOf(JSON, string(header), ""))
	if err != nil {
		if !expectedRefusal(want, err) {
			t.Fatalf("%q is refused: %v", header, err)
		}
		return
	}
	for name, got := range map[string]int32{"code": c.Code, "flag": c.Flag, "opaque": c.Opaque, "version": c.Version} {
		var n int32
		if raw := want[name]; raw != nil && raw[0] != '"' && json.Unmarshal(raw, &n) == nil && n != got {
			t.Fatalf("%q: %s is %d, want %d", header, name, got, n)
		}
	}
	var remark string
	if raw := want["remark"]; raw != nil && json.Unmarshal(raw, &remark) == nil && valid(c.Remark) != remark {
		t.Fatalf("%q: remark %q, want %q", header, c.Remark, remark)
	}
	if bytes.Count(header, []byte("xtFields")) > 1 {
		return // of doubles encoding/json knows the last alone
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(want["extFields"], &fields) != nil {
		return
	}
	checkFields(t, header, c.Fields, fields)
}

func checkFields(t rapid.TB, header []byte, got Fields, want map[string]json.RawMessage) {
	last := map[string]string{}
	for _, f := range got {
		last[valid(f.Name)] = valid(f.Value)
	}
	for name, raw := range want {
		if string(raw) == "null" {
			continue
		}
		value := string(raw)
		if raw[0] == '"' && json.Unmarshal(raw, &value) != nil {
			t.Fatalf("%q: %s", header, raw)
		}
		if v, ok := last[name]; !ok || v != valid(value) {
			t.Fatalf("%q: field %q is %q, %v; want %q", header, name, v, ok, value)
		}
	}
}

// expectedRefusal tells whether Decode may refuse a header that is JSON: a number that is none, fields
// that are no object, or too deep a nest.
func expectedRefusal(header map[string]json.RawMessage, err error) bool {
	if strings.Contains(err.Error(), "nests deeper") {
		return true
	}
	for _, known := range []string{"code", "flag", "opaque", "version"} {
		raw := strings.Trim(string(header[known]), `"`)
		if n, err := strconv.ParseInt(raw, 10, 64); err != nil || n > math.MaxInt32 || n < math.MinInt32 {
			if raw != "" && raw != "null" || string(header[known]) == `""` {
				return true
			}
		}
	}
	return strings.Contains(err.Error(), "extFields is no object") || strings.Contains(err.Error(), "32-bit integer")
}

// drawJSON draws the text of a value, with blanks and escapes where they may be.
func drawJSON(t *rapid.T, depth int) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t "}).Draw(t, "space") }
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth == 0 {
		kind = min(kind, 4)
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 1:
		return strconv.Itoa(rapid.Int().Draw(t, "int"))
	case 2:
		return strconv.FormatFloat(rapid.Float64Range(-1e300, 1e300).Draw(t, "float"), 'g', -1, 64)
	case 3, 4:
		return drawJSONString(t)
	}
	var parts []string
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		part := space() + drawJSON(t, depth-1) + space()
		if kind == 5 {
			part = space() + drawJSONString(t) + space() + ":" + part
		}
		parts = append(parts, part)
	}
	if kind == 5 {
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func drawJSONString(t *rapid.T) string {
	part := rapid.OneOf(
		rapid.StringMatching(`[a-z {}:,\[\]]{0,4}`),
		rapid.SampledFrom([]string{`\"`, `\\`, `\/`, `\u0001`, `\ud83d\ude00`, `\ud83d`, `ä`, "code", "\xff", `\n`}),
	)
	return `"` + strings.Join(rapid.SliceOfN(part, 0, 4).Draw(t, "string"), "") + `"`
}

func TestHeadersAreReadAsTheStandardLibraryReadsThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.Permutation([]string{"code", "flag", "opaque", "version", "language", "remark", "extFields", "x"}).Draw(t, "order")
		var members []string
		for _, name := range names[:rapid.IntRange(0, len(names)).Draw(t, "members")] {
			value := strconv.Itoa(int(rapid.Int32().Draw(t, name)))
			switch name {
			case "language", "remark":
				value = drawJSONString(t)
			case "x":
				value = drawJSON(t, 3)
			case "extFields":
				value = "{" + drawJSONString(t) + ":" + drawJSON(t, 2) + "," + drawJSONString(t) + ":" + drawJSONString(t) + "}"
			}
			members = append(members, `"`+name+`" : `+value)
		}
		header := "{" + strings.Join(members, ",") + "}\n"
		if !json.Valid([]byte(header)) {
			t.Fatalf("drew %q, which is no JSON", header)
		}
		checkAgainstStandardLibrary(t, []byte(header))
	})
}

func TestWrittenHeadersAreStrictJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t, JSON)
		c.Fields = append(c.Fields, Field{string(rapid.SliceOf(rapid.Byte()).Draw(t, "name bytes")), string(rapid.SliceOf(rapid.Byte()).Draw(t, "value bytes"))})
		frame, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		end, _ := HeaderEnd(frame)
		header := frame[8:end]
		var got struct {
			Code, Flag, Opaque, Version int32
			Language, Remark            string
			ExtFields                   map[string]string
		}
		if err := json.Unmarshal(header, &got); err != nil || !utf8.Valid(header) {
			t.Fatalf("%q: %v", header, err)
		}
		if got.Code != c.Code || got.Opaque != c.Opaque || got.Remark != c.Remark || got.Language != c.Language.String() || got.ExtFields == nil {
			t.Fatalf("wrote %+v, encoding/json reads %+v", c, got)
		}
		last := c.Fields[len(c.Fields)-1]
		if v := got.ExtFields[valid(last.Name)]; v != valid(last.Value) {
			t.Fatalf("wrote %q, encoding/json reads %q", last.Value, v)
		}
	})
}

func FuzzHeaderAgainstStandardLibrary(f *testing.F) {
	f.Add([]byte(javaJSONSend))
	f.Add([]byte(plainJSONSend))
	f.Add([]byte(`{"code":1e2,"extFields":{"a":[{"b":"\ud800"}],"c":-0.5E+7},"remark":"\u00"}`))
	f.Add([]byte(`{"\u0063ode":"1","opaque":01}`))
	f.Fuzz(func(t *testing.T, header []byte) { checkAgainstStandardLibrary(t, header) })
}
