package levels

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultText is messageDelayLevel of a broker that sets none (RocketMQ MessageStoreConfig, 4.x and 5.x).
const defaultText = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// firstRetryLevel is the level of a first retry; levels 1 and 2 are skipped (RocketMQ
// AbstractSendMessageProcessor, 4.x and 5.x).
const firstRetryLevel = 3

// units from the longest to the shortest, as String tries them.
var units = [...]struct {
	letter byte
	length time.Duration
}{{'d', 24 * time.Hour}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}

// Table maps levels 1 to Max to delays. The zero Table has no level: every message is due at once.
type Table struct{ delays []time.Duration }

// Parse reads a table. It refuses what a broker would not start with: no item at all, an unknown unit,
// fractions, signs, numbers that do not fit. More than one blank between items is accepted.
func Parse(s string) (Table, error) {
	items := strings.Fields(s)
	if len(items) == 0 {
		return Table{}, fmt.Errorf("delay levels: no level given: write them like %q", defaultText)
	}
	delays := make([]time.Duration, len(items))
	for i, item := range items {
		d, err := parseDelay(item)
		if err != nil {
			return Table{}, fmt.Errorf("delay levels: level %d, %q: %w", i+1, item, err)
		}
		delays[i] = d
	}
	return Table{delays}, nil
}

func parseDelay(item string) (time.Duration, error) {
	number, letter := item[:len(item)-1], item[len(item)-1]
	for _, u := range units {
		if u.letter != letter {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil {
			return 0, fmt.Errorf("expected a whole number before the unit %q", letter)
		}
		if n > uint64(math.MaxInt64/u.length) {
			return 0, fmt.Errorf("longer than the %d%c that are possible", math.MaxInt64/u.length, letter)
		}
		return time.Duration(n) * u.length, nil
	}
	return 0, fmt.Errorf("expected a whole number and a unit: s, m, h or d")
}

// Default is the table of a broker that sets none: 18 levels from 1 s to 2 h.
func Default() Table {
	const s, m, h = time.Second, time.Minute, time.Hour
	return Table{[]time.Duration{
		s, 5 * s, 10 * s, 30 * s, m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, h, 2 * h,
	}}
}

// Max is the highest level, which is the number of levels.
func (t Table) Max() int { return len(t.delays) }

// Delay returns how long a message of that level waits, and the level that counts: Max for a level above
// it, 0 (and no delay) for one below 1.
func (t Table) Delay(level int) (time.Duration, int) {
	effective := min(max(level, 0), t.Max())
	if effective == 0 {
		return 0, 0
	}
	return t.delays[effective-1], effective
}

// RetryLevel returns the level at which a message waits that was consumed reconsumeTimes times before:
// 3 + reconsumeTimes, at most Max.
func (t Table) RetryLevel(reconsumeTimes int) int {
	reconsumeTimes = min(max(reconsumeTimes, 0), t.Max())
	return min(firstRetryLevel+reconsumeTimes, t.Max())
}

// String writes the table as Parse reads it, each item in its longest unit that has no remainder.
func (t Table) String() string {
	var b []byte
	for i, d := range t.delays {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendDelay(b, d)
	}
	return string(b)
}

func appendDelay(b []byte, d time.Duration) []byte {
	for _, u := range units {
		if d != 0 && d%u.length == 0 {
			return append(strconv.AppendInt(b, int64(d/u.length), 10), u.letter)
		}
	}
	return append(b, "0s"...)
}

// Equal tells whether both tables have the same levels with the same delays.
func (t Table) Equal(other Table) bool { return slices.Equal(t.delays, other.delays) }
