package route

import (
	"bytes"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/internal/upstream/peertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is in every upstream broker address, and must be in no reply.
const secret = "203.0.113."

var clientSide = netip.MustParseAddrPort("127.0.0.1:9876")

const (
	quotedRoute = `{"brokerDatas":[{"brokerAddrs":{"0":"203.0.113.7:10911","1":"203.0.113.8:10911"},"brokerName":"broker-a","cluster":"c1","enableActingMaster":false}],` +
		`"filterServerTable":{"203.0.113.7:10911":["203.0.113.7:4444"]},"orderTopicConf":"broker-a:4","queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}],"unheardOf":{"kept":[1,2]}}`
	bareRoute = `{"brokerDatas":[{"brokerAddrs":{0:"203.0.113.7:10911",1:"203.0.113.8:10911"},"brokerName":"broker-a","cluster":"c1"}],` +
		`"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSynFlag":0,"writeQueueNums":4}]}`
	bareCluster = `{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"203.0.113.7:10911",1:"203.0.113.8:10911"},"brokerName":"broker-a","cluster":"c1"},` +
		`"broker-b":{"brokerAddrs":{0:"203.0.113.9:10911"},"brokerName":"broker-b","cluster":"c1"}},"clusterAddrTable":{"c1":["broker-a","broker-b"]}}`
	bareGroup  = `{"brokerMemberGroup":{"brokerAddrs":{0:"203.0.113.7:10911",1:"203.0.113.8:10911"},"brokerName":"broker-a","cluster":"c1"}}`
	systemList = `{"brokerAddr":"203.0.113.9:10911","topicList":["TBW102","broker-a"]}`
)

// names are the upstream name servers of a test.
type names struct {
	mu       sync.Mutex
	bodies   map[int32]string
	codes    map[int32]int32 // reply codes other than success
	requests []namedRequest
	peers    []*peertest.Peer
}

type namedRequest struct {
	server int
	*codec.Command
}

func startNames(t *testing.T, count int) *names {
	n := &names{
		bodies: map[int32]string{105: quotedRoute, 106: bareCluster, 901: bareGroup, 304: systemList},
		codes:  map[int32]int32{},
	}
	for i := range count {
		n.peers = append(n.peers, peertest.Start(t, func(r *peertest.Request) { n.serve(i, r) }))
	}
	return n
}

func (n *names) serve(server int, r *peertest.Request) {
	n.mu.Lock()
	n.requests = append(n.requests, namedRequest{server, r.Command})
	body, code := n.bodies[r.Code], n.codes[r.Code]
	n.mu.Unlock()
	if code != 0 {
		r.Reply(code, "said the name server")
		return
	}
	r.ReplyWith(&codec.Command{Serialize: codec.JSON, Language: codec.LangJava, Version: 477, Body: []byte(body),
		Fields: codec.Fields{{Name: "from", Value: "upstream"}}})
}

func (n *names) set(code int32, body string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bodies[code] = body
}

func (n *names) fail(code, with int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.codes[code] = with
}

// got returns the requests with that code, but those of the proxy itself.
func (n *names) got(code int32) []namedRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []namedRequest
	for _, r := range n.requests {
		if r.Code == code && r.Language != codec.LangGo {
			out = append(out, r)
		}
	}
	return out
}

func (n *names) stop() {
	for _, p := range n.peers {
		p.Stop()
	}
}

func (n *names) restart() {
	for _, p := range n.peers {
		p.Restart()
	}
}

// opener stands for the listeners.
type opener struct {
	mu     sync.Mutex
	opened map[string]int
	hosts  map[string]bool
	broken map[string]bool
	calls  int
}

func (o *opener) OpenBroker(broker, host string, port int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	if o.broken[broker] {
		return errors.New("bind: address already in use")
	}
	o.opened[broker], o.hosts[host] = port, true
	return nil
}

func (o *opener) isBroken(broker string, broken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken[broker] = broken
}

func (o *opener) port(broker string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened[broker]
}

func (o *opener) attempts() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls
}

// clock is a wall clock that stands still.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type fixture struct {
	t        *testing.T
	names    *names
	opener   *opener
	clock    *clock
	view     *upstream.View
	face     *Face
	bookPath string
}

func newFixture(t *testing.T, nameServers int, change ...func(*FaceOptions)) *fixture {
	t.Helper()
	f := &fixture{
		t: t, names: startNames(t, nameServers), clock: &clock{now: time.Unix(1_700_000_000, 0)},
		opener:   &opener{opened: map[string]int{}, hosts: map[string]bool{}, broken: map[string]bool{}},
		bookPath: filepath.Join(t.TempDir(), "addresses.json"),
	}
	f.start(change...)
	return f
}

// start makes a face as a new process would.
func (f *fixture) start(change ...func(*FaceOptions)) {
	f.t.Helper()
	client := upstream.NewClient(upstream.Options{DialBackoff: time.Millisecond})
	f.t.Cleanup(client.Close)
	var addrs []string
	for _, p := range f.names.peers {
		addrs = append(addrs, p.Addr())
	}
	ns := upstream.NewNameServers(client, addrs)
	f.view = upstream.NewView(upstream.ViewOptions{Client: client, NameServers: ns})
	book, err := OpenBook(f.bookPath, 20000, 20040)
	if err != nil {
		f.t.Fatal(err)
	}
	o := FaceOptions{NameServers: ns, View: f.view, Book: book, Opener: f.opener, Host: "0.0.0.0",
		Now: f.clock.Now, Retry: 5 * time.Millisecond}
	for _, c := range change {
		c(&o)
	}
	f.face = NewFace(o)
}

func request(code int32, fields ...codec.Field) *codec.Command {
	return &codec.Command{Code: code, Language: codec.LangJava, Version: 395, Opaque: 77, Fields: fields}
}

func routeRequest(topic string) *codec.Command {
	return request(codec.ReqGetRouteInfoByTopic, codec.Field{Name: "topic", Value: topic})
}

// ask answers c and looks for upstream addresses in every byte of the reply.
func (f *fixture) ask(c *codec.Command) *codec.Command {
	f.t.Helper()
	r := f.face.Answer(f.t.Context(), c, clientSide)
	if r.Opaque != c.Opaque || r.Serialize != c.Serialize || !r.IsResponse() {
		f.t.Fatalf("code %d: reply is %+v", c.Code, r)
	}
	frame, err := r.Append(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if bytes.Contains(frame, []byte(secret)) {
		f.t.Fatalf("code %d: an upstream address leaks: %q", c.Code, frame)
	}
	for _, p := range f.names.peers {
		if bytes.Contains(frame, []byte(p.Addr())) {
			f.t.Fatalf("code %d: a name server's address leaks: %q", c.Code, frame)
		}
	}
	return r
}

func (f *fixture) want(r *codec.Command, code int32, remark string) {
	f.t.Helper()
	if r.Code != code || !strings.Contains(r.Remark, remark) {
		f.t.Fatalf("reply %d %q body %q, want %d %q", r.Code, r.Remark, r.Body, code, remark)
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for range 2000 {
		if f() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("not within 10 s: %s", what)
}
