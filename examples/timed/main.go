// Command timed sends one message that is due after a delay and waits until a consumer has it: the
// shortest proof that delaygate works, with the ordinary Go client and nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	namesrv := flag.String("namesrv", "127.0.0.1:9876", "where delaygate answers for name servers, IP:PORT")
	topic := flag.String("topic", "delaygate-example", "topic to use; brokers create it if they may")
	delay := flag.Duration("delay", 3*time.Second, "how long to hold the message")
	flag.Parse()
	rlog.SetLogLevel("error")
	if err := run(*namesrv, *topic, *delay); err != nil {
		fmt.Fprintln(os.Stderr, "timed:", err)
		os.Exit(1)
	}
}

func run(namesrv, topic string, delay time.Duration) error {
	ns := []string{namesrv}
	due := time.Now().Add(delay).Truncate(time.Millisecond)
	body := fmt.Sprintf("due at %s", due.Format("15:04:05.000"))

	p, err := rocketmq.NewProducer(producer.WithNameServer(ns), producer.WithGroupName("delaygate-example-producer"))
	if err != nil {
		return fmt.Errorf("new producer: %w", err)
	}
	if err := p.Start(); err != nil {
		return fmt.Errorf("start producer: %w", err)
	}
	defer p.Shutdown()
	m := primitive.NewMessage(topic, []byte(body))
	m.WithDelayTimestamp(due)
	r, err := p.SendSync(context.Background(), m)
	if err != nil {
		return fmt.Errorf("send to %s through %s: %w", topic, namesrv, err)
	}
	fmt.Printf("accepted at %s: %s, message id %s\n", time.Now().Format("15:04:05.000"), body, r.MsgID)
	return await(ns, topic, body, due, delay+30*time.Second)
}

// await consumes topic until body arrives, which must not be before due.
func await(ns []string, topic, body string, due time.Time, patience time.Duration) error {
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(ns), consumer.WithGroupName("delaygate-example-consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return fmt.Errorf("new consumer: %w", err)
	}
	arrived := make(chan time.Time, 1)
	err = c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			if string(m.Body) != body {
				continue
			}
			select {
			case arrived <- time.UnixMilli(m.StoreTimestamp):
			default: // a repeat
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", topic, err)
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start consumer: %w", err)
	}
	defer c.Shutdown()
	select {
	case stored := <-arrived:
		fmt.Printf("at the broker at %s, %d ms after it was due\n", stored.Format("15:04:05.000"), stored.Sub(due).Milliseconds())
		if stored.Before(due) {
			return fmt.Errorf("the message came %s early", due.Sub(stored))
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("no message from %s within %s", topic, patience)
	}
}
