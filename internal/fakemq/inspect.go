package fakemq

import (
	"context"
	"fmt"
	"slices"

	"github.com/delaygate/delaygate/codec"
)

// Message is a stored message as a test looks at it.
type Message struct {
	codec.StoredMessage
	Broker string
}

// Property returns a property's value, and whether the message has it.
func (m Message) Property(name string) (string, bool) {
	return codec.ParseProperties(m.Properties).Get(name)
}

// Messages returns what is stored of a topic on all brokers, in the order of store time, and per broker in
// the order of its log.
func (c *Cluster) Messages(topic string) []Message {
	var all []Message
	for _, b := range c.brokers {
		all = append(all, b.Messages(topic)...)
	}
	slices.SortStableFunc(all, func(x, y Message) int { return int(x.StoreTimestamp - y.StoreTimestamp) })
	return all
}

// Count is the length of Messages, without collecting them.
func (c *Cluster) Count(topic string) int {
	n := 0
	for _, b := range c.brokers {
		n += b.Count(topic)
	}
	return n
}

// Await returns as soon as at least n messages of a topic are stored; when ctx ends before, it returns what
// there is, and an error.
func (c *Cluster) Await(ctx context.Context, topic string, n int) ([]Message, error) {
	for {
		next := c.arrivals.next()
		have := c.Count(topic)
		if have >= n {
			return c.Messages(topic), nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return c.Messages(topic), fmt.Errorf("fakemq: %d of %d messages in %s: %w", have, n, topic, ctx.Err())
		}
	}
}

// Messages returns what is stored of a topic, in the order of the log.
func (b *Broker) Messages(topic string) []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[topic]
	var found []Message
	for _, rec := range b.log.records {
		if t.existing(rec.queue.id) == rec.queue {
			found = append(found, Message{rec.message(), b.Name()})
		}
	}
	return found
}

// Count is the length of Messages, without collecting them.
func (b *Broker) Count(topic string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.topics[topic]
	if !ok {
		return 0
	}
	n := 0
	for _, q := range t.queues {
		n += len(q.records)
	}
	return n
}

// PendingDelays counts the messages that the broker holds until they are due.
func (b *Broker) PendingDelays() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.delays)
}

// Offset returns where a group is in a queue, and whether it has committed anything.
func (b *Broker) Offset(group, topic string, queue int32) (int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	offset, ok := b.offsets[offsetKey{group, topic, queue}]
	return offset, ok
}

// Clients lists the ids of the clients that are members of a consumer group, sorted; an id stands there
// once for each of its connections.
func (b *Broker) Clients(group string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clients(group)
}
