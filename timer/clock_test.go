package timer

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestClockJumpsAreCountedAndLogged(t *testing.T) {
	const day = 24 * time.Hour
	type look struct {
		mono, wall time.Duration // how far each clock moved since the look before
		held       time.Duration // between the readings
		jumpMs     int64         // 0: none
		line       string        // "": no line
	}
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"steady", []look{{mono: time.Second, wall: time.Second}, {mono: day, wall: day}}},
		{"slewed", []look{{mono: time.Second, wall: 1999 * time.Millisecond}, {mono: time.Second, wall: time.Millisecond}}},
		{"NTP step forward", []look{{mono: time.Millisecond, wall: 1001 * time.Millisecond, jumpMs: 1000, line: "jumped forward"}}},
		{"NTP step back", []look{{mono: 100 * time.Millisecond, wall: -1200 * time.Millisecond, jumpMs: -1300, line: "jumped back"}}},
		{"suspended for a day", []look{{mono: time.Millisecond, wall: day, jumpMs: day.Milliseconds() - 1, line: "by=23h59m59.999s"}}},
		{"one line a minute", []look{
			{wall: time.Hour, jumpMs: time.Hour.Milliseconds(), line: "not_logged=0"},
			{wall: -time.Hour, jumpMs: -time.Hour.Milliseconds()},
			{mono: 59 * time.Second, wall: time.Hour, jumpMs: 3541_000},
			{mono: time.Second, wall: 3 * time.Second, jumpMs: 2000, line: "not_logged=2"},
		}},
		{"held up between the readings", []look{{held: 5 * time.Second}, {mono: time.Second, wall: 6 * time.Second}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			var mono, held time.Duration
			wall := int64(rigNow)
			s := &Store{o: Options{
				Log:       slog.New(slog.NewTextHandler(&log, nil)),
				Now:       func() int64 { mono += held; return wall },
				Monotonic: func() time.Duration { return mono },
			}}
			c := clockWatch{s: s}
			c.now()
			jumps := int64(0)
			for i, l := range tc.looks {
				log.Reset()
				mono, wall, held = mono+l.mono, wall+l.wall.Milliseconds(), l.held
				if got := c.now(); got != wall {
					t.Fatalf("look %d: %d", i, got)
				}
				if l.jumpMs != 0 {
					jumps++
				}
				if s.clockJumps.Load() != jumps || l.jumpMs != 0 && s.lastJump.Load() != l.jumpMs {
					t.Errorf("look %d: %d jumps, the last of %d ms; want %d, %d", i, s.clockJumps.Load(), s.lastJump.Load(), jumps, l.jumpMs)
				}
				lines := strings.Count(log.String(), "\n")
				if (l.line == "") != (lines == 0) || lines > 1 || !strings.Contains(log.String(), l.line) {
					t.Errorf("look %d: want %q, logged %q", i, l.line, log.String())
				}
			}
		})
	}
}

// Whatever the clock does: nothing early by it, nothing twice in one life of the store, nothing that was settled, everything in the end.
func TestClockJumpsBetweenFireAndSettle(t *testing.T) {
	r := newRig(t)
	r.o.Window = 100
	var watched atomic.Int64 // the latest time that the store was told
	r.o.Now = func() int64 { now := r.clock.Load(); watched.Store(now); return now }
	r.o.Monotonic = func() time.Duration { return 0 }
	r.kill(false)
	const day = 86_400_000
	soon, later := r.put(10, 1000, 900), r.put(10, 2*day, 900)
	fired := map[LSN]Item{}
	look := func(at int64, want int) {
		t.Helper()
		r.clock.Store(at)
		for len(fired) < want {
			for _, it := range r.c.wait(t) {
				if _, twice := fired[it.LSN]; twice || it.Due > at {
					t.Fatalf("at %d fired %+v, before: %v", at, it, twice)
				}
				fired[it.LSN] = it
			}
		}
		r.looks(&watched, at)
		if items := r.c.take(); len(items) > 0 {
			t.Fatalf("at %d fired %v", at, items)
		}
	}
	r.s.Start(r.c.sink)
	look(rigNow, 0)
	look(rigNow+1000, 10)
	look(rigNow-5*day, 10)
	for _, lsn := range soon[:5] {
		r.s.Settle(fired[lsn])
	}
	look(rigNow+999, 10)
	look(rigNow+day, 10)
	look(rigNow-day, 10)
	r.until("settles are durable", func() bool { return r.s.Stats().Settling == 0 })
	if st := r.s.Stats(); st.ClockJumps != 5 || st.LastClockJumpMs != -2*day {
		t.Fatalf("%+v", st)
	}

	r.kill(true) // the clock is before all due times again
	r.wantPending(15)
	clear(fired)
	r.s.Start(r.c.sink)
	look(rigNow-day+1, 0)
	look(rigNow+999, 0)
	look(rigNow+1000, 5) // those that were not settled
	for _, lsn := range soon[5:] {
		r.s.Settle(fired[lsn])
	}
	look(rigNow+2*day-1, 5)
	look(rigNow+30*day, 15)
	look(rigNow-30*day, 15)
	for _, lsn := range later {
		r.s.Settle(fired[lsn])
	}
	r.wantPending(0)
	look(rigNow+60*day, 15)
	r.kill(true)
	r.wantPending(0)
	r.wantCorrupt(false)
}

// looks waits until firing has looked at the clock at that time, and acted on it.
func (r *rig) looks(watched *atomic.Int64, at int64) {
	r.t.Helper()
	for range 3 { // the reading under way, one at that time, and the next: then that one has been acted on
		watched.Store(-1)
		r.until("a look at the clock", func() bool { return watched.Load() == at })
	}
}
