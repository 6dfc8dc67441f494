package upstream

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The expectations are what java.util.Properties (17) reads.
func TestPropertiesAsJavaReadsThem(t *testing.T) {
	for _, tc := range []struct {
		text string
		want map[string]string
	}{
		{"", map[string]string{}},
		{"a=1\nb = 2 \n", map[string]string{"a": "1", "b": "2 "}},
		{"a:1\nb 2\nc\td", map[string]string{"a": "1", "b": "2", "c": "d"}},
		{"  a=b=c:d", map[string]string{"a": "b=c:d"}},
		{"# a=1\n  ! b=2\n\n c=3", map[string]string{"c": "3"}},
		{"a=1,\\\n   2,\\\n\t3\nb=4", map[string]string{"a": "1,2,3", "b": "4"}},
		{"a=1\\\\\nb=2", map[string]string{"a": `1\`, "b": "2"}},
		{"a=x\\", map[string]string{"a": "x"}},
		{"a\\=b\\:c\\ d=e", map[string]string{"a=b:c d": "e"}},
		{`a=\t\n\r\f\q\"`, map[string]string{"a": "\t\n\r\fq\""}},
		{`a=\u00e9\uD83D\uDE00!`, map[string]string{"a": "é😀!"}},
		{`path=C:\store`, map[string]string{"path": "C:store"}},
		{"a=1\r\nb=2\rc=3", map[string]string{"a": "1", "b": "2", "c": "3"}},
		{"a=1\na=2", map[string]string{"a": "2"}},
		{"a\nb=\n=c", map[string]string{"a": "", "b": "", "": "c"}},
		{"a=\\u12", map[string]string{"a": "u12"}}, // Java refuses the whole text
		{"k=ünï", map[string]string{"k": "ünï"}},
	} {
		if d := cmp.Diff(tc.want, parseProperties(tc.text)); d != "" {
			t.Errorf("%q: %s", tc.text, d)
		}
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("a=1\\\n 2\n#c\nb\\u0041:\\")
	f.Fuzz(func(t *testing.T, text string) {
		parseProperties(text)
	})
}
