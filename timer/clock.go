package timer

import "time"

const (
	jumpMin     = time.Second            // smaller steps of the wall clock are not reported
	jumpBlur    = 100 * time.Millisecond // a reading of both clocks that takes longer says nothing
	jumpLogging = time.Minute            // between two lines in the log
)

func osWallClock() int64 { return time.Now().UnixMilli() }

// osMonotonicClock returns a clock that counts from now.
func osMonotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// clockWatch reads the wall clock for the firing goroutine and notices when it is set, or stood still while the machine
// slept: then its steps differ from those of the monotonic clock.
type clockWatch struct {
	s      *Store
	known  bool
	wall   int64 // ms; both clocks at the last good reading
	mono   time.Duration
	quiet  time.Duration // no line in the log before this
	silent int           // jumps since the last line
}

// now returns the wall clock in Unix ms.
func (c *clockWatch) now() int64 {
	before := c.s.o.Monotonic()
	wall := c.s.o.Now()
	mono := c.s.o.Monotonic()
	if mono-before > jumpBlur {
		return wall
	}
	if c.known {
		c.judge(mono, time.Duration(wall-c.wall)*time.Millisecond-(mono-c.mono))
	}
	c.known, c.wall, c.mono = true, wall, mono
	return wall
}

// judge reports what the wall clock did more than the other one.
func (c *clockWatch) judge(mono, jump time.Duration) {
	if jump.Abs() < jumpMin {
		return
	}
	s := c.s
	s.clockJumps.Add(1)
	s.lastJump.Store(jump.Milliseconds())
	if c.quiet > 0 && mono < c.quiet {
		c.silent++
		return
	}
	what := "forward, what became due by that fires now"
	if jump < 0 {
		what = "back, what is not due any more waits again"
	}
	s.o.Log.Warn("timer: the wall clock jumped "+what, "by", jump.Round(time.Millisecond), "not_logged", c.silent)
	c.quiet, c.silent = mono+jumpLogging, 0
}
