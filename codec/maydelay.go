package codec

import "bytes"

var (
	nameDelay = []byte("DELAY")
	nameTimer = []byte("TIMER_")
	nameStart = []byte(PropStartDeliverTime)
)

// MayDelay reports whether the header of a send (any bytes that contain it whole) can hold a property
// that delays: DELAY, TIMER_*, TIMER_DEL_UNIQKEY or __STARTDELIVERTIME. It searches for the names in the
// bytes as they are, of either serialization, allocates nothing and never misses one. A hit may be false:
// a topic with such a name, or a backslash in a Binary header.
func MayDelay(header []byte) bool {
	return bytes.Contains(header, nameDelay) || bytes.Contains(header, nameTimer) ||
		bytes.Contains(header, nameStart) || mayHideLetter(header)
}

// mayHideLetter finds JSON escapes behind which a capital letter or an underscore can hide: those of the
// code points 0x40 to 0x5F, and any that strict JSON does not know, since brokers' parsers take more.
func mayHideLetter(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return false
		}
		b = b[i+1:]
		n := harmlessEscape(b)
		if n == 0 {
			return true
		}
		b = b[n:]
	}
}

// harmlessEscape returns how many bytes behind a backslash stand for something else than a letter of the
// names; 0 if that is not sure.
func harmlessEscape(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if r, ok := hex4(b[1:]); ok && (r < '@' || r > '_') {
			return 5
		}
	}
	return 0
}
