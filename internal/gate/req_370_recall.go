package gate

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

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
		g.refuse(p, h, &refusal{codec.RespIllegalOperation, "recall failed, topic not match"})
		return remoting.Taken
	}
	r := &recall{g: g, p: p, h: h, key: handle.UniqKey, frame: append([]byte(nil), frame...)}
	if !g.checks.submit(len(frame), func() { r.run(handle) }) {
		g.refuse(p, h, &refusal{codec.RespSystemBusy, "[PC_SYNCHRONIZED]too many requests wait in the proxy, start flow control for a while"})
	}
	return remoting.Taken
}

// recall is one that is being decided. The store may hold a message more than once: a client that waited too long for an answer has
// sent it again, with the same UNIQ_KEY.
type recall struct {
	g     *Gate
	p     remoting.Peer
	h     codec.Head
	key   string
	frame []byte

	open atomic.Int32 // cancels that are not answered, and one until all have begun

	mu           sync.Mutex
	found, fired bool  // some are cancelled; some were sent
	err          error // of the first cancel that failed
}

const (
	// nearby is how far in numbers of the store, and nearbyMs how far in due times, a repeated send may be from the one that was
	// answered. What is further away has the key because an application sends one message object again and again.
	nearby   = 1 << 20
	nearbyMs = 60_000
	// mostCopies is how many messages with the key are looked at.
	mostCopies = 1000
)

// run cancels all copies of the message. It looks for it by its place, or by its key alone if the handle is of another store: it may
// have been moved here.
func (r *recall) run(handle codec.Recall) {
	defer func() {
		if cause := recover(); cause != nil {
			r.g.panicked(r.p, r.h, cause)
		}
	}()
	store := r.g.o.Store
	copies := []timer.Row{}
	q := timer.Search{Topic: handle.Topic, Key: handle.UniqKey, Limit: mostCopies}
	if handle.Store == store.Identity() {
		lsn := timer.LSN(handle.LSN)
		copies = append(copies, timer.Row{Due: handle.DueMs, LSN: lsn})
		q.First, q.Last = lsn-min(lsn, nearby), lsn+min(nearby, math.MaxUint64-lsn)
	}
	rows, err := store.Find(q)
	if err != nil {
		r.g.o.Log.Warn("a recall cannot look for copies of its message", "topic", handle.Topic, "key", handle.UniqKey, "err", err)
		if len(copies) == 0 {
			r.err = err
		}
	}
	for _, row := range rows {
		switch {
		case row.Key != handle.UniqKey || row.Due < handle.DueMs-nearbyMs || row.Due > handle.DueMs+nearbyMs:
		case len(copies) > 0 && row.LSN == copies[0].LSN && row.Due == copies[0].Due:
		case row.State == timer.StateSending, row.State == timer.StateSettled:
			r.fired = true
		default:
			copies = append(copies, row)
		}
	}
	r.open.Store(int32(len(copies)) + 1)
	for _, c := range copies {
		store.Cancel(c.Due, c.LSN, r.note)
	}
	r.end()
}

// note takes what became of one copy.
func (r *recall) note(out timer.Outcome, err error) {
	r.mu.Lock()
	switch {
	case err != nil && r.err == nil:
		r.err = err
	case out == timer.Fired:
		r.fired = true
	case out == timer.Cancelled, out == timer.CancelledBefore:
		r.found = true
	}
	r.mu.Unlock()
	r.end()
}

// end answers when all is known. A message that was recalled before gets 0 again, as from a broker.
func (r *recall) end() {
	if r.open.Add(-1) > 0 {
		return
	}
	switch {
	case errors.Is(r.err, timer.ErrBusy):
		r.g.refuse(r.p, r.h, storeRefusal(r.err))
	case r.err != nil:
		r.refuse(codec.RespServiceNotAvailable, "service not available now: the proxy's store could not note the recall, ask again")
	case r.fired:
		r.refuse(codec.RespIllegalOperation, "recall failed, the message is being delivered or was delivered")
	case r.found:
		r.g.recalled.Add(1)
		r.succeed()
	default:
		r.p.Relay(r.frame)
	}
}

func (r *recall) refuse(code int32, remark string) {
	r.g.refuse(r.p, r.h, &refusal{code, remark})
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
