package gate

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/levels"
	"github.com/delaygate/delaygate/remoting"
	"github.com/delaygate/delaygate/timer"
)

const (
	brokerAddr = "127.7.7.7:10911"
	nowMs      = int64(1_764_547_200_123) // the tests' wall clock
	dayMs      = int64(24 * 3_600_000)
	maxMs      = 40 * dayMs
)

var brokerA = upstream.Broker{Name: "broker-a", Cluster: "DefaultCluster", Addr: brokerAddr}

// fakePeer is a client connection.
type fakePeer struct {
	broker        string
	local, remote netip.AddrPort
	port          int
	replies       chan []byte
	relayed       chan []byte
}

func newPeer(broker string) *fakePeer {
	return &fakePeer{
		broker: broker, port: 20000,
		local: netip.MustParseAddrPort("10.1.2.3:19998"), remote: netip.MustParseAddrPort("192.0.2.9:54321"),
		replies: make(chan []byte, 1024), relayed: make(chan []byte, 16),
	}
}

func (p *fakePeer) Broker() string         { return p.broker }
func (p *fakePeer) Port() int              { return p.port }
func (p *fakePeer) Local() netip.AddrPort  { return p.local }
func (p *fakePeer) Remote() netip.AddrPort { return p.remote }
func (p *fakePeer) Reply(frame []byte)     { p.replies <- append([]byte(nil), frame...) }
func (p *fakePeer) Relay(frame []byte)     { p.relayed <- append([]byte(nil), frame...) }

// reply waits for one answer.
func (p *fakePeer) reply(t *testing.T) *codec.Command {
	t.Helper()
	select {
	case frame := <-p.replies:
		c, err := codec.Decode(frame)
		if err != nil {
			t.Fatalf("the reply is no frame: %v", err)
		}
		return c
	case <-time.After(10 * time.Second):
		t.Fatal("no reply")
		return nil
	}
}

func (p *fakePeer) silent(t *testing.T) {
	t.Helper()
	select {
	case frame := <-p.replies:
		t.Fatalf("unexpected reply %q", frame)
	default:
	}
}

// fakeStore keeps entries. By default a put is durable before Put returns.
type fakeStore struct {
	mu      sync.Mutex
	entries []timer.Entry
	dones   []func(error)
	later   bool  // done waits for finish
	putErr  error // Put fails
	doneErr error // the disk fails
	lsn     timer.LSN

	outcome   timer.Outcome // of cancels
	outcomes  map[timer.LSN]timer.Outcome
	cancelErr error
	rows      []timer.Row // of every search
	findErr   error
	searches  []timer.Search
	cancelled []string // what was asked for
}

const storeIdentity = 0xabc

func (s *fakeStore) Identity() uint64 { return storeIdentity }

func (s *fakeStore) Cancel(due int64, lsn timer.LSN, done func(timer.Outcome, error)) {
	s.mu.Lock()
	s.cancelled = append(s.cancelled, fmt.Sprintf("due %d lsn %d", due, lsn))
	out, ok := s.outcomes[lsn]
	if !ok {
		out = s.outcome
	}
	s.mu.Unlock()
	done(out, s.cancelErr)
}

func (s *fakeStore) Find(q timer.Search) ([]timer.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.searches = append(s.searches, q)
	return s.rows, s.findErr
}

func (s *fakeStore) Put(e *timer.Entry, done func(error)) (timer.LSN, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.putErr != nil {
		return 0, s.putErr
	}
	s.lsn++
	kept := *e
	kept.Body = append([]byte(nil), e.Body...)
	clear(e.Body) // the caller's buffer is its own again
	s.entries = append(s.entries, kept)
	if s.later {
		s.dones = append(s.dones, done)
	} else {
		done(s.doneErr)
	}
	return s.lsn, nil
}

func (s *fakeStore) finish(err error) {
	s.mu.Lock()
	dones := s.dones
	s.dones = nil
	s.mu.Unlock()
	for _, done := range dones {
		done(err)
	}
}

func (s *fakeStore) all() []timer.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]timer.Entry(nil), s.entries...)
}

// fakeView knows topics; cached is what the fast path finds.
type fakeView struct {
	mu          sync.Mutex
	brokers     map[string]upstream.Broker
	topics      map[string]upstream.Topic
	cached      bool
	settings    upstream.Settings
	settingsErr error
	topicErr    error
	createErr   error
	created     []createdTopic
	asked       int
	hang        chan struct{} // Topic waits for it
}

type createdTopic struct {
	topic        string
	queues, perm int32
}

func (v *fakeView) ByAddr(addr string) (upstream.Broker, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b, ok := v.brokers[addr]
	return b, ok
}

func (v *fakeView) CachedTopic(_ upstream.Broker, topic string) (upstream.Topic, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, ok := v.topics[topic]
	return t, ok && v.cached && v.topicErr == nil
}

func (v *fakeView) Topic(ctx context.Context, _ upstream.Broker, topic string) (upstream.Topic, error) {
	v.mu.Lock()
	v.asked++
	hang, t, err := v.hang, v.topics[topic], v.topicErr
	v.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if err != nil {
		return upstream.Topic{}, err
	}
	return t, nil
}

func (v *fakeView) CreateTopic(_ context.Context, _ upstream.Broker, topic string, queues, perm int32) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.created = append(v.created, createdTopic{topic, queues, perm})
	return v.createErr
}

