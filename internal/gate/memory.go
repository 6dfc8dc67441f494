package gate

import (
	"sync"

	"github.com/delaygate/delaygate/internal/upstream"
)

// rememberedTopics is the most topics that are remembered for the time when their broker is away.
const rememberedTopics = 10_000

type topicKey struct{ broker, topic string }

// topicMemory remembers what topics were like. Name servers drop all topics of a broker that has gone, but
// messages for it are still accepted.
type topicMemory struct {
	max int

	mu   sync.RWMutex
	seen map[topicKey]upstream.Topic
}

func (m *topicMemory) note(broker, topic string, t upstream.Topic) {
	k := topicKey{broker, topic}
	m.mu.RLock()
	known := m.seen[k] == t
	m.mu.RUnlock()
	if known {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.seen[k]; !there && len(m.seen) >= m.max {
		for other := range m.seen {
			delete(m.seen, other)
			break
		}
	}
	m.seen[k] = t
}

func (m *topicMemory) get(broker, topic string) (upstream.Topic, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	t, ok := m.seen[topicKey{broker, topic}]
	return t, ok
}

func (m *topicMemory) forget(broker, topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, topicKey{broker, topic})
}
