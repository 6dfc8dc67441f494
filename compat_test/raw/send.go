package raw

import (
	"context"
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Message is one send, as SEND_MESSAGE_V2 carries it.
type Message struct {
	Group string
	Topic string
	Queue int32
	Flag  int32
	// Born is the client's clock in ms; 0 takes the present.
	Born  int64
	Props codec.Properties
	Body  []byte
	// Serialize is the header's form.
	Serialize codec.Serialize
}

// Command returns the request.
func (m *Message) Command() *codec.Command {
	born := m.Born
	if born == 0 {
		born = time.Now().UnixMilli()
	}
	group := m.Group
	if group == "" {
		group = "compat-raw"
	}
	h := codec.SendHeader{
		ProducerGroup: group, Topic: m.Topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: m.Queue,
		BornTimestamp: born, Flag: m.Flag, Properties: m.Props.String(), MaxReconsumeTimes: -1,
	}
	cmd := Request(codeSendV2)
	cmd.Serialize = m.Serialize
	cmd.Fields = h.V2()
	cmd.Body = m.Body
	return cmd
}

// Send sends one message and waits for the broker's answer.
func (c *Conn) Send(ctx context.Context, m *Message) (*codec.Command, error) {
	return Checked(c.Call(ctx, m.Command()))
}

// Flood sends the messages with the given indexes on one connection, at most window unanswered, and calls
// acked for each that was answered with success, from one goroutine at a time. It returns when all are
// answered or at the first failure; the caller knows from acked what is left.
func Flood(ctx context.Context, addr string, indexes []int, window int, message func(i int) *Message, acked func(i int, reply *codec.Command)) error {
	c, err := Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, window)
	var open sync.WaitGroup
	var one sync.Mutex
	for _, i := range indexes {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		open.Add(1)
		c.Start(message(i).Command(), func(reply *codec.Command, err error) {
			defer open.Done()
			if reply, err = Checked(reply, err); err != nil {
				cancel(err)
				return
			}
			one.Lock()
			acked(i, reply)
			one.Unlock()
			<-slots
		})
	}
	all := make(chan struct{})
	go func() { open.Wait(); close(all) }()
	select {
	case <-all:
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
