package fakemq

import (
	"net/netip"
	"slices"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Request is what a hook sees: one request before it is executed.
type Request struct {
	*codec.Command                // not to be changed
	Broker         string         // name of the broker that received it; "" at a name server
	Remote         netip.AddrPort // the client's end of the connection
	Conn           int64          // number of the connection, unique in the cluster
	Seq            int64          // how many requests of this code this broker or name server has received, this one included
}

// Action is what becomes of a request. The zero value executes it and answers.
type Action struct {
	kind   actionKind
	code   int32
	remark string
	reply  *codec.Command
	wait   time.Duration
}

type actionKind int

const (
	doPass actionKind = iota
	doAnswer
	doReply
	doDrop
	doDropReply
	doDelay
	doDelayReply
	doClose
	doCutReply
	doWrongOpaque
	doPauseReading
)

// Pass executes the request and answers, as if no hook were there; hooks installed earlier are asked.
func Pass() Action { return Action{} }

// Answer does not execute the request and answers with a code and a remark.
func Answer(code int32, remark string) Action {
	return Action{kind: doAnswer, code: code, remark: remark}
}

// Busy does not execute the request and answers SYSTEM_BUSY (2), as a broker does whose send queue is
// full.
func Busy() Action {
	return Answer(codec.RespSystemBusy, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while")
}

// Reply does not execute the request and answers with cmd; opaque, response flag and serialize type are
// made to fit the request.
func Reply(cmd *codec.Command) Action { return Action{kind: doReply, reply: cmd} }

// Drop neither executes the request nor answers.
func Drop() Action { return Action{kind: doDrop} }

// DropReply executes the request and does not answer.
func DropReply() Action { return Action{kind: doDropReply} }

// Delay executes the request after d and then answers; later requests of the connection overtake it.
func Delay(d time.Duration) Action { return Action{kind: doDelay, wait: d} }

// DelayReply executes the request at once and answers d later; other replies overtake it.
func DelayReply(d time.Duration) Action { return Action{kind: doDelayReply, wait: d} }

// Close closes the connection and does not execute the request.
func Close() Action { return Action{kind: doClose} }

// CutReply executes the request, writes the first half of the reply's frame and closes the connection.
func CutReply() Action { return Action{kind: doCutReply} }

// WrongOpaque executes the request and answers with an opaque that nobody asked with.
func WrongOpaque() Action { return Action{kind: doWrongOpaque} }

// PauseReading executes the request, answers, and reads nothing more from this connection for d.
func PauseReading(d time.Duration) Action { return Action{kind: doPauseReading, wait: d} }

// hook is a pointer so that it can be told from another one with the same function.
type hook struct {
	f func(*Request) Action
}

// Control installs a hook, which is asked before hooks installed earlier; the first Action that is not Pass
// is taken. Hooks run on the goroutine of the connection: while one blocks, that connection's later requests
// wait, and so does Close. The returned function removes the hook.
func (c *Cluster) Control(f func(*Request) Action) (remove func()) {
	h := &hook{f}
	c.hooksMu.Lock()
	defer c.hooksMu.Unlock()
	c.hooks = append([]*hook{h}, c.hooks...)
	return func() { c.removeHook(h) }
}

func (c *Cluster) removeHook(h *hook) {
	c.hooksMu.Lock()
	defer c.hooksMu.Unlock()
	if i := slices.Index(c.hooks, h); i >= 0 {
		c.hooks = slices.Delete(slices.Clone(c.hooks), i, i+1)
	}
}

func (c *Cluster) action(r *Request) Action {
	c.hooksMu.Lock()
	hooks := c.hooks
	c.hooksMu.Unlock()
	for _, h := range hooks {
		if a := h.f(r); a.kind != doPass {
			return a
		}
	}
	return Pass()
}

// Requests counts the requests of a code that all brokers and name servers have received, those included
// that a hook kept from being executed.
func (c *Cluster) Requests(code int32) int64 {
	var n int64
	for _, b := range c.brokers {
		n += b.Requests(code)
	}
	for _, s := range c.nameServers {
		n += s.Requests(code)
	}
	return n
}
