package gate

import (
	"bytes"
	"context"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/remoting"
)

const (
	// checkTimeout bounds the questions to the upstream that one send may raise: clients wait 3 s.
	checkTimeout = 2500 * time.Millisecond
	// settingsTimeout is the part of it for the broker's settings, which have defaults.
	settingsTimeout = 800 * time.Millisecond
)

// send is a send request on its way through the gate.
type send struct {
	peer   remoting.Peer
	head   codec.Head
	header codec.SendHeader
	props  codec.Properties
	body   []byte
	now    time.Time       // when it came: delays count from here
	broker upstream.Broker // zero while the broker is not known
}

// handleSend holds or refuses a send that a delay applies to, and passes every other one. A frame that cannot
// be read is passed too: the broker knows what to say.
func (g *Gate) handleSend(p remoting.Peer, h codec.Head, frame []byte) remoting.Verdict {
	s, ok := g.parseSend(p, h, frame)
	if !ok {
		return remoting.Pass
	}
	d := g.decide(s)
	switch d.action {
	case relay:
		return remoting.Pass
	case refuse:
		g.refuse(s.peer, s.head, d.refusal)
		return remoting.Taken
	}
	if s.broker.Name == "" {
		g.refuse(s.peer, s.head, &refusal{codec.RespServiceNotAvailable, "the proxy does not know yet which broker this address stands for, try again"})
		return remoting.Taken
	}
	settings, known := g.o.View.CachedSettings(s.broker)
	topic, fresh := g.o.View.CachedTopic(s.broker, s.header.Topic)
	if known && fresh {
		g.memory.note(s.broker.Name, s.header.Topic, topic)
		g.accept(s, d, settings, topic)
		return remoting.Taken
	}
	s.body = bytes.Clone(s.body)
	if !g.checks.submit(len(frame), func() { g.acceptSlowly(s, d) }) {
		g.refuse(s.peer, s.head, busy)
	}
	return remoting.Taken
}

func (g *Gate) parseSend(p remoting.Peer, h codec.Head, frame []byte) (*send, bool) {
	c, err := codec.Decode(frame)
	if err != nil {
		return nil, false
	}
	header, err := codec.ParseSendHeader(c)
	if err != nil {
		return nil, false
	}
	s := &send{peer: p, head: h, header: header, props: codec.ParseProperties(header.Properties), body: c.Body, now: g.o.Now()}
	s.broker, _ = g.o.View.ByAddr(p.Broker())
	return s, true
}

// accept holds a send whose topic and broker are known, or refuses it. It does not block.
func (g *Gate) accept(s *send, d decision, settings upstream.Settings, topic upstream.Topic) {
	r := checkBroker(s, settings)
	if r == nil {
		r = checkTopic(s, settings, topic)
	}
	if r == nil {
		r = g.hold(s, d, settings, topic)
	}
	if r != nil {
		g.refuse(s.peer, s.head, r)
	}
}

// acceptSlowly asks the upstream for what is not cached, and accepts or refuses. Workers only.
func (g *Gate) acceptSlowly(s *send, d decision) {
	defer func() {
		if p := recover(); p != nil {
			g.panicked(s.peer, s.head, p)
		}
	}()
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(checkTimeout))
	defer cancel()
	settings := g.settings(ctx, s.broker)
	r := checkBroker(s, settings)
	if r != nil {
		g.refuse(s.peer, s.head, r)
		return
	}
	topic, r := g.topic(ctx, s, settings)
	if r != nil {
		g.refuse(s.peer, s.head, r)
		return
	}
	g.accept(s, d, settings, topic)
}

// settings returns the last known settings of a broker, or the defaults.
func (g *Gate) settings(ctx context.Context, b upstream.Broker) upstream.Settings {
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	settings, err := g.o.View.Settings(ctx, b)
	if err != nil {
		g.o.Log.Warn("a broker's settings are not known, the defaults serve", "broker", b.Name, "err", err)
	}
	return settings
}
