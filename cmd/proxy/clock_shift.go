//go:build clockshift

package main

import (
	"fmt"
	"os"
	"time"
)

// shift moves the wall clock of a binary built for tests with the tag clockshift, so that a due time
// of weeks ahead comes at once. Release builds contain nothing of it.
var shift = readShift()

func readShift() time.Duration {
	v := os.Getenv("DELAYGATE_TEST_CLOCK_SHIFT")
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		panic(fmt.Sprintf("DELAYGATE_TEST_CLOCK_SHIFT: %v", err))
	}
	return d
}

func wallClock() time.Time { return time.Now().Add(shift) }
