package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Delivery is one message as the library handed it to its listener.
type Delivery struct {
	// At is when the listener was called, wall ms.
	At             int64             `json:"at"`
	Topic          string            `json:"topic"`
	Tags           string            `json:"tags"`
	Keys           string            `json:"keys"`
	UniqKey        string            `json:"uniqKey"`
	Body           []byte            `json:"body"`
	Flag           int32             `json:"flag"`
	SysFlag        int32             `json:"sysFlag"`
	BornTimestamp  int64             `json:"bornTimestamp"`
	BornHost       string            `json:"bornHost"`
	StoreTimestamp int64             `json:"storeTimestamp"`
	StoreHost      string            `json:"storeHost"`
	Broker         string            `json:"broker"`
	QueueID        int               `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	ReconsumeTimes int               `json:"reconsumeTimes"`
	Props          map[string]string `json:"props"`
	// Problem is set when the event could not be read.
	Problem error `json:"-"`
}

// ConsumerOptions describes a push consumer.
type ConsumerOptions struct {
	NameServer string
	// Name is the instance; two of one group have different names.
	Name  string
	Group string
	Topic string
	// Expr is the tag filter, "*" for all.
	Expr      string
	Broadcast bool
	Orderly   bool
	// Fail is how often each message fails before it succeeds; -1 means always.
	Fail int
}

// Consumer is a library's push consumer and what it has received so far.
type Consumer struct {
	d    *Driver
	name string

	mu      sync.Mutex
	got     []Delivery
	changed chan struct{}
}

// NewConsumer starts a push consumer that begins at the first message of its topic.
func (d *Driver) NewConsumer(ctx context.Context, o ConsumerOptions) (*Consumer, error) {
	c := &Consumer{d: d, name: o.Name, changed: make(chan struct{})}
	d.mu.Lock()
	d.consumers[o.Name] = c
	d.mu.Unlock()
	if o.Expr == "" {
		o.Expr = "*"
	}
	_, err := d.call(ctx, request{
		Op: "consumer", Name: o.Name, NameSrv: o.NameServer, Group: o.Group, Topic: o.Topic, Expr: o.Expr,
		Broadcast: o.Broadcast, Orderly: o.Orderly, Fail: o.Fail,
	})
	return c, err
}

func (c *Consumer) add(m Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, m)
	close(c.changed)
	c.changed = make(chan struct{})
}

// All returns what has been delivered so far, in the order of arrival.
func (c *Consumer) All() []Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// Wait blocks until enough holds for what was delivered, and returns that.
func (c *Consumer) Wait(ctx context.Context, enough func(all []Delivery) bool) ([]Delivery, error) {
	for {
		c.mu.Lock()
		got, changed := slices.Clone(c.got), c.changed
		c.mu.Unlock()
		if enough(got) {
			return got, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return got, fmt.Errorf("%s consumer %s has %d deliveries: %w", c.d.Kind, c.name, len(got), ctx.Err())
		}
	}
}

// Close shuts the consumer down.
func (c *Consumer) Close(ctx context.Context) error {
	_, err := c.d.call(ctx, request{Op: "close-consumer", Name: c.name})
	return err
}
