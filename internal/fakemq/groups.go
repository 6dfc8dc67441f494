package fakemq

import (
	"maps"
	"slices"

	"github.com/delaygate/delaygate/codec"
)

// GroupConfig is a consumer group's configuration on one broker; JSON names are RocketMQ's
// (SubscriptionGroupConfig).
type GroupConfig struct {
	Name             string `json:"groupName"`
	ConsumeEnable    bool   `json:"consumeEnable"`
	BroadcastEnable  bool   `json:"consumeBroadcastEnable"`
	RetryQueues      int32  `json:"retryQueueNums"`
	RetryMaxTimes    int32  `json:"retryMaxTimes"`
	NotifyIDsChanged bool   `json:"notifyConsumerIdsChangedEnable"`
}

func defaultGroup(name string) GroupConfig {
	return GroupConfig{
		Name: name, ConsumeEnable: true, BroadcastEnable: true, RetryQueues: 1, RetryMaxTimes: 16, NotifyIDsChanged: true,
	}
}

// CreateGroup creates a consumer group and its retry topic. Of c only Name, RetryQueues and RetryMaxTimes
// are looked at, the latter two if they are not zero.
func (b *Broker) CreateGroup(c GroupConfig) {
	config := defaultGroup(c.Name)
	setIf(&config.RetryQueues, c.RetryQueues)
	setIf(&config.RetryMaxTimes, c.RetryMaxTimes)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.configs[c.Name] = config
	b.ensureRetryTopic(config)
}

func setIf(field *int32, value int32) {
	if value != 0 {
		*field = value
	}
}

// groupConfig finds a group's configuration, or creates it (autoCreateSubscriptionGroup). b.mu is held.
func (b *Broker) groupConfig(name string) GroupConfig {
	config, ok := b.configs[name]
	if !ok {
		config = defaultGroup(name)
		b.configs[name] = config
	}
	return config
}

// ensureRetryTopic creates the topic that a group's retries come back through, unless it is there. b.mu is
// held.
func (b *Broker) ensureRetryTopic(config GroupConfig) *topic {
	name := retryPrefix + config.Name
	if t, ok := b.topics[name]; ok {
		return t
	}
	n := config.RetryQueues
	return b.setTopic(TopicConfig{Name: name, ReadQueues: n, WriteQueues: n, Perm: permRead | permWrite})
}

func (b *Broker) ensureDLQ(group string) {
	name := dlqPrefix + group
	if _, ok := b.topics[name]; !ok {
		b.setTopic(TopicConfig{Name: name, ReadQueues: 1, WriteQueues: 1, Perm: permRead | permWrite})
	}
}

// group is a consumer group as its members' heartbeats describe it.
type group struct {
	members       map[*conn]string // client id
	subscriptions map[string]subscription
}

type subscription struct {
	version    int64
	kind       string // expressionType
	expression string
	filter     tagFilter
}

// register takes one heartbeat of a member; true if the group has changed. b.mu is held.
func (b *Broker) register(name string, c *conn, clientID string, subs map[string]subscription) bool {
	g, ok := b.groups[name]
	if !ok {
		g = &group{members: make(map[*conn]string), subscriptions: make(map[string]subscription)}
		b.groups[name] = g
	}
	known, member := g.members[c]
	g.members[c] = clientID
	changed := !member || known != clientID
	for topic, sub := range subs {
		old, ok := g.subscriptions[topic]
		if ok && old.version >= sub.version {
			continue
		}
		g.subscriptions[topic] = sub
		changed = changed || !ok || old.expression != sub.expression
	}
	for topic := range g.subscriptions {
		if _, ok := subs[topic]; !ok {
			delete(g.subscriptions, topic)
			changed = true
		}
	}
	return changed
}

// removeMember takes a connection out of a group and tells the others. b.mu is held.
func (b *Broker) removeMember(name string, c *conn) {
	g, ok := b.groups[name]
	if !ok {
		return
	}
	if _, ok := g.members[c]; !ok {
		return
	}
	delete(g.members, c)
	if len(g.members) == 0 {
		delete(b.groups, name)
		return
	}
	b.notifyMembers(name, g)
}

// leave forgets a connection that has ended.
func (b *Broker) leave(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range slices.Collect(maps.Keys(b.groups)) {
		b.removeMember(name, c)
	}
}

// notifyMembers sends NOTIFY_CONSUMER_IDS_CHANGED (40), one-way, to every member. b.mu is held.
func (b *Broker) notifyMembers(name string, g *group) {
	if !b.groupConfig(name).NotifyIDsChanged {
		return
	}
	for c := range g.members {
		b.notifySeq++
		c.sendCommand(&codec.Command{
			Serialize: codec.JSON, Code: codec.ReqNotifyConsumerIDsChanged, Language: codec.LangJava, Version: b.opts.Version,
			Opaque: b.notifySeq, Flag: codec.FlagOneway,
			Fields: codec.Fields{{Name: "consumerGroup", Value: name}},
		})
	}
}

// clients lists the client ids of a group, sorted. b.mu is held.
func (b *Broker) clients(name string) []string {
	g, ok := b.groups[name]
	if !ok {
		return nil
	}
	return slices.Sorted(maps.Values(g.members))
}