func (v *fakeView) CachedSettings(upstream.Broker) (upstream.Settings, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.settings, v.cached && v.settingsErr == nil
}

func (v *fakeView) Settings(context.Context, upstream.Broker) (upstream.Settings, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.settingsErr != nil {
		return upstream.DefaultSettings(), v.settingsErr
	}
	return v.settings, nil
}

// fakeFace answers code 105 and 106.
type fakeFace struct {
	answer func(c *codec.Command, local netip.AddrPort) *codec.Command
}

func (f *fakeFace) Owns(code int32) bool { return code == 105 || code == 106 }
func (f *fakeFace) Answer(_ context.Context, c *codec.Command, local netip.AddrPort) *codec.Command {
	return f.answer(c, local)
}

// world is a gate among fakes.
type world struct {
	*Gate
	store *fakeStore
	view  *fakeView
	face  *fakeFace
	peer  *fakePeer
}

func rw(queues int32) upstream.Topic {
	return upstream.Topic{Exists: true, Perm: 6, ReadQueues: queues, WriteQueues: queues}
}

func newWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	settings := upstream.DefaultSettings()
	settings.Version = 483 // V5_5_0
	w := &world{
		store: &fakeStore{lsn: 1 << 20},
		view: &fakeView{
			brokers:  map[string]upstream.Broker{brokerAddr: brokerA},
			topics:   map[string]upstream.Topic{"orders": rw(4), "%RETRY%g": rw(1), "broker-a": rw(1), autoCreate: {Exists: true, Perm: 7, ReadQueues: 8, WriteQueues: 8}},
			settings: settings, cached: true,
		},
		face: &fakeFace{}, peer: newPeer(brokerAddr),
	}
	o := Options{
		Store: w.store, View: w.view, Face: w.face, Levels: levels.Default(),
		Now:  func() time.Time { return time.UnixMilli(nowMs) },
		Pick: func(n int32) int32 { return n - 1 },
		IDs:  codec.NewUniqueIDs(netip.MustParseAddr("10.1.2.3"), 7, 9),
	}
	for _, f := range change {
		f(&o)
	}
	w.Gate = New(o)
	t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// message is a send as a test describes it.
type message struct {
	topic   string
	props   map[string]string
	queue   int32
	change  func(*codec.SendHeader)
	body    []byte
	code    int32
	version int32
	oneway  bool
	binary  bool
}

func (m message) command() *codec.Command {
	var p codec.Properties
	p.Set("color", "blue")
	for k, v := range m.props {
		p.Set(k, v)
	}
	h := codec.SendHeader{
		ProducerGroup: "pg", Topic: m.topic, DefaultTopic: autoCreate, DefaultTopicQueueNums: 4, QueueID: m.queue,
		BornTimestamp: nowMs - 7, Flag: 5, Properties: p.String(), ReconsumeTimes: 0, MaxReconsumeTimes: -1,
	}
	if h.Topic == "" {
		h.Topic = "orders"
	}
	if m.change != nil {
		m.change(&h)
	}
	c := &codec.Command{Code: m.code, Language: codec.LangJava, Version: m.version, Opaque: 77, Body: m.body}
	if c.Code == 0 {
		c.Code = codec.ReqSendMessageV2
	}
	c.Fields = h.V2()
	if c.Code == codec.ReqSendMessage {
		c.Fields = h.V1()
	}
	if c.Version == 0 {
		c.Version = 407
	}
	if m.body == nil {
		c.Body = []byte("payload")
	}
	if m.oneway {
		c.Flag = codec.FlagOneway
	}
	if m.binary {
		c.Serialize = codec.Binary
	}
	return c
}

// send hands a message to the gate and says what became of it.
func (w *world) send(t *testing.T, m message) remoting.Verdict {
	t.Helper()
	return w.handle(t, w.peer, m.command())
}

func (w *world) handle(t *testing.T, p *fakePeer, c *codec.Command) remoting.Verdict {
	t.Helper()
	frame, err := c.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := codec.ParseHead(frame)
	if err != nil {
		t.Fatal(err)
	}
	if !w.Wants(p, h, frame[:h.BodyOffset()]) {
		return remoting.Pass
	}
	v := w.Handle(p, h, frame)
	clear(frame) // it was valid during the call only
	return v
}

// held sends a message that must be held, and returns its entry and the reply.
func (w *world) heldEntry(t *testing.T, m message) (timer.Entry, *codec.Command) {
	t.Helper()
	before := len(w.store.all())
	if v := w.send(t, m); v != remoting.Taken {
		t.Fatalf("verdict %v, want it taken", v)
	}
	r := w.peer.reply(t)
	if r.Code != codec.RespSuccess {
		t.Fatalf("refused: %d %s", r.Code, r.Remark)
	}
	all := w.store.all()
	if len(all) != before+1 {
		t.Fatalf("%d entries stored, want 1", len(all)-before)
	}
	return all[before], r
}

// heldHeader decodes what is kept of a message.
func heldHeader(t *testing.T, e timer.Entry) (*codec.Command, codec.SendHeader, codec.Properties) {
	t.Helper()
	c, err := codec.Decode(e.Body)
	if err != nil {
		t.Fatal(err)
	}
	h, err := codec.ParseSendHeader(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, h, codec.ParseProperties(h.Properties)
}

type upstreamTopic = upstream.Topic

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
