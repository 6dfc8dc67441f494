package delivery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/delivery"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/internal/upstream/peertest"
	"github.com/delaygate/delaygate/timer"
)

// tcpBroker stores messages and misbehaves at random.
type tcpBroker struct {
	t    *testing.T
	peer *peertest.Peer

	mu     sync.Mutex
	faults bool
	last   map[string]int // lane -> highest LSN stored
	stored map[int]int    // LSN -> how often
	back   int            // messages stored after one behind them
}

func startBroker(t *testing.T) *tcpBroker {
	b := &tcpBroker{t: t, last: map[string]int{}, stored: map[int]int{}}
	b.peer = peertest.Start(t, b.handle)
	return b
}

func (b *tcpBroker) handle(r *peertest.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 100
	if b.faults {
		n = rand.IntN(100)
	}
	switch {
	case n < 2:
		r.CloseConn()
		return
	case n < 5:
		r.Reply([]int32{2, 14, 1500}[rand.IntN(3)], "")
		return
	}
	lsn, _ := strconv.Atoi(string(r.Body))
	topic, _ := r.Fields.Get("b")
	queue, _ := r.Fields.Get("e")
	lane := topic + "/" + queue
	b.stored[lsn]++
	if lsn < b.last[lane] && b.stored[lsn] == 1 {
		b.back++
	}
	b.last[lane] = max(b.last[lane], lsn)
	switch {
	case n < 7: // stored, but the connection breaks before the answer
		r.CloseConn()
	case n < 8: // stored, no answer
	default:
		r.Reply(codec.RespSuccess, "", codec.Field{Name: "queueId", Value: queue})
	}
}

func (b *tcpBroker) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *tcpBroker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.stored)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("never happened: " + what)
}

// tcpRig sends through a real client.
func tcpRig(t *testing.T, brokers map[string]*tcpBroker) (*delivery.Delivery, *fakeStore) {
	client := upstream.NewClient(upstream.Options{DialBackoff: time.Millisecond})
	store := newStore()
	d := delivery.New(delivery.Options{
		Store: store, Send: client.Send, Now: func() int64 { return time.Now().UnixMilli() },
		Master: func(name string) (string, bool) {
			b, ok := brokers[name]
			if !ok {
				return "", false
			}
			return b.peer.Addr(), true
		},
		Timeout: 200 * time.Millisecond,
		Retry:   delivery.Backoff{First: 5 * time.Millisecond, Max: 100 * time.Millisecond},
		Refused: delivery.Backoff{First: 20 * time.Millisecond, Max: 100 * time.Millisecond},
	})
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	return d, store
}

func TestOverTCPNothingIsLostAndOrderKept(t *testing.T) {
	const n = 6000
	b := startBroker(t)
	b.faults = true
	d, store := tcpRig(t, map[string]*tcpBroker{"a": b})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
				b.peer.Stop()
				time.Sleep(20 * time.Millisecond)
				b.peer.Restart()
			}
		}
	})
	for lsn := 1; lsn <= n; lsn += 100 {
		var batch []timer.Item
		for i := range 100 {
			k := lsn + i
			batch = append(batch, item("a", fmt.Sprint("T", k%3), uint16(k%8), time.Now().UnixMilli(), k))
		}
		d.Fire(batch)
	}
	eventually(t, "all stored under faults", func() bool { return len(store.done()) > n/3 })
	close(stop)
	wg.Wait()
	b.set(func() { b.faults = false })
	eventually(t, "all settled", func() bool { return len(store.done()) == n })
	b.mu.Lock()
	defer b.mu.Unlock()
	twice := 0
	for lsn := 1; lsn <= n; lsn++ {
		if b.stored[lsn] == 0 || store.settled[timer.LSN(lsn)] != 1 {
			t.Errorf("%d stored %d times, settled %d times", lsn, b.stored[lsn], store.settled[timer.LSN(lsn)])
		}
		if b.stored[lsn] > 1 {
			twice++
		}
	}
	if b.back != 0 {
		t.Errorf("%d messages were stored out of order", b.back)
	}
	t.Logf("%d of %d stored more than once, %+v", twice, n, d.Stats())
}

func TestOverTCPBrokerDownWhileAnotherIsOnTime(t *testing.T) {
	a, b := startBroker(t), startBroker(t)
	d, store := tcpRig(t, map[string]*tcpBroker{"a": a, "b": b})
	a.peer.Stop()
	const n = 400
	var late time.Duration
	for k := 1; k <= n; k++ {
		d.Fire([]timer.Item{item("a", "T", uint16(k%4), time.Now().UnixMilli(), k), item("b", "T", uint16(k%4), time.Now().UnixMilli(), n+k)})
		start := time.Now()
		eventually(t, "the other broker's message", func() bool { return b.count() == k })
		late = max(late, time.Since(start))
	}
	if s := d.Stats(); s.Delivered != n || s.Waiting+s.InFlight != n || len(s.Down) != 1 {
		t.Errorf("%+v", s)
	}
	a.peer.Restart()
	start := time.Now()
	eventually(t, "all settled", func() bool { return len(store.done()) == 2*n })
	t.Logf("other broker's worst delay %v; drained %v after the return", late, time.Since(start))
	if a.back != 0 || b.back != 0 {
		t.Error("order was lost")
	}
}

func BenchmarkDelivery(b *testing.B) {
	peer := peertest.Start(b, func(r *peertest.Request) { r.Reply(codec.RespSuccess, "") })
	client := upstream.NewClient(upstream.Options{})
	defer client.Close()
	var left sync.WaitGroup
	left.Add(b.N)
	store := newStore()
	frame := frameOf(item("a", "T", 0, 0, 1))
	store.load = func(timer.Item) ([]byte, error) { return frame, nil }
	d := delivery.New(delivery.Options{
		Store: store, Send: client.Send, Now: func() int64 { return time.Now().UnixMilli() },
		Master:      func(string) (string, bool) { return peer.Addr(), true },
		OnDelivered: func(timer.Item, int64) { left.Done() },
	})
	defer func() { _ = d.Close(context.Background()) }()
	b.ReportAllocs()
	for i := range b.N {
		d.Fire([]timer.Item{item("a", fmt.Sprint("T", i%4), uint16(i%16), 1, i+1)})
	}
	left.Wait()
}
