package gate

import (
	"math"
	"unicode"
	"unicode/utf8"
)

// parseInt and parseLong accept what Integer.parseInt and Long.parseLong of Java accept: an optional sign
// and decimal digits of any script of the basic plane, nothing around them.
func parseInt(s string) (int64, bool) { return parseJava(s, math.MinInt32, math.MaxInt32) }

func parseLong(s string) (int64, bool) { return parseJava(s, math.MinInt64, math.MaxInt64) }

func parseJava(s string, lowest, highest int64) (int64, bool) {
	negative := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative, s = s[0] == '-', s[1:]
	}
	limit := -highest
	if negative {
		limit = lowest
	}
	if s == "" {
		return 0, false
	}
	n := int64(0) // counted downwards, since the lowest number has no positive
	for _, r := range s {
		d, ok := digit(r)
		if !ok || n < limit/10 || n*10 < limit+d {
			return 0, false
		}
		n = n*10 - d
	}
	if negative {
		return n, true
	}
	return -n, true
}

// digit is Character.digit(r, 10).
func digit(r rune) (int64, bool) {
	if r < utf8.RuneSelf {
		return int64(r - '0'), '0' <= r && r <= '9'
	}
	for _, block := range unicode.Nd.R16 {
		if rune(block.Lo) <= r && r <= rune(block.Hi) {
			return int64(r-rune(block.Lo)) % 10, true
		}
	}
	return 0, false
}
