package delivery_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/delivery"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/timer"
)

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) lines(having string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, having) {
			n++
		}
	}
	return n
}

// times are when each message was sent, since start, in ms.
func times(all []sent, lsn string, start time.Time) (ms []int64) {
	for _, s := range all {
		if s.lsn == lsn {
			ms = append(ms, s.at.Sub(start).Milliseconds())
		}
	}
	return ms
}

// Message 1 gets the answer three times, then 0; message 2 of the same lane and 3 of another topic get 0.
func TestEveryAnswer(t *testing.T) {
	const (
		stored = iota
		retried
		kept
	)
	for _, tc := range []struct {
		name   string
		v      verdict
		effect int
	}{
		{"0 SUCCESS", verdict{code: 0}, stored},
		{"10 FLUSH_DISK_TIMEOUT", verdict{code: 10}, stored},
		{"11 SLAVE_NOT_AVAILABLE", verdict{code: 11}, stored},
		{"12 FLUSH_SLAVE_TIMEOUT", verdict{code: 12}, stored},
		{"2 SYSTEM_BUSY", verdict{code: 2}, retried},
		{"14 SERVICE_NOT_AVAILABLE", verdict{code: 14}, retried},
		{"1500 GO_AWAY", verdict{code: 1500}, retried},
		{"broken connection", verdict{err: fmt.Errorf("%w: reset", upstream.ErrUnknownOutcome)}, retried},
		{"not sent", verdict{err: errDown}, retried},
		{"queue full", verdict{err: fmt.Errorf("%w: %w", upstream.ErrNotSent, upstream.ErrQueueFull)}, retried},
		{"1 SYSTEM_ERROR", verdict{code: 1, remark: "something"}, kept},
		{"3 NOT_SUPPORTED", verdict{code: 3}, kept},
		{"13 MESSAGE_ILLEGAL", verdict{code: 13}, kept},
		{"16 NO_PERMISSION", verdict{code: 16}, kept},
		{"17 TOPIC_NOT_EXIST", verdict{code: 17}, kept},
		{"215 FLOW_CONTROL", verdict{code: 215}, kept},
		{"unlisted", verdict{code: 4711}, kept},
		{"negative", verdict{code: -1}, kept},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNet(func(s sent) verdict {
					if s.lsn == "1" && s.nth <= 3 {
						return tc.v
					}
					return verdict{}
				})
				var log logBuffer
				var mu sync.Mutex
				var told []timer.LSN
				r := newRig(t, net, func(o *delivery.Options) {
					o.Log = slog.New(slog.NewTextHandler(&log, nil))
					o.OnDelivered = func(it timer.Item, at int64) {
						if at != now() {
							t.Errorf("told %d at %d", at, now())
						}
						mu.Lock()
						defer mu.Unlock()
						told = append(told, it.LSN)
					}
				})
				start := time.Now()
				r.Fire([]timer.Item{item("a", "T", 0, now(), 1), item("a", "T", 0, now(), 2), item("other", "T", 0, now(), 3)})
				sleep(10 * time.Hour)
				r.wantAllSettledOnce(t, 3)
				if slices.Sort(told); !slices.Equal(told, []timer.LSN{1, 2, 3}) {
					t.Errorf("told of %v", told)
				}
				at := times(net.sent(), "1", start)
				second := times(net.sent(), "2", start)
				if d := times(net.sent(), "3", start); !slices.Equal(d, []int64{0}) {
					t.Errorf("another broker's message was sent at %v ms", d)
				}
				s := r.Stats()
				switch tc.effect {
				case stored:
					if len(at) != 1 || s.Retried != 0 {
						t.Errorf("sent at %v, %+v", at, s)
					}
				case retried:
					// Pauses of 100, 200 and 400 ms follow each answer, which takes 1 ms.
					if len(at) != 4 || at[1] != 101 || at[2] != 302 || at[3] != 703 || second[0] != 704 || s.Retried != 3 {
						t.Errorf("sent at %v, then %v, %+v", at, second, s)
					}
				case kept:
					// Pauses of 5, 10 and 20 s; the next message does not wait.
					if len(at) != 4 || at[1] != 5001 || at[2] != 15002 || at[3] != 35003 || second[0] != 1 {
						t.Errorf("sent at %v, then %v", at, second)
					}
					if d := cmp.Diff(map[int32]int64{tc.v.code: 3}, s.Refused); d != "" {
						t.Error(d)
					}
					if n := log.lines("level=WARN"); n != 1 || log.lines(fmt.Sprintf("topic=T queue=0 key=KEY1 due=%d lsn=1", start.UnixMilli())) != 1 {
						t.Errorf("%d warnings:\n%s", n, log.buf.String())
					}
				}
				if s.Waiting+s.InFlight+s.Kept != 0 || s.Delivered != 3 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestRefusedMessagesComeBackInFrontForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := true
		net := newNet(nil)
		net.answer = func(s sent) verdict {
			if refuse {
				return verdict{code: 17}
			}
			return verdict{after: 50 * time.Millisecond}
		}
		r := newRig(t, net, nil)
		r.Fire(items("a", "T", 0, 1, 3))
		sleep(24 * time.Hour)
		s := r.Stats()
		// 5+10+20+40+80+160 s, then each 5 minutes.
		if n := s.Refused[17]; s.Kept != 3 || n < 3*290 || n > 3*300 {
			t.Errorf("%+v", s)
		}
		net.set(func() { refuse = false })
		sleep(5 * time.Minute)
		r.wantSettled(t, 1, 2, 3)
	})
}

