package codec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseProperties(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Properties
	}{
		{"none", "", nil},
		{"with the last separator", "a\x011\x02b\x012\x02", Properties{{"a", "1"}, {"b", "2"}}},
		{"without the last separator", "a\x011\x02b\x012", Properties{{"a", "1"}, {"b", "2"}}},
		{"values with both kinds of blanks and equals", "k k\x01v = v\x02", Properties{{"k k", "v = v"}}},
		{"more than one 0x01", "a\x011\x012\x02", Properties{{"a", "1\x012"}}},
		{"empty value", "a\x01\x02b\x012\x02", Properties{{"b", "2"}}},
		{"empty name", "\x011\x02b\x012\x02", Properties{{"b", "2"}}},
		{"empty name, then another 0x01", "\x01a\x011\x02", nil},
		{"no 0x01", "abc\x02b\x012\x02", Properties{{"b", "2"}}},
		{"too short", "a\x01\x02\x02\x01\x02ab\x02", nil},
		{"only separators", "\x02\x02\x02", nil},
		{"doubles", "a\x011\x02a\x012\x02", Properties{{"a", "1"}, {"a", "2"}}},
		{"no ASCII", "schlüssel\x01值\x02", Properties{{"schlüssel", "值"}}},
	} {
		if diff := cmp.Diff(tc.want, ParseProperties(tc.text)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// brokerReads is the rule of the brokers' reader on its own terms: an entry has three bytes or more, and
// its first 0x01 is neither its first nor its last byte.
func brokerReads(s string) map[string]string {
	m := map[string]string{}
	for _, entry := range strings.Split(s, "\x02") {
		at := strings.IndexByte(entry, 1)
		if len(entry) >= 3 && at > 0 && at < len(entry)-1 {
			m[entry[:at]] = entry[at+1:]
		}
	}
	return m
}

func checkProperties(t rapid.TB, s string) {
	p, want := ParseProperties(s), brokerReads(s)
	got := map[string]string{}
	for _, e := range p {
		got[e.Name], _ = p.Get(e.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q: %s", s, diff)
	}
	if diff := cmp.Diff(p, ParseProperties(p.String())); diff != "" {
		t.Fatalf("%q does not read back: %s", s, diff)
	}
}

func TestPropertiesAreReadAsBrokersDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkProperties(t, rapid.StringOf(rapid.RuneFrom([]rune{1, 2, 'a', 'b', 'ä'})).Draw(t, "text"))
	})
}

func FuzzParseProperties(f *testing.F) {
	f.Add("UNIQ_KEY\x01AC11\x02WAIT\x01true\x02DELAY\x013")
	f.Add("a\x01\x02\x01b\x02\x02c\x01d\x01e\x02")
	f.Fuzz(func(t *testing.T, s string) { checkProperties(t, s) })
}

func TestChangeProperties(t *testing.T) {
	p := ParseProperties("a\x011\x02b\x012\x02a\x013\x02c\x014\x02")
	if v, ok := p.Get("a"); v != "3" || !ok {
		t.Errorf("Get(a) = %q, %v; want the last", v, ok)
	}
	if _, ok := p.Get("x"); ok {
		t.Error("x is not there")
	}
	p.Set("a", "5")
	p.Set("d", "6")
	if diff := cmp.Diff(Properties{{"b", "2"}, {"c", "4"}, {"a", "5"}, {"d", "6"}}, p); diff != "" {
		t.Error(diff)
	}
	p.Del("b", "a", "x")
	if got := p.String(); got != "c\x014\x02d\x016\x02" {
		t.Errorf("got %q", got)
	}
	p.Del("c", "d")
	if got := p.String(); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
}
