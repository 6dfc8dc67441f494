package levels

import (
	"go/build"
	"strings"
	"testing"
)

func TestImportsAreOfTheStandardLibrary(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		if strings.Contains(path, ".") {
			t.Errorf("levels imports %s", path)
		}
	}
}
