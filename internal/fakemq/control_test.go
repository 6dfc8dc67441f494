package fakemq

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// faulty starts a broker whose first send meets with an action.
func faulty(t *testing.T, a Action) (*Cluster, *client) {
	t.Helper()
	c, b := startBroker(t, BrokerOptions{})
	c.Control(func(r *Request) Action {
		if r.Code == codec.ReqSendMessageV2 && r.Seq == 1 {
			return a
		}
		return Pass()
	})
	return c, dial(t, b.Addr())
}

func postSend(c *client, body string) int32 {
	return c.post(message{body: body}.command(codec.ReqSendMessageV2))
}

func TestAnswerInTheBrokersPlace(t *testing.T) {
	for _, tc := range []struct {
		action Action
		want   int32
	}{
		{Answer(codec.RespServiceNotAvailable, "go away"), codec.RespServiceNotAvailable},
		{Busy(), codec.RespSystemBusy},
		{Reply(&codec.Command{Code: codec.RespFlushDiskTimeout, Fields: fields("queueId", 0)}), codec.RespFlushDiskTimeout},
	} {
		c, cl := faulty(t, tc.action)
		if reply := cl.send(message{}); reply.Code != tc.want {
			t.Errorf("code %d, want %d", reply.Code, tc.want)
		}
		if n := len(c.Messages("t")); n != 0 {
			t.Errorf("code %d: %d messages stored", tc.want, n)
		}
		cl.mustSend(message{})
	}
}

func TestDroppedRequestHasNoEffect(t *testing.T) {
	c, cl := faulty(t, Drop())
	postSend(cl, "lost")
	cl.silent()
	cl2 := dial(t, c.Brokers()[0].Addr())
	cl2.mustSend(message{body: "kept"})
	if got := bodies(c.Messages("t")); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("stored %q", got)
	}
}

func TestDroppedReplyLeavesTheEffect(t *testing.T) {
	c, cl := faulty(t, DropReply())
	postSend(cl, "stored")
	awaitMessages(t, c, "t", 1)
	cl.silent()
}

func TestDelayedRequestIsOvertaken(t *testing.T) {
	c, cl := faulty(t, Delay(100*time.Millisecond))
	first, second := postSend(cl, "late"), postSend(cl, "early")
	if got := []int32{cl.reply().Opaque, cl.reply().Opaque}; !slices.Equal(got, []int32{second, first}) {
		t.Errorf("replies to %v", got)
	}
	if got := bodies(c.Messages("t")); !slices.Equal(got, []string{"early", "late"}) {
		t.Errorf("stored %q", got)
	}
}

func TestDelayedReplyIsOvertaken(t *testing.T) {
	c, cl := faulty(t, DelayReply(100*time.Millisecond))
	first, second := postSend(cl, "first"), postSend(cl, "second")
	if got := []int32{cl.reply().Opaque, cl.reply().Opaque}; !slices.Equal(got, []int32{second, first}) {
		t.Errorf("replies to %v", got)
	}
	if got := bodies(c.Messages("t")); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("stored %q", got)
	}
}

func TestCloseInsteadOfExecuting(t *testing.T) {
	c, cl := faulty(t, Close())
	postSend(cl, "lost")
	if b := cl.closed(); len(b) != 0 {
		t.Errorf("%d bytes before the end", len(b))
	}
	if n := len(c.Messages("t")); n != 0 {
		t.Errorf("%d messages stored", n)
	}
}

func TestReplyCutInTheMiddleOfItsFrame(t *testing.T) {
	c, cl := faulty(t, CutReply())
	postSend(cl, "stored")
	b := cl.closed()
	if len(b) < 5 || len(b) >= 4+int(binary.BigEndian.Uint32(b)) {
		t.Errorf("%d bytes of a frame", len(b))
	}
	if n := len(c.Messages("t")); n != 1 {
		t.Errorf("%d messages stored", n)
	}
}

func TestWrongOpaque(t *testing.T) {
	c, cl := faulty(t, WrongOpaque())
	opaque := postSend(cl, "stored")
	if reply := cl.reply(); reply.Opaque == opaque {
		t.Error("the opaque is right")
	}
	if n := len(c.Messages("t")); n != 1 {
		t.Errorf("%d messages stored", n)
	}
}

func TestSlowReader(t *testing.T) {
	const pause = 200 * time.Millisecond
	_, cl := faulty(t, PauseReading(pause))
	start := time.Now()
	cl.mustSend(message{})
	cl.mustSend(message{})
	if d := time.Since(start); d < pause {
		t.Errorf("the second request was read after %s", d)
	}
}

