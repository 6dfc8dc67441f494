package timer

import "iter"

const hourMs = 3600_000

// hourOf returns the Unix hour in which due (Unix ms) lies.
func hourOf(due int64) int64 { return unitOf(due, hourMs) }

// unitOf returns the unit of ms milliseconds in which due lies; before 1970 they are negative.
func unitOf(due, ms int64) int64 {
	n := due / ms
	if due%ms < 0 {
		n--
	}
	return n
}

// hourCounts counts by Unix hour, in blocks of hours: counting needs one look into a small map.
type hourCounts map[int64]*hourBlock

const (
	blockBits  = 5
	blockHours = 1 << blockBits
)

type hourBlock struct {
	counts [blockHours]int64
	used   int // counts that are not 0
}

func (c hourCounts) add(hour, n int64) {
	b := c[hour>>blockBits]
	if b == nil {
		b = new(hourBlock)
		c[hour>>blockBits] = b
	}
	at := &b.counts[hour&(blockHours-1)]
	if *at == 0 {
		b.used++
	}
	if *at += n; *at == 0 {
		b.used--
	}
	if b.used == 0 {
		delete(c, hour>>blockBits)
	}
}

// all yields the hours with a count that is not 0, in no order.
func (c hourCounts) all() iter.Seq2[int64, int64] {
	return func(yield func(hour, n int64) bool) {
		for block, b := range c {
			for i, n := range b.counts {
				if n != 0 && !yield(block<<blockBits+int64(i), n) {
					return
				}
			}
		}
	}
}
