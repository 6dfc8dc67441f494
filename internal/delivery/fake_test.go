package delivery_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/delivery"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/timer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frameOf is what the gate stores for an item: its LSN is both body and unique key.
func frameOf(it timer.Item) []byte {
	id := fmt.Sprint(it.LSN)
	c := codec.Command{Serialize: codec.Binary, Code: codec.ReqSendMessageV2, Language: codec.LangGo, Version: 317, Body: []byte(id), Fields: codec.Fields{
		{Name: "a", Value: "group"}, {Name: "b", Value: it.Flow.Topic}, {Name: "c", Value: "no-such-topic"}, {Name: "d", Value: "4"},
		{Name: "e", Value: fmt.Sprint(it.Lane)}, {Name: "f", Value: "0"}, {Name: "g", Value: "1700000000000"}, {Name: "h", Value: "0"},
		{Name: "i", Value: "UNIQ_KEY\x01KEY" + id + "\x02"}, {Name: "j", Value: "0"}, {Name: "k", Value: "false"}, {Name: "zz", Value: "kept"},
	}}
	b, err := c.Append(nil)
	if err != nil {
		panic(err)
	}
	return b
}

// fakeStore holds bodies by LSN and what was settled.
type fakeStore struct {
	mu      sync.Mutex
	load    func(timer.Item) ([]byte, error)
	settled map[timer.LSN]int
	order   []timer.LSN
	hold    func(it timer.Item, written func()) // nil: settles are written at once
}

func newStore() *fakeStore {
	return &fakeStore{
		load:    func(it timer.Item) ([]byte, error) { return frameOf(it), nil },
		settled: map[timer.LSN]int{},
	}
}

func (s *fakeStore) Load(it timer.Item) ([]byte, error) {
	s.mu.Lock()
	load := s.load
	s.mu.Unlock()
	return load(it)
}

func (s *fakeStore) SettleThen(it timer.Item, written func()) {
	s.mu.Lock()
	s.settled[it.LSN]++
	s.order = append(s.order, it.LSN)
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		hold(it, written)
		return
	}
	written()
}

func (s *fakeStore) done() []timer.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

// sent is one frame that a fake broker got.
type sent struct {
	addr    string
	lsn     string
	topic   string
	queue   string
	cmd     *codec.Command
	at      time.Time
	nth     int // which sending of this message, from 1
	waiting int // unanswered requests of the same lane, this one included
}

// verdict is what becomes of a request.
type verdict struct {
	code   int32
	remark string
	err    error
	after  time.Duration // default 1 ms
	never  bool          // no answer until the time-out
}

// fakeNet is a Send with the brokers behind it. Replies come on timers, so that no goroutine is needed.
type fakeNet struct {
	mu         sync.Mutex
	answer     func(sent) verdict
	all        []sent
	nth        map[string]int
	open       map[string]int // unanswered, by lane
	unanswered int            // unanswered in all
	most       int            // the most that were
	masters    map[string]string
}

func newNet(answer func(sent) verdict) *fakeNet {
	if answer == nil {
		answer = func(sent) verdict { return verdict{} }
	}
	return &fakeNet{answer: answer, nth: map[string]int{}, open: map[string]int{}, masters: map[string]string{}}
}

func (n *fakeNet) Master(broker string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr, ok := n.masters[broker]
	if !ok {
		return "addr-of-" + broker, true
	}
	return addr, addr != ""
}

func (n *fakeNet) Send(addr string, frame []byte, timeout time.Duration, done func(*codec.Command, error)) {
	c, err := codec.Decode(frame)
	if err != nil {
		go done(nil, fmt.Errorf("%w: %w", upstream.ErrNotSent, upstream.ErrBadFrame))
		return
	}
	s := sent{addr: addr, lsn: string(c.Body), cmd: c, at: time.Now()}
	s.topic, _ = c.Fields.Get("b")
	s.queue, _ = c.Fields.Get("e")
	lane := addr + "/" + s.topic + "/" + s.queue
	n.mu.Lock()
	n.nth[s.lsn]++
	n.open[lane]++
	n.unanswered++
	n.most = max(n.most, n.unanswered)
	s.nth, s.waiting = n.nth[s.lsn], n.open[lane]
	n.all = append(n.all, s)
	v := n.answer(s)
	n.mu.Unlock()
	if v.after == 0 {
		v.after = time.Millisecond
	}
	if v.never {
		v.after, v.err = timeout, fmt.Errorf("%w: %w", upstream.ErrUnknownOutcome, upstream.ErrTimeout)
	}
	time.AfterFunc(v.after, func() {
		n.mu.Lock()
		n.open[lane]--
		n.unanswered--
		n.mu.Unlock()
		if v.err != nil {
			done(nil, v.err)
			return
		}
		done(&codec.Command{Code: v.code, Remark: v.remark, Flag: codec.FlagResponse}, nil)
	})
}

func (n *fakeNet) sent() []sent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

func (n *fakeNet) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

var errDown = fmt.Errorf("%w: connection refused", upstream.ErrNotSent)

// wall is a clock that a test can step; it moves with the bubble's time.
type wall struct {
	mu   sync.Mutex
	step int64
}

func (w *wall) Now() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().UnixMilli() + w.step
}

func (w *wall) shift(ms int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step += ms
}

// rig is a Delivery with its surroundings.
type rig struct {
	*delivery.Delivery
	store *fakeStore
	net   *fakeNet
	clock *wall
}

func newRig(t *testing.T, net *fakeNet, change func(*delivery.Options)) *rig {
	r := &rig{store: newStore(), net: net, clock: &wall{}}
	o := delivery.Options{Store: r.store, Send: net.Send, Master: net.Master, Now: r.clock.Now, Rand: func() float64 { return 0 }}
	if change != nil {
		change(&o)
	}
	r.Delivery = delivery.New(o)
	t.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return r
}

// now is the due time of what is due in this moment.
func now() int64 { return time.Now().UnixMilli() }

func item(broker, topic string, lane uint16, due int64, lsn int) timer.Item {
	return timer.Item{Due: due, LSN: timer.LSN(lsn), Flow: timer.Flow{Broker: broker, Topic: topic}, Lane: lane, Len: 1}
}

// items makes n of them in one lane, numbered from first.
func items(broker, topic string, lane uint16, first, n int) []timer.Item {
	all := make([]timer.Item, n)
	for i := range all {
		all[i] = item(broker, topic, lane, now(), first+i)
	}
	return all
}

// sleep lets the bubble's time pass.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) wantSettled(t *testing.T, want ...timer.LSN) {
	t.Helper()
	if got := r.store.done(); !slices.Equal(got, want) {
		t.Errorf("settled %v, want %v", got, want)
	}
}

func (r *rig) wantAllSettledOnce(t *testing.T, n int) {
	t.Helper()
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if len(r.store.settled) != n {
		t.Errorf("%d messages settled, want %d", len(r.store.settled), n)
	}
	for _, lsn := range slices.Sorted(maps.Keys(r.store.settled)) {
		if k := r.store.settled[lsn]; k != 1 {
			t.Errorf("message %d settled %d times", lsn, k)
		}
	}
}
