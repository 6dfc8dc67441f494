package client

import (
	"context"
	"fmt"
	"strings"
)

// request is one line to the driver; compat_test/driver says what its members mean.
type request struct {
	ID        int64             `json:"id"`
	Op        string            `json:"op"`
	Name      string            `json:"name,omitempty"`
	NameSrv   string            `json:"namesrv,omitempty"`
	Group     string            `json:"group,omitempty"`
	TimeoutMs int               `json:"timeoutMs,omitempty"`
	Retries   int               `json:"retries,omitempty"`
	Producer  string            `json:"producer,omitempty"`
	Mode      string            `json:"mode,omitempty"`
	Topic     string            `json:"topic,omitempty"`
	Tags      string            `json:"tags,omitempty"`
	Keys      string            `json:"keys,omitempty"`
	Body      []byte            `json:"body,omitempty"`
	Flag      int32             `json:"flag,omitempty"`
	Props     map[string]string `json:"props,omitempty"`
	Level     int               `json:"level,omitempty"`
	DeliverMs int64             `json:"deliverMs,omitempty"`
	DelayMs   int64             `json:"delayMs,omitempty"`
	DelaySec  int64             `json:"delaySec,omitempty"`
	Broker    string            `json:"broker,omitempty"`
	Queue     *int              `json:"queue,omitempty"`
	OrderKey  string            `json:"orderKey,omitempty"`
	Expr      string            `json:"expr,omitempty"`
	Broadcast bool              `json:"broadcast,omitempty"`
	Orderly   bool              `json:"orderly,omitempty"`
	Fail      int               `json:"fail,omitempty"`
}

// Mode is how a producer sends.
type Mode string

// The three ways to send.
const (
	Sync   Mode = "sync"
	Async  Mode = "async"
	OneWay Mode = "oneway"
)

// Message is what a test sends. The zero value of a member leaves it out.
type Message struct {
	Mode  Mode
	Topic string
	Tags  string
	Keys  string
	Body  []byte
	Flag  int32
	// Props are set as they are, past the library's own check of reserved names.
	Props map[string]string
	// Level is set by the library's setter for delay levels.
	Level int
	// DeliverMs, DelayMs and DelaySec are set by the library's setters, by property where it has none.
	DeliverMs, DelayMs, DelaySec int64
	// Broker and Queue choose a queue; OrderKey lets the library choose one by hash.
	Broker   string
	Queue    *int
	OrderKey string
}

// String leaves out what is not set, and most of a long body.
func (m Message) String() string {
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value any
		set   bool
	}{
		{"mode", m.Mode, m.Mode != ""}, {"topic", m.Topic, true}, {"tags", m.Tags, m.Tags != ""}, {"keys", m.Keys, m.Keys != ""},
		{"flag", m.Flag, m.Flag != 0}, {"props", m.Props, len(m.Props) > 0}, {"level", m.Level, m.Level != 0},
		{"deliverMs", m.DeliverMs, m.DeliverMs != 0}, {"delayMs", m.DelayMs, m.DelayMs != 0}, {"delaySec", m.DelaySec, m.DelaySec != 0},
		{"orderKey", m.OrderKey, m.OrderKey != ""}, {"body", fmt.Sprintf("%.40q (%d bytes)", m.Body, len(m.Body)), len(m.Body) > 0},
	} {
		if f.set {
			fmt.Fprintf(&b, "%s %v, ", f.name, f.value)
		}
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// Result is what a library's send reported.
type Result struct {
	Status        string `json:"status"`
	UniqKey       string `json:"uniqKey"`
	MsgID         string `json:"msgId"`
	OffsetMsgID   string `json:"offsetMsgId"`
	Broker        string `json:"broker"`
	QueueID       int    `json:"queueId"`
	QueueOffset   int64  `json:"queueOffset"`
	TransactionID string `json:"transactionId"`
	RegionID      string `json:"regionId"`
}

// Producer is a library's producer.
type Producer struct {
	d    *Driver
	name string
}

// NewProducer starts a producer that never sends a message twice by itself.
func (d *Driver) NewProducer(ctx context.Context, nameServer, name string) (*Producer, error) {
	_, err := d.call(ctx, request{Op: "producer", Name: name, NameSrv: nameServer, Group: "pg-" + name, TimeoutMs: 20000})
	return &Producer{d: d, name: name}, err
}

// Send sends a message. A refusal is an *Error.
func (p *Producer) Send(ctx context.Context, m Message) (Result, error) {
	return p.d.call(ctx, request{
		Op: "send", Producer: p.name, Mode: string(m.Mode), Topic: m.Topic, Tags: m.Tags, Keys: m.Keys, Body: m.Body, Flag: m.Flag,
		Props: m.Props, Level: m.Level, DeliverMs: m.DeliverMs, DelayMs: m.DelayMs, DelaySec: m.DelaySec,
		Broker: m.Broker, Queue: m.Queue, OrderKey: m.OrderKey,
	})
}

// Close shuts the producer down.
func (p *Producer) Close(ctx context.Context) error {
	_, err := p.d.call(ctx, request{Op: "close-producer", Name: p.name})
	return err
}
