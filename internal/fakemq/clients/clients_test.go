package clients

import (
	"testing"

	"github.com/delaygate/delaygate/codec"
)

func TestProducer(t *testing.T) {
	t.Parallel()
	c := start(t)
	run(t, c, "produce", nil)
	list, err := c.Await(t.Context(), "new", 5)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, m := range list {
		seen[string(m.Body)]++
	}
	for _, body := range []string{"sync", "batch 1", "batch 2", "one-way", "async"} {
		if seen[body] != 1 {
			t.Errorf("%q stored %d times", body, seen[body])
		}
	}
}

func TestClusteringOfTwo(t *testing.T) {
	t.Parallel()
	c := start(t)
	run(t, c, "cluster", func() {
		for _, b := range c.Brokers() {
			if n := len(b.Clients("g")); n != 2 {
				t.Errorf("%s: %d members of the group", b.Name(), n)
			}
		}
	})
}

func TestBroadcasting(t *testing.T) {
	t.Parallel()
	run(t, start(t), "broadcast", nil)
}

func TestTags(t *testing.T) {
	t.Parallel()
	run(t, start(t), "tags", nil)
}

func TestOrderly(t *testing.T) {
	t.Parallel()
	c := start(t)
	run(t, c, "orderly", nil)
	if n := c.Requests(codec.ReqLockBatchMQ); n == 0 {
		t.Error("the consumer has locked no queue")
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.CreateGroup("g")
	run(t, c, "retry", nil)
	if n := c.Requests(codec.ReqConsumerSendMsgBack); n != 1 {
		t.Errorf("%d messages sent back", n)
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	run(t, start(t), "delay", nil)
}

func TestConsumerGoesOnAfterABrokerRestart(t *testing.T) {
	t.Parallel()
	c := start(t)
	run(t, c, "restart", func() {
		for _, b := range c.Brokers() {
			b.Stop()
			if err := b.Restart(); err != nil {
				t.Error(err)
			}
		}
	})
}
