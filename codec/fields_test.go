package codec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFieldsKeepTheirOrder(t *testing.T) {
	f := Fields{{"a", "1"}, {"b", "2"}, {"a", "3"}, {"c", ""}}
	if v, ok := f.Get("a"); v != "3" || !ok {
		t.Errorf("Get(a) = %q, %v; want the last", v, ok)
	}
	if v, ok := f.Get("c"); v != "" || !ok {
		t.Errorf("Get(c) = %q, %v", v, ok)
	}
	if _, ok := f.Get("x"); ok {
		t.Error("x is not there")
	}
	f.Set("b", "4")
	f.Set("d", "5")
	if diff := cmp.Diff(Fields{{"a", "1"}, {"b", "4"}, {"a", "3"}, {"c", ""}, {"d", "5"}}, f); diff != "" {
		t.Error(diff)
	}
	f.Set("a", "6")
	if diff := cmp.Diff(Fields{{"b", "4"}, {"a", "6"}, {"c", ""}, {"d", "5"}}, f); diff != "" {
		t.Error(diff)
	}
	f.Del("a")
	f.Del("x")
	if diff := cmp.Diff(Fields{{"b", "4"}, {"c", ""}, {"d", "5"}}, f); diff != "" {
		t.Error(diff)
	}
}
