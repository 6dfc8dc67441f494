package gate

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/remoting"
	"github.com/delaygate/delaygate/timer"
)

func header(t *testing.T, c *codec.Command) (codec.Head, []byte, []byte) {
	t.Helper()
	frame, err := c.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := codec.ParseHead(frame)
	if err != nil {
		t.Fatal(err)
	}
	return h, frame[:h.BodyOffset()], frame
}

func TestOnlyWhatMayConcernTheGateIsLookedAt(t *testing.T) {
	w := newWorld(t)
	timed := message{props: props{"TIMER_DELAY_MS": "1"}}
	for _, tc := range []struct {
		name string
		c    *codec.Command
		want bool
	}{
		{"plain send", message{}.command(), false},
		{"plain send, binary", message{binary: true}.command(), false},
		{"timed send", timed.command(), true},
		{"level send, V1", message{props: props{"DELAY": "1"}, code: codec.ReqSendMessage}.command(), true},
		{"batch code", message{props: props{"DELAY": "1"}, code: codec.ReqSendBatchMessage}.command(), false},
		{"reply message", message{props: props{"DELAY": "1"}, code: codec.ReqSendReplyMessageV2}.command(), false},
		{"recall", &codec.Command{Code: codec.ReqRecallMessage}, true},
		{"route", &codec.Command{Code: codec.ReqGetRouteInfoByTopic}, true},
		{"pull", &codec.Command{Code: codec.ReqPullMessage}, false},
		{"send-back", &codec.Command{Code: codec.ReqConsumerSendMsgBack}, false},
		{"heartbeat", &codec.Command{Code: codec.ReqHeartBeat}, false},
		{"pop, beyond int16", &codec.Command{Code: 200050}, false},
		{"unknown", &codec.Command{Code: 31_999}, false},
	} {
		h, head, _ := header(t, tc.c)
		if got := w.Wants(w.peer, h, head); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
		if !w.Wants(newPeer(""), h, head) {
			t.Errorf("%s: relayed on the name-server port", tc.name)
		}
		var p remoting.Peer = w.peer
		if n := testing.AllocsPerRun(100, func() { w.Wants(p, h, head) }); n != 0 {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
	}
}

func TestNameServerRequestsAreAnsweredOnEveryPort(t *testing.T) {
	for _, broker := range []string{"", brokerAddr} {
		for _, serialize := range []codec.Serialize{codec.JSON, codec.Binary} {
			w := newWorld(t)
			p := newPeer(broker)
			w.face.answer = func(c *codec.Command, local netip.AddrPort) *codec.Command {
				if topic, _ := c.Fields.Get("topic"); topic != "orders" || string(c.Body) != "body" || local != p.local {
					t.Errorf("the face got %+v on %v", c, local)
				}
				r := codec.NewReply(c.Head(), 17, "none")
				r.Body = []byte("{}")
				return r
			}
			c := &codec.Command{Serialize: serialize, Code: codec.ReqGetRouteInfoByTopic, Opaque: -3, Fields: codec.Fields{{Name: "topic", Value: "orders"}}, Body: []byte("body")}
			if v := w.handle(t, p, c); v != remoting.Taken {
				t.Fatal(v)
			}
			r := p.reply(t)
			if r.Code != 17 || r.Opaque != -3 || r.Serialize != serialize || !r.IsResponse() || string(r.Body) != "{}" {
				t.Errorf("%+v", r)
			}
		}
	}
}

func TestAOneWayNameServerRequestIsServedInSilence(t *testing.T) {
	w := newWorld(t)
	served := make(chan struct{})
	w.face.answer = func(c *codec.Command, _ netip.AddrPort) *codec.Command {
		close(served)
		return codec.NewReply(c.Head(), 0, "")
	}
	w.handle(t, w.peer, &codec.Command{Code: codec.ReqGetRouteInfoByTopic, Flag: codec.FlagOneway})
	<-served
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.peer.silent(t)
}

func TestAPanicOfTheFaceIsAnErrorForItsClientOnly(t *testing.T) {
	w := newWorld(t)
	w.face.answer = func(*codec.Command, netip.AddrPort) *codec.Command { panic("broken") }
	w.handle(t, w.peer, &codec.Command{Code: codec.ReqGetRouteInfoByTopic, Opaque: 5})
	if r := w.peer.reply(t); r.Code != codec.RespSystemError || r.Opaque != 5 {
		t.Errorf("%+v", r)
	}
}

func TestNameServerRequestsDoNotPileUp(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.NameWorkers, o.Waiting = 1, 1 })
	hang := make(chan struct{})
	w.face.answer = func(c *codec.Command, _ netip.AddrPort) *codec.Command {
		<-hang
		return codec.NewReply(c.Head(), 0, "")
	}
	for range 3 {
		w.handle(t, w.peer, &codec.Command{Code: codec.ReqGetRouteInfoByTopic})
	}
	if r := w.peer.reply(t); r.Code != codec.RespSystemBusy {
		t.Errorf("%+v", r)
	}
	close(hang)
	w.peer.reply(t)
	w.peer.reply(t)
}

