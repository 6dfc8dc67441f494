package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delaygate/delaygate/internal/delivery"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/timer"
)

// A broker is down for ten minutes while 300 messages in 60 lanes become due.
func TestBrokerDownThenUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		down verdict
	}{{"refused", verdict{err: errDown}}, {"no master", verdict{}}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down := true
				net := newNet(nil)
				net.answer = func(s sent) verdict {
					if s.addr == "addr-of-a" && down {
						return tc.down
					}
					return verdict{}
				}
				if tc.name == "no master" {
					net.masters["a"] = ""
				}
				var log logBuffer
				r := newRig(t, net, func(o *delivery.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
				lsn := 0
				fire := func(broker string, n int) {
					for range n {
						lsn++
						r.Fire(items(broker, "T"+string(rune('0'+lsn%3)), uint16(lsn%20), lsn, 1))
					}
				}
				fire("a", 300)
				sleep(time.Second)
				net.set(func() { net.all, net.most = nil, 0 })
				for range 600 {
					fire("b", 1)
					sleep(time.Second)
				}
				attempts, late := 0, 0
				for _, s := range net.sent() {
					if s.addr == "addr-of-a" {
						attempts++
					} else if s.nth != 1 {
						late++
					}
				}
				s := r.Stats()
				if tc.name != "no master" && (attempts < 190 || attempts > 210) || late != 0 {
					t.Errorf("%d attempts in ten minutes, want one each 3 s; %d messages of the other broker repeated", attempts, late)
				}
				if s.Delivered != 600 || s.Waiting != 300 || len(s.Down) != 1 || s.Down[0] != "a" || s.Retried > 300 {
					t.Errorf("%+v", s)
				}
				net.set(func() { down, net.most = false, 0; delete(net.masters, "a") })
				sleep(3*time.Second + 100*time.Millisecond)
				r.wantAllSettledOnce(t, 900)
				if net.most < 50 {
					t.Errorf("only %d lanes went on together", net.most)
				}
				if s = r.Stats(); len(s.Down) != 0 || s.Delivered != 900 {
					t.Errorf("%+v", s)
				}
				if log.lines("cannot be reached") != 1 || log.lines("answers again") != 1 {
					t.Error(log.buf.String())
				}
			})
		})
	}
}

func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(sent) verdict { return verdict{err: errDown, after: 500 * time.Millisecond} })
		r := newRig(t, net, nil)
		for lane := range uint16(40) {
			r.Fire(items("a", "T", lane, int(lane)+1, 1))
		}
		sleep(time.Second) // all 40 were on their way when the first failed
		net.set(func() { net.most = 0 })
		for range 60 {
			sleep(time.Second)
			r.Fire(items("a", "T2", 0, 1000, 1))
		}
		if net.most != 1 {
			t.Errorf("%d unanswered at a time", net.most)
		}
	})
}

// A broker accepts requests and never answers, for a minute: few of its messages may be sent again.
func TestHangingBrokerGetsFewRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		net := newNet(nil)
		net.answer = func(s sent) verdict {
			if hangs {
				return verdict{never: true}
			}
			return verdict{}
		}
		r := newRig(t, net, nil)
		for lane := range uint16(50) {
			r.Fire(items("a", "T", lane, 100*int(lane+1), 10))
		}
		sleep(time.Minute)
		if n := len(net.sent()); n > 50+6 {
			t.Errorf("%d sent while the broker hung", n)
		}
		back := time.Now()
		net.set(func() { hangs = false })
		sleep(15 * time.Second)
		r.wantAllSettledOnce(t, 500)
		var first, last time.Time
		for _, s := range net.sent() {
			if s.at.After(back) {
				if first.IsZero() {
					first = s.at
				}
				last = s.at
			}
		}
		if d := last.Sub(first); d > 100*time.Millisecond {
			t.Errorf("lanes went on over %v after the first answer", d)
		}
	})
}

// A broker whose connections break after each request: the probes are lost, not refused.
func TestLostProbesKeepTheirPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(s sent) verdict {
			if s.nth == 1 {
				return verdict{err: errDown}
			}
			return verdict{err: upstream.ErrUnknownOutcome}
		})
		r := newRig(t, net, nil)
		for lane := range uint16(60) {
			r.Fire(items("a", fmt.Sprint("T", lane%20), lane, int(lane+1), 1))
		}
		sleep(time.Second)
		net.set(func() { net.all = nil })
		sleep(time.Minute)
		if n := len(net.sent()); n < 18 || n > 22 {
			t.Errorf("%d probes in a minute, want one each 3 s", n)
		}
	})
}

