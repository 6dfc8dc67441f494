package gate

import (
	"errors"
	"net/netip"
	"strconv"
	"sync/atomic"

	"github.com/valyala/bytebufferpool"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/remoting"
	"github.com/delaygate/delaygate/timer"
)

// noTopicName is the default topic of held messages: no topic of this name inherits.
const noTopicName = "delaygate_never_create"

// idMark is set in the offset of the message ids given out here, which real offsets never reach.
const idMark = 1 << 62

var frames bytebufferpool.Pool // held frames while they are encoded

// hold puts an accepted send into the store; the reply leaves when it is durable. It returns why that was not
// possible at once.
func (g *Gate) hold(s *send, d decision, settings upstream.Settings, topic upstream.Topic) *refusal {
	if d.level > 0 {
		delay, _ := g.tables.table(settings.MessageDelayLevel).Delay(d.level)
		d.due = s.now.UnixMilli() + delay.Milliseconds()
	}
	queue := s.header.QueueID
	if queue < 0 {
		queue = g.o.Pick(topic.WriteQueues)
	}
	props, key := g.heldProperties(s, d, settings)
	if len(props)+propertiesRoom > maxProperties {
		return illegalSize(settings)
	}
	buf := frames.Get()
	defer frames.Put(buf)
	var err error
	if buf.B, err = heldFrame(buf.B[:0], s, queue, props); err != nil {
		return illegalSize(settings)
	}
	keys, _ := s.props.Get(codec.PropKeys)
	return g.put(s, queue, &timer.Entry{
		Flow: timer.Flow{Broker: s.broker.Name, Topic: s.header.Topic},
		Lane: uint16(queue),
		Due:  d.due,
		Key:  key,
		Keys: keys,
		Body: buf.B,
	})
}

// heldProperties returns the properties of a held message, and its UNIQ_KEY.
func (g *Gate) heldProperties(s *send, d decision, settings upstream.Settings) (text, key string) {
	p := s.props
	p.Del(codec.PropDelay, codec.PropTimerRollTimes, codec.PropTimerEnqueueMs, codec.PropTimerDequeueMs,
		codec.PropRealTopic, codec.PropRealQueueID)
	if d.level > 0 {
		p.Del(codec.PropTimerDeliverMs, codec.PropTimerDelayMs, codec.PropTimerDelaySec)
	} else {
		p.Set(codec.PropTimerOutMs, strconv.FormatInt(timerOut(d.due, settings.TimerPrecisionMs), 10))
	}
	if isTrue(p, codec.PropTransPrepared) {
		p.Del(codec.PropTransPrepared) // without DELAY the broker would take the retry for a half message
	}
	key, ok := p.Get(codec.PropUniqKey)
	if !ok {
		key = g.o.IDs.Next(s.now)
		p.Set(codec.PropUniqKey, key)
	}
	p.Set(codec.PropBornHost, s.peer.Remote().Addr().Unmap().WithZone("").String())
	return p.String(), key
}

// heldFrame appends the frame that will be delivered.
func heldFrame(dst []byte, s *send, queue int32, props string) ([]byte, error) {
	h := s.header
	h.DefaultTopic = noTopicName
	h.QueueID = queue
	h.Properties = props
	h.Batch = false
	if !isStatic(&h) {
		h.BrokerName = s.broker.Name
	}
	h.Extra.Del("AccessKey")
	h.Extra.Del("Signature")
	h.Extra.Del("SecurityToken")
	c := codec.Command{
		Serialize: codec.Binary, Code: codec.ReqSendMessageV2, Language: s.head.Language, Version: s.head.Version,
		Fields: h.V2(), Body: s.body,
	}
	return c.Append(dst)
}

// held is a message on its way to the disk. Its number is known when Put returns and its fate when done is called;
// whichever comes last answers.
type held struct {
	g     *Gate
	s     sender
	open  atomic.Int32
	reply *bytebufferpool.ByteBuffer // nil for a one-way request
	err   error
}

// sender is what an answer needs of a request.
type sender struct {
	peer remoting.Peer
	head codec.Head
}

var replies bytebufferpool.Pool // encoded replies that wait for the disk

func (g *Gate) put(s *send, queue int32, e *timer.Entry) *refusal {
	m := &held{g: g, s: sender{s.peer, s.head}}
	m.open.Store(2)
	lsn, err := g.o.Store.Put(e, func(err error) {
		m.err = err
		m.end()
	})
	if err != nil {
		g.unstored.Add(1)
		return storeRefusal(err)
	}
	if !s.head.IsOneway() {
		m.reply = replies.Get()
		m.reply.B = g.sendReply(m.reply.B[:0], s, queue, e, lsn)
	}
	m.end()
	return nil
}

func (m *held) end() {
	if m.open.Add(-1) > 0 {
		return
	}
	g := m.g
	switch {
	case m.err != nil:
		g.unstored.Add(1)
		g.answer(m.s.peer, m.s.head, storeRefusal(m.err))
	default:
		g.held.Add(1)
		if m.reply != nil {
			m.s.peer.Reply(m.reply.B)
		}
	}
	if m.reply != nil {
		replies.Put(m.reply)
	}
}

// storeRefusal is the answer when a message cannot be stored.
func storeRefusal(err error) *refusal {
	switch {
	case errors.Is(err, timer.ErrBusy):
		return &refusal{codec.RespSystemBusy, "[PC_SYNCHRONIZED]the proxy's store is busy, start flow control for a while"}
	case errors.Is(err, timer.ErrTooLarge):
		return &refusal{codec.RespMessageIllegal, "the message is illegal, it is larger than the proxy's store can hold"}
	case errors.Is(err, timer.ErrFull):
		return &refusal{codec.RespServiceNotAvailable, "service not available now: the disk of the proxy's store has no room for this message"}
	case errors.Is(err, timer.ErrClosed):
		return &refusal{codec.RespServiceNotAvailable, "service not available now: the proxy is shutting down"}
	default:
		return &refusal{codec.RespServiceNotAvailable, "service not available now: the disk of the proxy's store failed"}
	}
}

// sendReply appends the reply to a held send (SendMessageResponseHeader).
func (g *Gate) sendReply(dst []byte, s *send, queue int32, e *timer.Entry, lsn timer.LSN) []byte {
	c := codec.NewReply(s.head, codec.RespSuccess, "")
	local := netip.AddrPortFrom(s.peer.Local().Addr().Unmap().WithZone(""), uint16(s.peer.Port()))
	c.Fields = append(make(codec.Fields, 0, 7),
		codec.Field{Name: "msgId", Value: string(codec.AppendOffsetID(nil, local, int64(lsn)|idMark))},
		codec.Field{Name: "queueId", Value: strconv.Itoa(int(queue))},
		codec.Field{Name: "queueOffset", Value: strconv.FormatInt(int64(lsn), 10)},
		codec.Field{Name: "transactionId", Value: e.Key},
	)
	if handle := g.recallHandle(s, e, lsn); handle != "" {
		c.Fields = append(c.Fields, codec.Field{Name: "recallHandle", Value: handle})
	}
	c.Fields = append(c.Fields, traceFields...)
	return g.encode(dst, c)
}

// recallHandle: brokers give none for retries.
func (g *Gate) recallHandle(s *send, e *timer.Entry, lsn timer.LSN) string {
	if isRetryTopic(s.header.Topic) {
		return ""
	}
	return codec.RecallHandle(s.header.Topic, s.broker.Name, e.Due, e.Key, uint64(lsn), g.o.Store.Identity())
}
