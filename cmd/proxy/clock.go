//go:build !clockshift

package main

import "time"

// wallClock is the one place where the product reads the wall clock.
func wallClock() time.Time { return time.Now() }
