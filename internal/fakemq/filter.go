package fakemq

import (
	"slices"
	"strings"
)

// tagFilter lets messages pass by the hash of their tags; clients compare the tags themselves once more.
type tagFilter struct {
	all   bool
	codes []int64
}

// newTagFilter reads an expression such as "a || b". Codes are the client's own hashes, if it sent any.
func newTagFilter(expression string, codes []int64) tagFilter {
	expression = strings.TrimSpace(expression)
	if expression == "" || expression == "*" {
		return tagFilter{all: true}
	}
	if len(codes) > 0 {
		return tagFilter{codes: codes}
	}
	var f tagFilter
	for _, tag := range strings.Split(expression, "||") {
		if tag = strings.TrimSpace(tag); tag != "" {
			f.codes = append(f.codes, javaHash(tag))
		}
	}
	return f
}

func (f tagFilter) passes(tagsCode int64) bool {
	return f.all || slices.Contains(f.codes, tagsCode)
}

func isTagExpression(kind string) bool { return kind == "" || kind == "TAG" }
