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

// Await returns as soon as at least n messages of a topic are stored; on an error of ctx it returns what
// there is.
func (c *Cluster) Await(ctx context.Context, topic string, n int) ([]Message, error) {
	for {
		next := c.arrivals.next()
		have := c.Messages(topic)
		if len(have) >= n {
			return have, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return have, fmt.Errorf("fakemq: %d of %d messages in %s: %w", len(have), n, topic, ctx.Err())
		}
	}
}

// Messages returns what is stored of a topic, in the order of the log.
func (b *Broker) Messages(topic string) []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []Message
	for _, rec := range b.log.records {
		if rec.queue.topic == topic {
			found = append(found, Message{rec.message(), b.Name()})
		}
	}
	return found
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
