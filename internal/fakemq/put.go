package fakemq

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"

	"github.com/delaygate/delaygate/codec"
)

const (
	maxProperties = math.MaxInt16 // bytes; the stored form has a 16-bit length
	sysFlagBornV6 = 0x10
	sysFlagHostV6 = 0x20
)

// refusal is why a message was not stored.
type refusal struct {
	code   int32
	remark string
}

func refusef(code int32, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// put stores m, or holds it when its properties ask for a delay. The record is the stored message, or its
// place in the topic of held ones, as in a broker. b.mu is held.
func (b *Broker) put(m codec.StoredMessage) (*record, *refusal) {
	if len(m.Properties) > maxProperties || len(m.Body) > b.opts.MaxMessageSize {
		return nil, refusef(codec.RespMessageIllegal,
			"the message is illegal, maybe msg body or properties length not matched. msg body length limit %dB, msg properties length limit 32KB.", b.opts.MaxMessageSize)
	}
	props := codec.ParseProperties(m.Properties)
	if level, ok := props.Get(codec.PropDelay); ok {
		n, err := strconv.ParseInt(level, 10, 32)
		if err != nil {
			return nil, refusef(codec.RespSystemError, "java.lang.NumberFormatException: For input string: %q", level)
		}
		if n > 0 {
			return b.holdLevel(m, props, int(n)), nil
		}
	}
	if !b.is5() {
		return b.store(m), nil
	}
	due, timed, bad := b.timerDue(props)
	switch {
	case bad != nil:
		return nil, bad
	case timed:
		return b.holdTimer(m, props, due), nil
	default:
		return b.store(m), nil
	}
}

// holdLevel holds m for a delay level, clamped to the table (RocketMQ HookUtils.transformDelayLevelMessage).
func (b *Broker) holdLevel(m codec.StoredMessage, props codec.Properties, level int) *record {
	delay, level := b.levels.Delay(level)
	props.Set(codec.PropDelay, strconv.Itoa(level))
	props.Del(codec.PropTimerDeliverMs, codec.PropTimerDelayMs, codec.PropTimerDelaySec)
	return b.hold(m, props, scheduleTopic, int32(level-1), b.nowMs()+delay.Milliseconds())
}

// holdTimer holds m until due and notes the multiple of timerPrecisionMs at which a broker would fire it.
func (b *Broker) holdTimer(m codec.StoredMessage, props codec.Properties, due int64) *record {
	precision := b.opts.TimerPrecision.Milliseconds()
	out := due / precision * precision
	if out == due {
		out -= precision
	}
	props.Set(codec.PropTimerOutMs, strconv.FormatInt(out, 10))
	return b.hold(m, props, timerTopic, 0, due)
}

// hold stores m in a topic of held messages and schedules its return.
func (b *Broker) hold(m codec.StoredMessage, props codec.Properties, topic string, queueID int32, due int64) *record {
	props.Set(codec.PropRealTopic, m.Topic)
	props.Set(codec.PropRealQueueID, strconv.Itoa(int(m.QueueID)))
	m.Properties = props.String()
	b.schedule(due, m)
	m.Topic, m.QueueID = topic, queueID
	return b.store(m)
}

// timerDue reads the TIMER_* properties in a broker's order: TIMER_DELAY_SEC, TIMER_DELAY_MS,
// TIMER_DELIVER_MS; none of them counts once TIMER_OUT_MS is there. A due time that has passed is no timer.
func (b *Broker) timerDue(props codec.Properties) (due int64, timed bool, bad *refusal) {
	if _, fired := props.Get(codec.PropTimerOutMs); fired {
		return 0, false, nil
	}
	due, found, err := b.timerProperty(props)
	if !found {
		return 0, false, nil
	}
	now := b.nowMs()
	_, deletes := props.Get(codec.PropTimerDelUniqKey)
	if err != nil || due-now > b.opts.TimerMaxDelay.Milliseconds() || due <= now && deletes {
		return 0, false, refusef(codec.RespMessageIllegal,
			"timer message illegal, the delay time should not be bigger than the max delay %dms; or if set del msg, the delay time should be bigger than the current time", b.opts.TimerMaxDelay.Milliseconds())
	}
	return due, due > now, nil
}

func (b *Broker) timerProperty(props codec.Properties) (due int64, found bool, err error) {
	if v, ok := props.Get(codec.PropTimerDelaySec); ok {
		n, err := strconv.ParseInt(v, 10, 64)
		return b.nowMs() + n*1000, true, err
	}
	if v, ok := props.Get(codec.PropTimerDelayMs); ok {
		n, err := strconv.ParseInt(v, 10, 64)
		return b.nowMs() + n, true, err
	}
	if v, ok := props.Get(codec.PropTimerDeliverMs); ok {
		n, err := strconv.ParseInt(v, 10, 64)
		return n, true, err
	}
	return 0, false, nil
}

// store appends m to its queue and wakes who waits for it; topic and queue are created if they are gone.
// b.mu is held.
func (b *Broker) store(m codec.StoredMessage) *record {
	t, ok := b.topics[m.Topic]
	if !ok {
		t = b.setTopic(TopicConfig{Name: m.Topic, ReadQueues: 1, WriteQueues: 1, Perm: permRead | permWrite})
	}
	q := t.queue(m.QueueID)
	m.StoreTimestamp, m.StoreHost = b.nowMs(), b.addr
	m.SysFlag = flagFamilies(m.SysFlag, m.BornHost.Addr(), m.StoreHost.Addr())
	rec := b.log.append(q, &m)
	b.wakePulls(q, rec)
	b.cluster.arrivals.raise()
	return rec
}

// flagFamilies says in sysFlag which of the two hosts is stored as an IPv6 address.
func flagFamilies(sysFlag int32, born, store netip.Addr) int32 {
	sysFlag &^= sysFlagBornV6 | sysFlagHostV6
	if born.Is6() {
		sysFlag |= sysFlagBornV6
	}
	if store.Is6() {
		sysFlag |= sysFlagHostV6
	}
	return sysFlag
}