func TestQueueThatIsGone(t *testing.T) {
	for _, tc := range []struct {
		name   string
		gone   verdict
		lane   uint16
		queues int32 // 0: not known
		takes  string
		want   []string // queues tried
	}{
		{"5.x, known", verdict{code: 29}, 7, 4, "3", []string{"7", "3"}},
		{"4.x, known", verdict{code: 1, remark: "request queueId[7] is illegal, TopicConfig"}, 7, 4, "3", []string{"7", "3"}},
		{"not known", verdict{code: 29}, 7, 0, "-1", []string{"7", "-1"}},
		{"known wrongly", verdict{code: 29}, 7, 8, "-1", []string{"7", "-1"}},
		{"the new one is gone too", verdict{code: 29}, 7, 4, "-1", []string{"7", "3", "-1"}},
		{"none at all", verdict{code: 29}, 7, 4, "none", []string{"7", "3", "-1", "7", "3", "-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNet(func(s sent) verdict {
					if s.queue == tc.takes {
						return verdict{}
					}
					return tc.gone
				})
				r := newRig(t, net, func(o *delivery.Options) {
					o.WriteQueues = func(broker, topic string) (int32, bool) {
						if broker != "a" || topic != "T" {
							t.Error(broker, topic)
						}
						return tc.queues, tc.queues > 0
					}
				})
				r.Fire(items("a", "T", tc.lane, 1, 1))
				sleep(6 * time.Second)
				var got []string
				for _, s := range net.sent() {
					got = append(got, s.queue)
					if v, _ := s.cmd.Fields.Get("zz"); v != "kept" || string(s.cmd.Body) != "1" || s.cmd.Serialize != codec.Binary {
						t.Error("the frame was not kept as it was")
					}
				}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Error(d)
				}
				if tc.takes != "none" {
					r.wantSettled(t, 1)
				} else if s := r.Stats(); s.Kept != 1 || s.Refused[29] != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestBodiesThatCannotBeSentAreKept(t *testing.T) {
	for _, tc := range []struct {
		name string
		load func(timer.Item) ([]byte, error)
	}{
		{"unreadable", func(timer.Item) ([]byte, error) { return nil, fmt.Errorf("run 7: %w", syscall.EIO) }},
		{"not a frame", func(timer.Item) ([]byte, error) { return []byte("hello, this is no frame"), nil }},
		{"empty", func(timer.Item) ([]byte, error) { return nil, nil }},
		{"over 16 MiB", func(timer.Item) ([]byte, error) {
			return append([]byte{1, 0, 0, 1}, make([]byte, codec.MaxFrame)...), nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := newNet(nil)
				var log logBuffer
				r := newRig(t, net, func(o *delivery.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
				var mended atomic.Bool
				good := r.store.load
				r.store.load = func(it timer.Item) ([]byte, error) {
					if it.LSN == 1 && !mended.Load() {
						return tc.load(it)
					}
					return good(it)
				}
				r.Fire(items("a", "T", 0, 1, 3))
				sleep(20 * time.Second)
				r.wantSettled(t, 2, 3)
				if s := r.Stats(); s.Unsendable != 3 || s.Kept != 1 || log.lines("cannot be sent") != 1 || log.lines("lsn=1") != 1 {
					t.Errorf("%+v", s)
				}
				mended.Store(true)
				sleep(time.Minute)
				r.wantSettled(t, 2, 3, 1)
			})
		})
	}
}

func TestSettledAndLostEntriesAreNotSent(t *testing.T) {
	for _, gone := range []error{timer.ErrSettled, timer.ErrCorrupt} {
		synctest.Test(t, func(t *testing.T) {
			net := newNet(nil)
			r := newRig(t, net, nil)
			good := r.store.load
			r.store.load = func(it timer.Item) ([]byte, error) {
				if it.LSN == 1 {
					return nil, fmt.Errorf("load: %w", gone)
				}
				return good(it)
			}
			r.Fire(items("a", "T", 0, 1, 2))
			sleep(time.Second)
			r.wantSettled(t, 2)
			if s := r.Stats(); s.Kept != 0 || s.Waiting != 0 || s.Unsendable != 0 || len(net.sent()) != 1 {
				t.Errorf("%v: %+v", gone, s)
			}
		})
	}
}
