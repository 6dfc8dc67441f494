package codec

import "bytes"

var (
	nameDelay = []byte("DELAY")
	nameTimer = []byte("TIMER_")
	nameStart = []byte(PropStartDeliverTime)
	escape    = []byte(`\u00`)
)

// MayDelay reports whether the header of a send (any bytes that contain it whole) can hold a property
// that delays: DELAY, TIMER_*, TIMER_DEL_UNIQKEY or __STARTDELIVERTIME. It searches for the names in the bytes as they are, allocates
// nothing and never misses one; a hit may be false, for instance a topic with such a name.
func MayDelay(header []byte) bool {
	return bytes.Contains(header, nameDelay) || bytes.Contains(header, nameTimer) ||
		bytes.Contains(header, nameStart) || hasEscapedLetter(header)
}

// hasEscapedLetter finds a capital letter or underscore written as a JSON escape, which hides a name.
func hasEscapedLetter(b []byte) bool {
	for {
		i := bytes.Index(b, escape)
		if i < 0 || len(b) < i+5 {
			return false
		}
		if c := b[i+4]; c == '4' || c == '5' {
			return true
		}
		b = b[i+5:]
	}
}
