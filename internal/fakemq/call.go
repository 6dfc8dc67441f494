package fakemq

import (
	"fmt"
	"strconv"

	"github.com/delaygate/delaygate/codec"
)

// call is a request on its way through a server.
type call struct {
	*codec.Command
	conn   *conn
	action Action
}

// receive counts a request, asks the hooks and does what they say.
func (e *endpoint) receive(c *conn, cmd *codec.Command) {
	if cmd.Flag&codec.FlagResponse != 0 {
		return // a client's answer to a notification
	}
	seq := e.count(cmd.Code)
	a := e.cluster.action(&Request{Command: cmd, Broker: e.broker, Remote: c.remote, Conn: c.id, Seq: seq})
	r := &call{Command: cmd, conn: c, action: a}
	switch a.kind {
	case doDrop:
	case doClose:
		c.close()
	case doAnswer:
		r.answer(r.refuse(a.code, "%s", a.remark))
	case doReply:
		reply := *a.reply
		r.answer(&reply)
	case doDelay:
		e.wg.Go(func() {
			if c.sleep(a.wait) {
				e.execute(r)
			}
		})
	case doPauseReading:
		c.pauseReading(a.wait)
		e.execute(r)
	default:
		e.execute(r)
	}
}

func (e *endpoint) execute(r *call) {
	if reply := e.serve(r); reply != nil {
		r.answer(reply)
	}
}

// answer sends the reply of r, unless the request was one-way; from any goroutine, at most once.
func (r *call) answer(reply *codec.Command) {
	c := r.conn
	reply.Serialize, reply.Opaque = r.Serialize, r.Opaque
	reply.Flag |= codec.FlagResponse
	reply.Language, reply.Version = codec.LangJava, c.e.version
	if r.Flag&codec.FlagOneway != 0 {
		return
	}
	switch r.action.kind {
	case doDropReply:
	case doCutReply:
		r.cut(reply)
	case doDelayReply:
		c.e.wg.Go(func() {
			if c.sleep(r.action.wait) {
				c.sendCommand(reply)
			}
		})
	case doWrongOpaque:
		reply.Opaque ^= 1 << 30
		c.sendCommand(reply)
	default:
		c.sendCommand(reply)
	}
}

func (r *call) cut(reply *codec.Command) {
	b, err := reply.Append(nil)
	if err != nil {
		r.conn.close()
		return
	}
	r.conn.send(b[:len(b)/2], true)
}

// refuse makes a reply that carries a code and a remark.
func (r *call) refuse(code int32, format string, args ...any) *codec.Command {
	return &codec.Command{Code: code, Remark: fmt.Sprintf(format, args...)}
}

// success makes a reply of SUCCESS with these fields.
func (r *call) success(fields ...codec.Field) *codec.Command {
	return &codec.Command{Code: codec.RespSuccess, Fields: fields}
}

func (r *call) field(name string) string {
	v, _ := r.Fields.Get(name)
	return v
}

// int reads a number field; absent or malformed numbers are fallback.
func (r *call) int(name string, fallback int64) int64 {
	n, err := strconv.ParseInt(r.field(name), 10, 64)
	if err != nil {
		return fallback
	}
	return n
}

func intField(name string, n int64) codec.Field {
	return codec.Field{Name: name, Value: strconv.FormatInt(n, 10)}
}