func TestTheNameServerPortServesNothingElse(t *testing.T) {
	w := newWorld(t)
	p := newPeer("")
	for _, c := range []*codec.Command{
		{Code: codec.ReqHeartBeat, Opaque: 9}, message{props: props{"DELAY": "1"}}.command(), {Code: codec.ReqRecallMessage},
	} {
		if v := w.handle(t, p, c); v != remoting.Taken {
			t.Fatal(v)
		}
		if r := p.reply(t); r.Code != codec.RespNotSupported || r.Opaque != c.Opaque || !strings.Contains(r.Remark, "not supported") {
			t.Errorf("%+v", r)
		}
	}
	w.handle(t, p, &codec.Command{Code: codec.ReqHeartBeat, Flag: codec.FlagOneway})
	p.silent(t)
}

func TestUnreadableFrames(t *testing.T) {
	w := newWorld(t)
	broken := func(c *codec.Command) (codec.Head, []byte) {
		h, _, frame := header(t, c)
		frame = slices.Clone(frame)
		for i := h.BodyOffset() - 3; i < h.BodyOffset(); i++ {
			frame[i] = 0xFF
		}
		return h, frame
	}
	h, frame := broken(message{props: props{"DELAY": "1"}}.command())
	if v := w.Handle(w.peer, h, frame); v != remoting.Pass {
		t.Errorf("send: %v, the broker should say what is wrong", v)
	}
	h, frame = broken(&codec.Command{Code: codec.ReqRecallMessage})
	if v := w.Handle(w.peer, h, frame); v != remoting.Pass {
		t.Errorf("recall: %v", v)
	}
	h, frame = broken(&codec.Command{Code: codec.ReqGetRouteInfoByTopic})
	if v := w.Handle(w.peer, h, frame); v != remoting.Close {
		t.Errorf("route: %v", v)
	}
	incomplete := message{props: props{"DELAY": "1"}}.command()
	incomplete.Fields.Del("e")
	if v := w.handle(t, w.peer, incomplete); v != remoting.Pass {
		t.Errorf("send without queue: %v", v)
	}
	w.peer.silent(t)
}

func recallOf(handle string) *codec.Command {
	return &codec.Command{Code: codec.ReqRecallMessage, Opaque: 4, Fields: codec.Fields{
		{Name: "producerGroup", Value: "pg"}, {Name: "topic", Value: "orders"}, {Name: "recallHandle", Value: handle}}}
}

func TestRecallAnswersWhatBecameOfTheMessage(t *testing.T) {
	for name, c := range map[string]struct {
		outcome timer.Outcome
		err     error
		code    int32
		remark  string
		relayed bool
	}{
		"taken back":       {outcome: timer.Cancelled, code: codec.RespSuccess},
		"taken back twice": {outcome: timer.CancelledBefore, code: codec.RespSuccess},
		"too late":         {outcome: timer.Fired, code: codec.RespIllegalOperation, remark: "delivered"},
		"never held":       {outcome: timer.Unknown, relayed: true},
		"store is busy":    {err: timer.ErrBusy, code: codec.RespSystemBusy, remark: "[PC_SYNCHRONIZED]"},
		"disk failed":      {err: timer.ErrFailed, code: codec.RespServiceNotAvailable, remark: "ask again"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.store.outcome, w.store.cancelErr = c.outcome, c.err
			e, r := w.heldEntry(t, message{props: props{"TIMER_DELAY_MS": "7000"}})
			own, _ := r.Fields.Get("recallHandle")
			if v := w.handle(t, w.peer, recallOf(own)); v != remoting.Taken {
				t.Fatalf("%v: a broker would claim success", v)
			}
			if c.relayed {
				if got, err := codec.Decode(<-w.peer.relayed); err != nil || got.Opaque != 4 || got.Code != codec.ReqRecallMessage {
					t.Fatalf("relayed %+v, %v", got, err)
				}
				return
			}
			got := w.peer.reply(t)
			if got.Code != c.code || got.Opaque != 4 || !strings.Contains(got.Remark, c.remark) {
				t.Errorf("%d %s", got.Code, got.Remark)
			}
			if id, _ := got.Fields.Get("msgId"); c.code == codec.RespSuccess && id != e.Key {
				t.Errorf("msgId %q, want %q", id, e.Key)
			}
			if want := fmt.Sprintf("due %d lsn %d", e.Due, w.store.lsn); w.store.cancelled[0] != want {
				t.Errorf("asked for %v, want %s", w.store.cancelled, want)
			}
		})
	}
}

