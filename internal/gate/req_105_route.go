package gate

import (
	"bytes"
	"context"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/remoting"
)

// nameTimeout bounds a name-server request: clients wait 3 s for a route.
const nameTimeout = 2900 * time.Millisecond

// handleName answers GET_ROUTEINFO_BY_TOPIC (105) and all other requests to name servers, off the loop. A frame
// that cannot be read closes the connection, as at a name server.
func (g *Gate) handleName(p remoting.Peer, h codec.Head, frame []byte) remoting.Verdict {
	c, err := codec.Decode(frame)
	if err != nil {
		g.o.Log.Warn("a request to the name servers cannot be read", "client", p.Remote(), "code", h.Code, "err", err)
		return remoting.Close
	}
	c.Body = bytes.Clone(c.Body)
	if !g.names.submit(len(frame), func() { g.answerName(p, h, c) }) && !h.IsOneway() {
		p.Reply(g.encode(nil, codec.NewReply(h, busy.code, busy.remark)))
	}
	return remoting.Taken
}

func (g *Gate) answerName(p remoting.Peer, h codec.Head, c *codec.Command) {
	defer func() {
		if cause := recover(); cause != nil {
			g.panicked(p, h, cause)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), nameTimeout)
	defer cancel()
	reply := g.o.Face.Answer(ctx, c, p.Local())
	g.remember(c, reply)
	if !h.IsOneway() {
		p.Reply(g.encode(nil, reply))
	}
}

// remember notes the topics of the routes that clients get: what they then address is still accepted when
// its broker goes away before the first delayed send, and name servers forget it.
func (g *Gate) remember(c, reply *codec.Command) {
	topic, named := c.Fields.Get("topic")
	if c.Code != codec.ReqGetRouteInfoByTopic || reply.Code != codec.RespSuccess || !named {
		return
	}
	route, err := codec.ParseRoute(reply.Body)
	if err != nil {
		return
	}
	for _, q := range route.Queues {
		g.memory.note(q.BrokerName, topic, upstream.Topic{
			Exists: true, Perm: q.Perm, ReadQueues: q.ReadQueueNums, WriteQueues: q.WriteQueueNums,
		})
	}
}
