package fakemq

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

const (
	permInherit int32 = 1
	permWrite   int32 = 2
	permRead    int32 = 4

	templateTopic = "TBW102" // new topics inherit from it
	scheduleTopic = "SCHEDULE_TOPIC_XXXX"
	timerTopic    = "rmq_sys_wheel_timer"
	halfTopic     = "RMQ_SYS_TRANS_HALF_TOPIC"
	retryPrefix   = "%RETRY%"
	dlqPrefix     = "%DLQ%"

	maxTopicQueues      = 1 << 14
	maxTopicLength      = 127
	maxRetryTopicLength = 255
)

var topicName = regexp.MustCompile(`^[%|a-zA-Z0-9_-]+$`)

// closedTopics may not be sent to by clients (RocketMQ common, TopicValidator).
var closedTopics = []string{
	scheduleTopic, halfTopic, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
}

// TopicConfig is a topic's configuration on one broker.
type TopicConfig struct {
	Name        string
	ReadQueues  int32
	WriteQueues int32
	Perm        int32 // 4 read, 2 write, 1 inherited by auto-created topics
	SysFlag     int32
	Order       bool
}

type topic struct {
	config TopicConfig
	queues []*queue // by id; never shrinks
}

type queue struct {
	id      int32
	min     int64 // offset of records[0], or of the next record when there is none
	records []*record
	parked  []*parkedPull
}

// max is the offset of the next record.
func (q *queue) max() int64 { return q.min + int64(len(q.records)) }

// queue returns the queue with that id, creating it when a delayed message comes back to a topic that has
// fewer queues by now.
func (t *topic) queue(id int32) *queue {
	for int32(len(t.queues)) <= id {
		t.queues = append(t.queues, &queue{id: int32(len(t.queues))})
	}
	return t.queues[id]
}

// existing returns the queue with that id, or nil.
func (t *topic) existing(id int32) *queue {
	if t == nil || id < 0 || int(id) >= len(t.queues) {
		return nil
	}
	return t.queues[id]
}

func (b *Broker) createSystemTopics() {
	const rw = permRead | permWrite
	if !b.opts.NoAutoCreateTopic {
		b.setTopic(TopicConfig{Name: templateTopic, ReadQueues: b.opts.TopicQueues, WriteQueues: b.opts.TopicQueues, Perm: rw | permInherit})
	}
	b.setTopic(TopicConfig{Name: b.cluster.opts.Cluster, ReadQueues: 16, WriteQueues: 16, Perm: rw | permInherit})
	b.setTopic(TopicConfig{Name: b.opts.Name, ReadQueues: 1, WriteQueues: 1, Perm: rw | permInherit})
	levels := int32(b.levels.Max())
	b.setTopic(TopicConfig{Name: scheduleTopic, ReadQueues: levels, WriteQueues: levels, Perm: rw})
	b.setTopic(TopicConfig{Name: timerTopic, ReadQueues: 1, WriteQueues: 1, Perm: rw})
	b.setTopic(TopicConfig{Name: halfTopic, ReadQueues: 1, WriteQueues: 1, Perm: rw})
}

// setTopic creates or changes a topic; b.mu is held, or nobody else knows b yet.
func (b *Broker) setTopic(c TopicConfig) *topic {
	t, ok := b.topics[c.Name]
	if !ok {
		t = &topic{}
		b.topics[c.Name] = t
	}
	t.config = c
	if n := max(c.ReadQueues, c.WriteQueues); n > 0 {
		t.queue(n - 1)
	}
	return t
}

// topicForSend finds a topic, or creates it from defaultTopic as a broker does at the first send; nil when that may
// not be (RocketMQ TopicConfigManager.createTopicInSendMessageMethod). b.mu is held.
func (b *Broker) topicForSend(name, defaultTopic string, queues int32) *topic {
	if t, ok := b.topics[name]; ok {
		return t
	}
	if strings.HasPrefix(name, retryPrefix) {
		return b.setTopic(TopicConfig{Name: name, ReadQueues: 1, WriteQueues: 1, Perm: permRead | permWrite})
	}
	template, ok := b.topics[defaultTopic]
	if !ok || template.config.Perm&permInherit == 0 {
		return nil
	}
	n := max(0, min(queues, template.config.WriteQueues))
	return b.setTopic(TopicConfig{Name: name, ReadQueues: n, WriteQueues: n, Perm: template.config.Perm &^ permInherit})
}

// CreateTopic creates or changes a topic with so many readable and writable queues.
func (b *Broker) CreateTopic(name string, queues, perm int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setTopic(TopicConfig{Name: name, ReadQueues: queues, WriteQueues: queues, Perm: perm})
}

// DeleteTopic forgets a topic and its queues.
func (b *Broker) DeleteTopic(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.topics, name)
}

// Topic returns the configuration of a topic, and whether it exists.
func (b *Broker) Topic(name string) (TopicConfig, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.topics[name]
	if !ok {
		return TopicConfig{}, false
	}
	return t.config, true
}

// Topics lists the names of all topics, system topics included.
func (b *Broker) Topics() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.topics))
}