func TestClientThatDoesNotReadIsNotRead(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.mustSend(message{body: string(make([]byte, 1<<20))})
	for range 64 {
		cl.post(&codec.Command{Code: codec.ReqViewMessageByID, Fields: fields("offset", 0)})
	}
	// What fits into the sockets' buffers is read, then the broker stops.
	read := int64(-1)
	for now := int64(0); now != read; now = c.Requests(codec.ReqViewMessageByID) {
		read = now
		time.Sleep(200 * time.Millisecond)
	}
	if read == 64 {
		t.Error("all requests were read although no reply was")
	}
	dial(t, b.Addr()).mustSend(message{})
	for range 64 {
		if reply := cl.reply(); len(reply.Body) < 1<<20 {
			t.Fatalf("reply of %d bytes", len(reply.Body))
		}
	}
}

func TestHooksAreAskedNewestFirstAndCanBeRemoved(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{Addr: "127.7.7.7:0"})
	cl := dial(t, b.Addr())
	var seen []Request
	removeOld := c.Control(func(r *Request) Action { seen = append(seen, *r); return Answer(16, "old") })
	removeNew := c.Control(func(r *Request) Action { return Answer(14, "new") })
	if reply := cl.send(message{}); reply.Code != 14 || reply.Remark != "new" {
		t.Errorf("both hooks: %d %s", reply.Code, reply.Remark)
	}
	removeNew()
	if reply := cl.send(message{}); reply.Code != 16 {
		t.Errorf("old hook: %d", reply.Code)
	}
	removeOld()
	cl.mustSend(message{})
	if len(seen) != 1 || seen[0].Broker != "broker-a" || seen[0].Remote.String() != cl.nc.LocalAddr().String() || seen[0].Seq != 2 {
		t.Errorf("seen %+v", seen)
	}
	if n := b.Requests(codec.ReqSendMessageV2); n != 3 || c.Requests(codec.ReqSendMessageV2) != 3 {
		t.Errorf("%d requests counted", n)
	}
}

func TestFrameThatCannotBeDecodedEndsTheConnection(t *testing.T) {
	for name, frame := range map[string][]byte{
		"longer than allowed": {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"unknown serialize":   {0, 0, 0, 8, 9, 0, 0, 2, '{', '}', 0, 0},
		"header beyond frame": {0, 0, 0, 8, 0, 0, 0, 200, '{', '}', 0, 0},
		"no JSON":             {0, 0, 0, 6, 0, 0, 0, 2, 'x', 'y'},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := startBroker(t, BrokerOptions{})
			cl := dial(t, b.Addr())
			if _, err := cl.nc.Write(frame); err != nil {
				t.Fatal(err)
			}
			if rest := cl.closed(); len(rest) != 0 {
				t.Errorf("%d bytes in reply", len(rest))
			}
		})
	}
}

func TestBinaryRequestGetsABinaryReply(t *testing.T) {
	_, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.post(&codec.Command{Serialize: codec.Binary, Code: codec.ReqGetMaxOffset, Fields: fields("topic", "t", "queueId", 0)})
	if reply := cl.reply(); reply.Serialize != codec.Binary || number(t, reply, "offset") != 0 {
		t.Errorf("reply %+v", reply)
	}
}

func TestAwait(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	cl := dial(t, b.Addr())
	cl.mustSend(message{})
	if list, err := c.Await(t.Context(), "t", 1); err != nil || len(list) != 1 {
		t.Errorf("%d messages, %v", len(list), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if list, err := c.Await(ctx, "t", 2); !errors.Is(err, context.DeadlineExceeded) || len(list) != 1 {
		t.Errorf("%d messages, %v", len(list), err)
	}
	cl.mustSend(message{props: prop("TIMER_DELAY_MS", "30")})
	if list, err := c.Await(t.Context(), "t", 2); err != nil || len(list) != 2 || c.Count("t") != 2 {
		t.Errorf("%d messages, %d counted, %v", len(list), c.Count("t"), err)
	}
	b.DeleteTopic("t")
	if list := c.Messages("t"); len(list) != 0 || c.Count("t") != 0 {
		t.Errorf("deleted topic: %d messages, %d counted", len(list), c.Count("t"))
	}
}

func TestCloseEndsConnectionsWithHeldPulls(t *testing.T) {
	c, b := startBroker(t, BrokerOptions{})
	b.CreateTopic("t", 1, 6)
	cl := dial(t, b.Addr())
	cl.post(&codec.Command{Code: codec.ReqPullMessage, Fields: pullFields(0, pullSuspends|pullSubscription, time.Hour)})
	await(t, "the pull is read", func() bool { return c.Requests(codec.ReqPullMessage) == 1 })
	c.Close()
	if _, err := cl.read(patience); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
}
