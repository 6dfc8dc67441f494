package gate

import (
	"errors"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/remoting"
	"github.com/delaygate/delaygate/timer"
)

// handleRecall takes a held message back (RECALL_MESSAGE, 370). A broker only notes that it wants to delete the message and
// answers 0 whatever becomes of that; here 0 means that the message does not come. What the handle of a broker names is the
// broker's, and so is a message that the store never held.
func (g *Gate) handleRecall(p remoting.Peer, h codec.Head, frame []byte) remoting.Verdict {
	c, err := codec.Decode(frame)
	if err != nil {
		return remoting.Pass
	}
	text, _ := c.Fields.Get("recallHandle")
	handle, err := codec.ParseRecallHandle(text)
	if err != nil || !handle.Own {
		return remoting.Pass
	}
	if topic, _ := c.Fields.Get("topic"); topic != handle.Topic {
		g.refused.Add(1)
		g.answer(p, h, &refusal{codec.RespIllegalOperation, "recall failed, topic not match"})
		return remoting.Taken
	}
	r := &recall{g: g, p: p, h: h, key: handle.UniqKey, frame: append([]byte(nil), frame...)}
	if !g.checks.submit(len(frame), func() { r.run(handle) }) {
		g.refused.Add(1)
		g.answer(p, h, &refusal{codec.RespSystemBusy, "[PC_SYNCHRONIZED]too many requests wait in the proxy, start flow control for a while"})
	}
	return remoting.Taken
}

// recall is one that is being decided.
type recall struct {
	g     *Gate
	p     remoting.Peer
	h     codec.Head
	key   string
	frame []byte
}

// run looks for the message by its place, or by its key if the handle is of another store: it may have been moved here.
func (r *recall) run(handle codec.Recall) {
	store := r.g.o.Store
	if handle.Store == store.Identity() {
		store.Cancel(handle.DueMs, timer.LSN(handle.LSN), r.end)
		return
	}
	if several := store.CancelByKey(handle.Topic, handle.UniqKey, r.end); len(several) > 0 {
		r.refuse(codec.RespIllegalOperation, "recall failed, several messages with this key are waiting")
	}
}

func (r *recall) refuse(code int32, remark string) {
	r.g.refused.Add(1)
	r.g.answer(r.p, r.h, &refusal{code, remark})
}

// end answers. A message that was recalled before gets 0 again, as from a broker.
func (r *recall) end(out timer.Outcome, err error) {
	switch {
	case errors.Is(err, timer.ErrBusy):
		r.refuse(codec.RespSystemBusy, "[PC_SYNCHRONIZED]the proxy's store is busy, start flow control for a while")
	case err != nil:
		r.refuse(codec.RespServiceNotAvailable, "service not available now: the proxy's store could not note the recall, ask again")
	case out == timer.Fired:
		r.refuse(codec.RespIllegalOperation, "recall failed, the message is being delivered or was delivered")
	case out == timer.Unknown:
		r.p.Relay(r.frame)
	default:
		r.g.recalled.Add(1)
		r.succeed()
	}
}

// succeed answers with RecallMessageResponseHeader.
func (r *recall) succeed() {
	if r.h.IsOneway() {
		return
	}
	c := codec.NewReply(r.h, codec.RespSuccess, "")
	c.Fields = codec.Fields{{Name: "msgId", Value: r.key}}
	r.p.Reply(r.g.encode(nil, c))
}
