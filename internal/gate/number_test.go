package gate

import (
	"math"
	"testing"
)

// The wanted values are what Integer.parseInt and Long.parseLong of Java 17 return.
func TestNumbersAreReadAsJavaReadsThem(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int64
		int_ bool
		long bool
	}{
		{"3", 3, true, true},
		{"+3", 3, true, true},
		{"-3", -3, true, true},
		{"-0", 0, true, true},
		{"007", 7, true, true},
		{"2147483647", math.MaxInt32, true, true},
		{"2147483648", math.MaxInt32 + 1, false, true},
		{"-2147483648", math.MinInt32, true, true},
		{"-2147483649", math.MinInt32 - 1, false, true},
		{"9223372036854775807", math.MaxInt64, false, true},
		{"9223372036854775808", 0, false, false},
		{"-9223372036854775808", math.MinInt64, false, true},
		{"-9223372036854775809", 0, false, false},
		{"99999999999999999999999", 0, false, false},
		{"٣", 3, true, true}, // an Arabic digit
		{"１２", 12, true, true},
		{"𝟑", 0, false, false}, // a digit outside of the basic plane
		{"", 0, false, false},
		{"+", 0, false, false},
		{"-", 0, false, false},
		{"+-3", 0, false, false},
		{"3 ", 0, false, false},
		{" 3", 0, false, false},
		{"1e3", 0, false, false},
		{"12.5", 0, false, false},
		{"0x10", 0, false, false},
		{"1_000", 0, false, false},
		{"abc", 0, false, false},
		{"3\xff", 0, false, false},
	} {
		if got, ok := parseInt(tc.text); ok != tc.int_ || ok && got != tc.want {
			t.Errorf("parseInt(%q) = %d, %v", tc.text, got, ok)
		}
		if got, ok := parseLong(tc.text); ok != tc.long || ok && got != tc.want {
			t.Errorf("parseLong(%q) = %d, %v", tc.text, got, ok)
		}
	}
}