// Lanes that lost requests wait long; the first answer of their broker ends that.
func TestFirstAnswerResumesLanesThatLostRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := false
		net := newNet(nil)
		net.answer = func(s sent) verdict {
			switch {
			case up:
				return verdict{}
			case s.topic == "probes":
				return verdict{err: errDown}
			}
			return verdict{err: upstream.ErrUnknownOutcome, after: 2 * time.Minute}
		}
		r := newRig(t, net, func(o *delivery.Options) { o.Retry = delivery.Backoff{First: time.Hour, Max: time.Hour} })
		start := time.Now()
		r.Fire(items("a", "loses", 0, 1, 1)) // fails after 2 minutes, and pauses until 62
		sleep(time.Minute)
		r.Fire(items("a", "probes", 0, 2, 1)) // fails after 1 minute, and is the probe at 61
		sleep(10 * time.Minute)
		net.set(func() { up = true })
		sleep(time.Hour)
		r.wantAllSettledOnce(t, 2)
		a, b := times(net.sent(), "1", start), times(net.sent(), "2", start)
		if d := a[len(a)-1] - b[len(b)-1]; d < 0 || d > 10 {
			t.Errorf("the lane went on %d ms after the probe", d)
		}
	})
}

// One topic is never answered; another one on the same broker does not notice.
func TestTroubleOfOneTopicLeavesOthersAlone(t *testing.T) {
	for name, v := range map[string]verdict{"no answer": {never: true}, "14": {code: 14}, "2": {code: 2}, "17": {code: 17}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNet(func(s sent) verdict {
					if s.topic == "bad" {
						return v
					}
					return verdict{}
				})
				r := newRig(t, net, nil)
				for lane := range uint16(16) {
					r.Fire(items("a", "bad", lane, 100_000*int(lane+1), 100))
				}
				for i := range 300 {
					r.Fire(items("a", "good", uint16(i%3), i+1, 1))
					sleep(100 * time.Millisecond)
					if s := r.Stats(); s.Delivered < int64(i) {
						t.Fatalf("%d of %d messages of the good topic: %+v", s.Delivered, i+1, s)
					}
				}
				r.wantAllSettledOnce(t, 300)
			})
		})
	}
}

func TestCloseWaitsForAnswersAndSettlesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(s sent) verdict {
			if s.topic == "fails" {
				return verdict{code: 2, after: time.Second}
			}
			return verdict{after: time.Second}
		})
		r := newRig(t, net, nil)
		for lane := range uint16(5) {
			r.Fire(items("a", "T", lane, 10*int(lane+1), 5))
		}
		r.Fire(items("a", "fails", 0, 100, 5))
		sleep(500 * time.Millisecond)
		start := time.Now()
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 500*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		r.wantAllSettledOnce(t, 5)
		r.Fire(items("a", "T", 0, 1000, 1))
		sleep(time.Hour)
		if n := len(net.sent()); n != 6 {
			t.Errorf("%d sent, want the 6 before Close", n)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error("second Close: ", err)
		}
	})
}

func TestCloseDropsWhatWaitsToBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(nil)
		r := newRig(t, net, func(o *delivery.Options) { o.Loaders = 1 })
		gate := make(chan struct{})
		r.store.load = func(it timer.Item) ([]byte, error) {
			<-gate
			return frameOf(it), nil
		}
		for lane := range uint16(20) {
			r.Fire(items("a", "T", lane, int(lane+1), 1))
		}
		synctest.Wait()
		time.AfterFunc(time.Second, func() { close(gate) })
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(net.sent()); n != 1 || len(r.store.done()) != 1 {
			t.Errorf("%d sent, %d settled, want the one that was being read", n, len(r.store.done()))
		}
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(sent) verdict { return verdict{after: 5 * time.Second} })
		r := &rig{store: newStore(), net: net, clock: &wall{}}
		d := delivery.New(delivery.Options{Store: r.store, Send: net.Send, Master: net.Master, Now: r.clock.Now})
		d.Fire(items("a", "T", 0, 1, 3))
		sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		sleep(time.Minute)
		r.wantSettled(t)
	})
}

func TestCloseWithEverythingPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNet(func(s sent) verdict {
			switch s.topic {
			case "kept":
				return verdict{code: 13}
			case "lost":
				return verdict{never: true}
			}
			return verdict{code: 14}
		})
		net.masters["gone"] = ""
		r := newRig(t, net, nil)
		for i, topic := range []string{"kept", "lost", "busy"} {
			r.Fire(items("a", topic, 0, 10*i+1, 2))
		}
		r.Fire(items("gone", "T", 0, 100, 2))
		sleep(11 * time.Second)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		n := len(net.sent())
		sleep(time.Hour)
		if more := len(net.sent()) - n; more != 0 {
			t.Errorf("%d sent after Close", more)
		}
		r.wantSettled(t)
	})
}
