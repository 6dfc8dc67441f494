package gate

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Bits of a send's sysFlag (MessageSysFlag).
const (
	flagTransaction = 0xC
	flagInnerBatch  = 0x80
)

// action is what becomes of a send.
type action byte

const (
	relay action = iota
	hold
	refuse
)

// decision is the outcome of the delay rules.
type decision struct {
	action  action
	level   int      // > 0: held for that level of the broker's table
	due     int64    // when level is 0: held until then, Unix ms
	refusal *refusal // for refuse
}

func refused(code int32, remark string) decision {
	return decision{action: refuse, refusal: &refusal{code, remark}}
}

// decide applies the delay rules to a send.
func (g *Gate) decide(s *send) decision {
	h := &s.header
	level, levelErr := delayLevel(s.props)
	switch {
	case h.Batch || h.SysFlag&(flagTransaction|flagInnerBatch) != 0:
		return decision{}
	case isTrue(s.props, codec.PropTransPrepared) && !isOldRetry(h, level):
		return decision{}
	case h.Topic == wheelTopic:
		return refused(codec.RespNoPermission, "Sending message to topic["+h.Topic+"] is forbidden.")
	case strings.HasPrefix(h.Topic, deadPrefix) || isSystemTopic(h.Topic, s.broker):
		return decision{}
	case isRetryTopic(h.Topic) && isLastRetry(h, s.head.Version):
		return decision{}
	case s.broker.Name != "" && s.broker.ID != 0:
		return decision{}
	case levelErr != nil:
		return refused(codec.RespSystemError, levelErr.Error())
	case level > 0:
		return decision{action: hold, level: level}
	}
	return g.decideTimer(s)
}

func isTrue(p codec.Properties, name string) bool {
	v, _ := p.Get(name)
	return strings.EqualFold(v, "true")
}

// isOldRetry: a client before 4.6.1 leaves TRAN_MSG on a message that it sends back for another try
// (SendMessageProcessor.sendMessage).
func isOldRetry(h *codec.SendHeader, level int) bool { return h.ReconsumeTimes > 0 && level > 0 }

// isLastRetry: the broker puts such a message into the dead-letter queue, or only the broker can tell
// (SendMessageProcessor.handleRetryAndDLQ).
func isLastRetry(h *codec.SendHeader, version int32) bool {
	return h.MaxReconsumeTimes < 0 || version < version349 || max(h.ReconsumeTimes, 0) >= h.MaxReconsumeTimes
}

// delayLevel reads DELAY; 0 when there is none. Values below 0 are no level either.
func delayLevel(p codec.Properties) (int, error) {
	text, ok := p.Get(codec.PropDelay)
	if !ok {
		return 0, nil
	}
	n, ok := parseInt(text)
	if !ok {
		return 0, errors.New(`java.lang.NumberFormatException: For input string: "` + text + `"`)
	}
	return int(max(n, 0)), nil
}

// decideTimer applies the rules for TIMER_*.
func (g *Gate) decideTimer(s *send) decision {
	if _, fired := s.props.Get(codec.PropTimerOutMs); fired {
		return decision{}
	}
	now := s.now.UnixMilli()
	due, ok := now, true
	if v, is := s.props.Get(codec.PropTimerDelaySec); is {
		due, ok = after(now, v, time.Second.Milliseconds())
	} else if v, is := s.props.Get(codec.PropTimerDelayMs); is {
		due, ok = after(now, v, 1)
	} else if v, is := s.props.Get(codec.PropTimerDeliverMs); is {
		due, ok = parseLong(v)
	} else {
		return decision{}
	}
	_, removes := s.props.Get(codec.PropTimerDelUniqKey)
	limit := g.o.MaxDelay.Milliseconds()
	switch {
	case !ok, due > now && due-now > limit, due <= now && removes:
		return refused(codec.RespMessageIllegal, "timer message illegal, the delay time should not be bigger than the max delay "+
			strconv.FormatInt(limit, 10)+"ms; or if set del msg, the delay time should be bigger than the current time")
	case due <= now:
		return decision{}
	case removes:
		return refused(codec.RespMessageIllegal, "timer message illegal, the proxy holds delayed messages itself and does not remove them by "+codec.PropTimerDelUniqKey)
	}
	return decision{action: hold, due: due}
}

// after returns the time that lies v units of unit ms after now; false when v is no number or the sum
// overflows. Negative delays of any size give now.
func after(now int64, v string, unit int64) (int64, bool) {
	n, ok := parseLong(v)
	switch {
	case !ok || n > (math.MaxInt64-now)/unit:
		return 0, false
	case n <= 0:
		return now, true
	}
	return now + n*unit, true
}

// timerOut is the TIMER_OUT_MS that a 5.x broker gives a message (HookUtils.transformTimerMessage): the due time
// on the broker's grid, one step earlier when it lies on it already.
func timerOut(due, precision int64) int64 {
	if precision <= 0 {
		precision = 1000
	}
	if due%precision == 0 {
		return due - precision
	}
	return due - due%precision
}
