package remoting

import "github.com/delaygate/delaygate/codec"

// Remarks never name an upstream address: clients must not learn one.
const (
	remarkStopping    = "delaygate is shutting down; try another broker"
	remarkBusy        = "[OVERLOAD]delaygate buffers too much at the moment; try again later"
	remarkNoUpstream  = "delaygate does not serve this request on its name-server port"
	remarkUnreachable = "delaygate cannot reach the broker behind this port"
	remarkEnded       = "the broker behind this port has closed the connection"
)

// answer queues a reply of the proxy's own to a request; none to a one-way request or a response.
func (s *session) answer(h codec.Head, code int32, remark string) {
	if h.IsOneway() || h.IsResponse() {
		return
	}
	b, err := codec.NewReply(h, code, remark).Append(nil)
	if err != nil {
		s.log().Error("cannot encode a reply", "code", code, "err", err)
		return
	}
	s.replies.push(b)
}
