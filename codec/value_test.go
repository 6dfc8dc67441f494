package codec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func rewritten(t *testing.T, text string) string {
	t.Helper()
	v, err := parseValue([]byte(text))
	if err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return string(v.append(nil))
}

func TestValuesAreWrittenStrictly(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`null`, `null`},
		{` { "a" : [ 1 , true , false , null ] } `, `{"a":[1,true,false,null]}`},
		{"{}\r\n", `{}`},
		{`[]`, `[]`},
		{`{0:"a",-1:"b",10:"c"}`, `{"0":"a","-1":"b","10":"c"}`},
		{`{name:1}`, `{"name":1}`},
		{`{"b":1,"a":2,"b":3}`, `{"b":1,"a":2,"b":3}`},
		{`[12345678901234567890123,1.50,-0,1E+10,0.1e-7]`, `[12345678901234567890123,1.50,-0,1E+10,0.1e-7]`},
		{`[007,-00,00.5,0]`, `[7,-0,0.5,0]`},
		{`"\u00e4\/\"\\\n\u0001\ud83d\ude00"`, `"ä/\"\\` + `\u000a\u0001` + `😀"`},
		{`"\ud800"`, `"` + "\uFFFD" + `"`},
		{"\"\xff\"", `"\ufffd"`},
	} {
		if got := rewritten(t, tc.text); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.text, got, tc.want)
		}
	}
}

func TestParseValueRefuses(t *testing.T) {
	for _, tc := range []struct{ text, reason string }{
		{``, "expected a value"},
		{` `, "expected a value"},
		{`{`, "ends before"},
		{`[1`, "ends before"},
		{`[1,]`, "expected a value before"},
		{`[1 2]`, "expected ','"},
		{`{"a"}`, "expected ':'"},
		{`{"a":}`, "expected a value"},
		{`{:1}`, "member's name"},
		{`{"a":1,}`, "expected a value before"},
		{`"abc`, "string without end"},
		{`"abc\`, "string without end"},
		{`nul`, "expected a value"},
		{`tru`, "expected a value"},
		{`1.`, "expected a value"},
		{`-`, "expected a value"},
		{`'a'`, "expected a value"},
		{`{}}`, ""},
		{`1 2`, ""},
		{strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2), "nests deeper"},
		{strings.Repeat(`{"a":`, 1<<20), "nests deeper"},
		{manyValues(maxValues + 1), "more than"},
	} {
		_, err := parseValue([]byte(tc.text))
		if err == nil {
			t.Errorf("%.40s: no error", tc.text)
			continue
		}
		wantFrameError(t, err, tc.reason)
	}
}

// manyValues is an array that makes n values, itself included.
func manyValues(n int) string { return "[" + strings.Repeat("0,", n-2) + "0]" }

func TestValuesAsManyAsAllowed(t *testing.T) {
	text := manyValues(maxValues)
	if got := rewritten(t, text); got != text {
		t.Errorf("%d bytes were written as %d", len(text), len(got))
	}
}

func TestValuesNestAsDeepAsAllowed(t *testing.T) {
	text := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	if got := rewritten(t, text); got != text {
		t.Errorf("got %s", got)
	}
}

func TestDoubleMembers(t *testing.T) {
	v, err := parseValue([]byte(`{"a":1,"b":2,"a":3,"a":4,"c":5}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := v.get("a").str(); got != "4" {
		t.Errorf("get gives %s, want the last, 4", got)
	}
	if got := v.only("a").str(); got != "4" {
		t.Errorf("only gives %s, want 4", got)
	}
	v.set("c", intValue(6))
	v.set("d", stringValue("x"))
	if got, want := string(v.append(nil)), `{"b":2,"a":4,"c":6,"d":"x"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if v.only("none") != nil || v.get("none").kind != kindNull {
		t.Error("a member that is not there should be nil for only, null for get")
	}
}

func TestValueInt32(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int32
		ok   bool
	}{
		{`null`, 0, true},
		{`7`, 7, true},
		{`"7"`, 7, true},
		{`-2147483648`, -2147483648, true},
		{`2147483648`, 0, false},
		{`1.5`, 0, false},
		{`true`, 0, false},
		{`""`, 0, false},
		{`[7]`, 0, false},
	} {
		v, err := parseValue([]byte(tc.text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.int32("n")
		if got != tc.want || (err == nil) != tc.ok {
			t.Errorf("%s: got %d, %v", tc.text, got, err)
		}
	}
}

func drawValue(depth int) *rapid.Generator[value] {
	return rapid.Custom(func(t *rapid.T) value {
		kinds := []valueKind{kindNull, kindBool, kindNumber, kindString}
		if depth > 0 {
			kinds = append(kinds, kindArray, kindObject)
		}
		switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
		case kindBool:
			return value{kind: kind, text: rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool")}
		case kindNumber:
			return intValue(rapid.Int64().Draw(t, "number"))
		case kindString:
			return stringValue(rapid.String().Draw(t, "string"))
		case kindArray, kindObject:
			v := value{kind: kind}
			for range rapid.IntRange(0, 4).Draw(t, "length") {
				name := ""
				if kind == kindObject {
					name = rapid.String().Draw(t, "name")
				}
				v.add(name, drawValue(depth-1).Draw(t, "value"))
			}
			return v
		}
		return value{}
	})
}

func sameValue(a, b value) string {
	return cmp.Diff(a, b, cmp.AllowUnexported(value{}, member{}), cmpopts.EquateEmpty())
}

func TestValuesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawValue(3).Draw(t, "value")
		text := want.append(nil)
		if !json.Valid(text) {
			t.Fatalf("not JSON: %s", text)
		}
		got, err := parseValue(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := sameValue(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzParseValue(f *testing.F) {
	for _, s := range []string{
		`{"brokerAddrs":{0:"10.0.0.1:10911",1:null},"perm":6}`, goldenRoute, goldenCluster,
		`[007,-1.5e10,true,"\ud83d\ude00"]`, "\"\xff\"", `{`, ``, `{{}:1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parseValue(b)
		if err != nil {
			if json.Valid(b) && len(b) < 100 && !strings.Contains(err.Error(), "nests") {
				t.Fatalf("%q is JSON: %v", b, err)
			}
			return
		}
		text := v.append(nil)
		if !json.Valid(text) {
			t.Fatalf("%q is written as %q, which is not JSON", b, text)
		}
		again, err := parseValue(text)
		if err != nil {
			t.Fatal(err)
		}
		third, err := parseValue(again.append(nil))
		if diff := sameValue(again, third); err != nil || diff != "" {
			t.Fatalf("%s: %v %s", text, err, diff)
		}
	})
}
