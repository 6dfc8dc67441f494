package timer

import (
	"os"
	"strings"
	"testing"
)

const formatPage = "../docs/on-disk-format.md"

// The layouts in the package comment and in the manual are the same, and all of them are in both.
func TestManualHasTheLayoutsOfThePackageComment(t *testing.T) {
	comment, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(formatPage)
	if err != nil {
		t.Fatal(err)
	}
	_, disk, ok := strings.Cut(string(comment), "\n// # The disk\n")
	if !ok {
		t.Fatal("doc.go has no section on the disk")
	}
	blocks := layouts(disk)
	if len(blocks) < 8 {
		t.Fatalf("doc.go has %d layouts", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(page), "```text\n"+b+"```\n") {
			t.Errorf("%s lacks this layout, or has an older one:\n```text\n%s```", formatPage, b)
		}
	}
	if n := strings.Count(string(page), "```text\n"); n != len(blocks) {
		t.Errorf("%s has %d layouts, doc.go has %d", formatPage, n, len(blocks))
	}
}

// layouts returns the indented blocks of a comment.
func layouts(comment string) []string {
	var blocks []string
	var b strings.Builder
	for line := range strings.Lines(comment) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			b.WriteString(text)
		} else if b.Len() > 0 {
			blocks = append(blocks, b.String())
			b.Reset()
		}
	}
	return blocks
}
