package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
)

// Bits of a permission (PermName).
const (
	permInherit = 1
	permWrite   = 2
	permRead    = 4
)

const (
	// maxProperties is the most bytes of a message's properties (MessageDecoder, a 16-bit length).
	maxProperties = 32767
	// propertiesRoom is kept free for what the broker adds when the message is delivered.
	propertiesRoom = 256
)

// checkBroker makes the checks that need no topic, in the broker's order (AbstractSendMessageProcessor.msgCheck).
// A broker refuses writing without the permission for order topics alone; here it holds for all, so that nothing is
// accepted for a broker that is being emptied. The broker's name stands in the remark for its address.
func checkBroker(s *send, settings upstream.Settings) *refusal {
	if settings.BrokerPermission&permWrite == 0 {
		return &refusal{codec.RespNoPermission, "the broker[" + s.broker.Name + "] sending message is forbidden"}
	}
	return dialect{settings.Version}.illegalTopic(s.header.Topic)
}

// checkTopic makes the checks of a topic that exists.
func checkTopic(s *send, settings upstream.Settings, t upstream.Topic) *refusal {
	h := &s.header
	dia := dialect{settings.Version}
	switch queues := max(t.WriteQueues, t.ReadQueues); {
	case h.QueueID >= queues && !isStatic(h):
		return &refusal{dia.badParameter(), fmt.Sprintf(
			"request queueId[%d] is illegal, TopicConfig [topicName=%s, readQueueNums=%d, writeQueueNums=%d, perm=%s] Producer: %s",
			h.QueueID, h.Topic, t.ReadQueues, t.WriteQueues, permText(t.Perm), s.peer.Remote())}
	case t.Perm&permWrite == 0:
		return &refusal{codec.RespNoPermission, "the topic[" + h.Topic + "] on broker[" + s.broker.Name + "] sending message is forbidden"}
	case h.QueueID < 0 && t.WriteQueues <= 0:
		return &refusal{codec.RespSystemError, "the topic[" + h.Topic + "] on broker[" + s.broker.Name + "] has no queue to write to"}
	case len(s.body) > settings.MaxMessageSize, len(s.body) == 0 && dia.is5():
		return illegalSize(settings)
	}
	return nil
}

// isStatic: queue ids of a static topic count over all its brokers (MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX), and
// only the broker knows which of them are its own.
func isStatic(h *codec.SendHeader) bool { return strings.HasPrefix(h.BrokerName, "__syslo__") }

// permText is PermName.perm2String.
func permText(perm int32) string {
	text := []byte("---")
	for i, bit := range []int32{permRead, permWrite, permInherit} {
		if perm&bit != 0 {
			text[i] = "RWX"[i]
		}
	}
	return string(text)
}

func illegalSize(settings upstream.Settings) *refusal {
	return &refusal{codec.RespMessageIllegal, fmt.Sprintf(
		"the message is illegal, maybe msg body or properties length not matched. msg body length limit %dB, msg properties length limit 32KB.",
		settings.MaxMessageSize)}
}

// topic finds out about a send's topic, and creates it where the broker would.
func (g *Gate) topic(ctx context.Context, s *send, settings upstream.Settings) (upstream.Topic, *refusal) {
	name := s.header.Topic
	t, err := g.o.View.Topic(ctx, s.broker, name)
	if err == nil && t.Exists {
		g.memory.note(s.broker.Name, name, t)
		return t, nil
	}
	away := "no name server answers"
	if err == nil {
		if !g.isAway(ctx, s.broker) {
			g.memory.forget(s.broker.Name, name)
			return g.create(ctx, s, settings)
		}
		away = "broker[" + s.broker.Name + "] is away"
	}
	if remembered, ok := g.memory.get(s.broker.Name, name); ok {
		return remembered, nil
	}
	g.o.Log.Warn("a delayed send was refused: nothing is known about its topic", "topic", name, "broker", s.broker.Name, "why", away, "err", err)
	return t, &refusal{codec.RespServiceNotAvailable, "topic[" + name + "] cannot be checked while " + away + ", try again"}
}

// isAway: a broker that is registered shows in the route of the topic that has its name (TopicConfigManager,
// 4.x and 5.x).
func (g *Gate) isAway(ctx context.Context, b upstream.Broker) bool {
	t, err := g.o.View.Topic(ctx, b, b.Name)
	return err != nil || !t.Exists
}

// create makes a topic as a send makes it on the broker (TopicConfigManager.createTopicInSendMessageMethod):
// from the default topic that the send names, and for %RETRY% from nothing.
func (g *Gate) create(ctx context.Context, s *send, settings upstream.Settings) (upstream.Topic, *refusal) {
	h := &s.header
	queues, perm, ok := g.inherited(ctx, s, settings)
	switch {
	case ok:
	case isRetryTopic(h.Topic):
		queues, perm = 1, permRead|permWrite
	default:
		return upstream.Topic{}, dialect{settings.Version}.noTopic(h.Topic)
	}
	made := upstream.Topic{Exists: true, Perm: perm, ReadQueues: queues, WriteQueues: queues}
	if queues <= 0 {
		return made, nil // what the broker makes then takes no message
	}
	_, err, _ := g.creating.Do(s.broker.Addr+" "+h.Topic, func() (any, error) {
		return nil, g.o.View.CreateTopic(ctx, s.broker, h.Topic, queues, perm)
	})
	var refusedBy *upstream.ReplyError
	switch {
	case errors.As(err, &refusedBy):
		g.o.Log.Warn("a broker refused to create a topic for a delayed send", "topic", h.Topic, "broker", s.broker.Name, "err", err)
		return made, dialect{settings.Version}.noTopic(h.Topic)
	case err != nil:
		g.o.Log.Warn("a topic for a delayed send cannot be created", "topic", h.Topic, "broker", s.broker.Name, "err", err)
		return made, &refusal{codec.RespServiceNotAvailable, "topic[" + h.Topic + "] does not exist on broker[" + s.broker.Name +
			"] and cannot be created while the broker does not answer, try again"}
	}
	g.memory.note(s.broker.Name, h.Topic, made)
	return made, nil
}

// inherited returns queues and permission of a topic made from the send's default topic; false when that
// makes none.
func (g *Gate) inherited(ctx context.Context, s *send, settings upstream.Settings) (queues, perm int32, ok bool) {
	h := &s.header
	if h.DefaultTopic == autoCreate && !settings.AutoCreateTopic {
		return 0, 0, false
	}
	from, err := g.o.View.Topic(ctx, s.broker, h.DefaultTopic)
	if err != nil || !from.Exists || from.Perm&permInherit == 0 {
		return 0, 0, false
	}
	return min(h.DefaultTopicQueueNums, from.WriteQueues), from.Perm &^ permInherit, true
}
