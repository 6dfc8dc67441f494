package remoting

import (
	"fmt"
	"log/slog"

	"github.com/panjf2000/gnet/v2"
)

// events are gnet's callbacks, each on the loop of its connection. The context of a gnet.Conn is its wire.
type events struct {
	gnet.BuiltinEventEngine
}

func (*events) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	w := c.Context().(*wire)
	return nil, w.s.opened(w, c)
}

func (*events) OnTraffic(c gnet.Conn) gnet.Action {
	w := c.Context().(*wire)
	p, _ := c.Next(-1) // all of it, every time: what is left unread would pile up in gnet without a limit
	return w.s.traffic(w, p)
}

func (*events) OnClose(c gnet.Conn, err error) gnet.Action {
	if w := c.Context().(*wire); w.conn == c { // else it came too late and was never used
		w.s.closing(w, err)
	}
	return gnet.None
}

// engineLog gives gnet's log lines to slog. What gnet warns of (an event that was under way when a wire
// was detached) is ordinary here.
type engineLog struct{ log *slog.Logger }

func (l engineLog) Debugf(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l engineLog) Infof(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l engineLog) Warnf(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l engineLog) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
func (l engineLog) Fatalf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }
