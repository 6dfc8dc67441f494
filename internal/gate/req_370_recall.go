package gate

import (
	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/remoting"
)

// handleRecall keeps RECALL_MESSAGE (370) for a message that is held here from the broker: it would answer 0
// for a message that it does not know, and the message would come all the same. What the handle of a broker
// names is the broker's.
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
	g.refused.Add(1)
	g.answer(p, h, &refusal{codec.RespNoPermission, "recall failed, operation is forbidden: the proxy holds this message and does not recall messages"})
	return remoting.Taken
}
