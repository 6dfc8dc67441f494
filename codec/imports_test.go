package codec

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

// The package can be used by anything: it leans on the standard library and the buffer pool alone.
func TestImportsAreFew(t *testing.T) {
	allowed := []string{"github.com/valyala/bytebufferpool"}
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		if strings.Contains(path, ".") && !slices.Contains(allowed, path) {
			t.Errorf("codec imports %s", path)
		}
	}
	if slices.Contains(pkg.Imports, "encoding/json") {
		t.Error("codec imports encoding/json: headers are read by the package's own scanner")
	}
}