// Every copy of the message is taken back, and nothing else.
func TestRecallTakesAllCopies(t *testing.T) {
	const lsn, due = 1<<21 + 5, nowMs + 7000
	row := func(key string, lsn timer.LSN, state timer.State) timer.Row {
		return timer.Row{Due: due + int64(lsn&7), LSN: lsn, Key: key, State: state}
	}
	own := fmt.Sprintf("due %d lsn %d", due, lsn)
	for name, c := range map[string]struct {
		other    bool // the handle is of another store
		rows     []timer.Row
		outcomes map[timer.LSN]timer.Outcome
		findErr  error
		asked    []string
		code     int32 // -1: relayed
	}{
		"alone":                 {asked: []string{own}},
		"itself among the hits": {rows: []timer.Row{{Due: due, LSN: lsn, Key: "KEY"}}, asked: []string{own}},
		"a copy": {rows: []timer.Row{row("KEY", 9, timer.StateArmed), row("KEY", 11, timer.StateWaiting)},
			asked: []string{own, fmt.Sprintf("due %d lsn 9", due+1), fmt.Sprintf("due %d lsn 11", due+3)}},
		"a business key of another": {rows: []timer.Row{row("OTHER", 9, timer.StateWaiting)}, asked: []string{own}},
		"a copy was sent":           {rows: []timer.Row{row("KEY", 9, timer.StateSettled)}, asked: []string{own}, code: codec.RespIllegalOperation},
		"a copy is being sent":      {rows: []timer.Row{row("KEY", 9, timer.StateSending)}, asked: []string{own}, code: codec.RespIllegalOperation},
		"a copy just fired": {rows: []timer.Row{row("KEY", 9, timer.StateArmed)}, outcomes: map[timer.LSN]timer.Outcome{9: timer.Fired},
			asked: []string{own, fmt.Sprintf("due %d lsn 9", due+1)}, code: codec.RespIllegalOperation},
		"the same message object sent for other times": {rows: []timer.Row{
			{Due: due - nearbyMs - 1, LSN: 9, Key: "KEY", State: timer.StateSettled}, {Due: due + nearbyMs + 1, LSN: 10, Key: "KEY"}}, asked: []string{own}},
		"copies at the edge": {rows: []timer.Row{{Due: due - nearbyMs, LSN: 9, Key: "KEY"}, {Due: due + nearbyMs, LSN: 10, Key: "KEY"}},
			asked: []string{own, fmt.Sprintf("due %d lsn 9", due-nearbyMs), fmt.Sprintf("due %d lsn 10", due+nearbyMs)}},
		"the search fails": {findErr: timer.ErrCorrupt, asked: []string{own}},

		"moved here":                 {other: true, rows: []timer.Row{row("KEY", 9, timer.StateWaiting)}, asked: []string{fmt.Sprintf("due %d lsn 9", due+1)}},
		"moved here, with a copy":    {other: true, rows: []timer.Row{row("KEY", 8, timer.StateWaiting), row("KEY", 16, timer.StateCancelled)}, asked: []string{fmt.Sprintf("due %d lsn 8", due), fmt.Sprintf("due %d lsn 16", due)}},
		"moved here and sent":        {other: true, rows: []timer.Row{row("KEY", 9, timer.StateSettled)}, code: codec.RespIllegalOperation},
		"not here":                   {other: true, code: -1},
		"not here, another's key is": {other: true, rows: []timer.Row{row("OTHER", 9, timer.StateWaiting)}, code: -1},
		"not to be found out":        {other: true, findErr: timer.ErrCorrupt, code: codec.RespServiceNotAvailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.store.outcome, w.store.outcomes, w.store.rows, w.store.findErr = timer.Cancelled, c.outcomes, c.rows, c.findErr
			identity, q := uint64(storeIdentity), timer.Search{Topic: "orders", Key: "KEY", Limit: mostCopies, First: lsn - nearby, Last: lsn + nearby}
			if c.other {
				identity++
				q.First, q.Last = 0, 0
			}
			w.handle(t, w.peer, recallOf(codec.RecallHandle("orders", "broker-a", due, "KEY", lsn, identity)))
			if c.code < 0 {
				<-w.peer.relayed
			} else if r := w.peer.reply(t); r.Code != c.code {
				t.Errorf("%d %s, want %d", r.Code, r.Remark, c.code)
			}
			if !slices.Equal(w.store.cancelled, c.asked) || !slices.Equal(w.store.searches, []timer.Search{q}) {
				t.Errorf("cancelled %v, want %v; searched %+v", w.store.cancelled, c.asked, w.store.searches)
			}
		})
	}
}

func TestRecallOfWhatIsNotOurs(t *testing.T) {
	w := newWorld(t)
	for _, foreign := range []string{base64.URLEncoding.EncodeToString([]byte("v1 orders broker-a 1764547207123 KEY")), "garbage", ""} {
		if v := w.handle(t, w.peer, recallOf(foreign)); v != remoting.Pass {
			t.Errorf("%q: %v", foreign, v)
		}
	}
	w.peer.silent(t)
	w.handle(t, w.peer, recallOf(codec.RecallHandle("payments", "broker-a", nowMs+7000, "KEY", 5, storeIdentity)))
	if r := w.peer.reply(t); r.Code != codec.RespIllegalOperation || len(w.store.cancelled) > 0 {
		t.Errorf("another topic: %d %s", r.Code, r.Remark)
	}
}
