package gate

import (
	"fmt"
	"runtime/debug"
	"strconv"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/remoting"
)

// refusal is why a request fails.
type refusal struct {
	code   int32
	remark string
}

// busy is the answer when too many requests wait for the upstream.
var busy = &refusal{codec.RespSystemBusy, "[REJECTREQUEST]the proxy is busy, start flow control for a while"}

// traceFields go with every reply to a send, good or bad (SendMessageProcessor.preSend). The region is the one that
// brokers have unless they are told another.
var traceFields = codec.Fields{
	{Name: codec.PropMsgRegion, Value: "DefaultRegion"},
	{Name: codec.PropTraceOn, Value: "true"},
}

// refuse answers a send or a recall with an error.
func (g *Gate) refuse(p remoting.Peer, h codec.Head, r *refusal) {
	g.refused.Add(1)
	g.answer(p, h, r)
}

// answer sends an error to a client that waits for an answer.
func (g *Gate) answer(p remoting.Peer, h codec.Head, r *refusal) {
	if h.IsOneway() {
		g.o.Log.Debug("a one-way request was refused, which nothing can tell its sender", "code", h.Code, "client", p.Remote(), "reason", r.remark)
		return
	}
	c := codec.NewReply(h, r.code, r.remark)
	c.Fields = traceFields
	p.Reply(g.encode(nil, c))
}

// encode appends a reply; one that cannot be encoded becomes an error that can.
func (g *Gate) encode(dst []byte, c *codec.Command) []byte {
	out, err := c.Append(dst)
	if err == nil {
		return out
	}
	g.o.Log.Error("a reply cannot be encoded", "code", c.Code, "err", err)
	failed := codec.Command{Serialize: c.Serialize, Code: codec.RespSystemError, Language: c.Language, Version: c.Version,
		Opaque: c.Opaque, Flag: c.Flag, Remark: "the reply cannot be encoded"}
	if out, err = failed.Append(dst); err != nil {
		return dst
	}
	return out
}

// unknown answers a request that a name server does not serve.
func (g *Gate) unknown(p remoting.Peer, h codec.Head) remoting.Verdict {
	if !h.IsOneway() {
		c := codec.NewReply(h, codec.RespNotSupported, " request type "+strconv.Itoa(int(h.Code))+" not supported")
		p.Reply(g.encode(nil, c))
	}
	return remoting.Taken
}

// panicked answers a request whose worker has panicked.
func (g *Gate) panicked(p remoting.Peer, h codec.Head, cause any) {
	g.o.Log.Error("a worker panicked", "code", h.Code, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if !h.IsOneway() {
		p.Reply(g.encode(nil, codec.NewReply(h, codec.RespSystemError, "the proxy failed at this request, its log says how")))
	}
}
