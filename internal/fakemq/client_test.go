package fakemq

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// patience bounds what should come at once; it decides nothing but how long a broken test takes.
const patience = 10 * time.Second

// client is a raw remoting client with one connection and no goroutine.
type client struct {
	t      *testing.T
	nc     net.Conn
	r      *bufio.Reader
	opaque int32
	pushed []*codec.Command // requests from the broker
}

func startCluster(t *testing.T, o Options) *Cluster {
	t.Helper()
	c, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func startBroker(t *testing.T, o BrokerOptions) (*Cluster, *Broker) {
	t.Helper()
	c := startCluster(t, Options{Brokers: []BrokerOptions{o}})
	return c, c.Brokers()[0]
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &client{t: t, nc: nc, r: bufio.NewReader(nc)}
}

// fields makes Fields of name, value, name, value...
func fields(pairs ...any) codec.Fields {
	var f codec.Fields
	for i := 0; i < len(pairs); i += 2 {
		f = append(f, codec.Field{Name: pairs[i].(string), Value: fmt.Sprint(pairs[i+1])})
	}
	return f
}

// post writes a request and returns its opaque.
func (c *client) post(cmd *codec.Command) int32 {
	c.t.Helper()
	c.opaque++
	cmd.Opaque, cmd.Language, cmd.Version = c.opaque, codec.LangGo, 317
	b, err := cmd.Append(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
	return c.opaque
}

// read returns the next frame, which the broker may have sent by itself.
func (c *client) read(within time.Duration) (*codec.Command, error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(within))
	return readFrame(c.r)
}

// reply returns the next reply; the broker's own requests are put aside.
func (c *client) reply() *codec.Command {
	c.t.Helper()
	for {
		cmd, err := c.read(patience)
		if err != nil {
			c.t.Fatal(err)
		}
		if cmd.Flag&codec.FlagResponse != 0 {
			return cmd
		}
		c.pushed = append(c.pushed, cmd)
	}
}

func (c *client) call(code int32, f codec.Fields, body []byte) *codec.Command {
	c.t.Helper()
	opaque := c.post(&codec.Command{Code: code, Fields: f, Body: body})
	reply := c.reply()
	if reply.Opaque != opaque {
		c.t.Fatalf("reply to %d has opaque %d, want %d", code, reply.Opaque, opaque)
	}
	return reply
}

// must is call for a request that has to succeed.
func (c *client) must(code int32, f codec.Fields, body []byte) *codec.Command {
	c.t.Helper()
	reply := c.call(code, f, body)
	if reply.Code != codec.RespSuccess {
		c.t.Fatalf("request %d: code %d, %s", code, reply.Code, reply.Remark)
	}
	return reply
}

// silent checks that nothing comes within a moment.
func (c *client) silent() {
	c.t.Helper()
	cmd, err := c.read(50 * time.Millisecond)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("got %+v, %v; want silence", cmd, err)
	}
}

// closed checks that the connection ends, and returns what came before.
func (c *client) closed() []byte {
	c.t.Helper()
	_ = c.nc.SetReadDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(c.r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("the connection is still open after %d bytes", len(rest))
	}
	return rest
}

// message is what send sends; topic "t" unless it says otherwise.
type message struct {
	topic      string
	queue      int32
	body       string
	props      codec.Properties
	reconsumed int32
	maxRetries int32
	batch      bool
}

func prop(name, value string) codec.Properties { return codec.Properties{{Name: name, Value: value}} }

func (m message) command(code int32) *codec.Command {
	h := codec.SendHeader{
		ProducerGroup: "pg", Topic: m.topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: m.queue,
		BornTimestamp: 1700000000000, Flag: 7, Properties: m.props.String(), ReconsumeTimes: m.reconsumed,
		MaxReconsumeTimes: -1, Batch: m.batch,
	}
	if m.topic == "" {
		h.Topic = "t"
	}
	if m.maxRetries > 0 {
		h.MaxReconsumeTimes = m.maxRetries
	}
	f := h.V2()
	if code == codec.ReqSendMessage {
		f = h.V1()
	}
	return &codec.Command{Code: code, Fields: f, Body: []byte(m.body)}
}

func (c *client) send(m message) *codec.Command {
	c.t.Helper()
	cmd := m.command(codec.ReqSendMessageV2)
	return c.call(cmd.Code, cmd.Fields, cmd.Body)
}

func (c *client) mustSend(m message) *codec.Command {
	c.t.Helper()
	reply := c.send(m)
	if reply.Code != codec.RespSuccess {
		c.t.Fatalf("send: code %d, %s", reply.Code, reply.Remark)
	}
	return reply
}

func number(t *testing.T, cmd *codec.Command, field string) int64 {
	t.Helper()
	v, _ := cmd.Fields.Get(field)
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		t.Fatalf("field %s of the reply: %v", field, err)
	}
	return n
}

// stored decodes a body of stored messages.
func stored(t *testing.T, body []byte) []codec.StoredMessage {
	t.Helper()
	var list []codec.StoredMessage
	for len(body) > 0 {
		m, n, err := codec.DecodeStored(body)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
		body = body[n:]
	}
	return list
}

func bodies(list []Message) []string {
	var b []string
	for _, m := range list {
		b = append(b, string(m.Body))
	}
	return b
}

// await waits for a condition that a goroutine of the cluster brings about.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
