package fakemq

import (
	"encoding/json"
	"fmt"
	"time"
)

// lockLease is how long a queue stays locked without renewal (RocketMQ RebalanceLockManager).
const lockLease = 60 * time.Second

type lockKey struct {
	group, topic string
	queue        int32
}

type queueLock struct {
	client  string
	expires time.Time
}

// messageQueue is MessageQueue as bodies carry it.
type messageQueue struct {
	Topic      string `json:"topic"`
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
}

// lockBody is the body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ.
type lockBody struct {
	Group    string         `json:"consumerGroup"`
	ClientID string         `json:"clientId"`
	Queues   []messageQueue `json:"mqSet"`
}

func (r *call) lockBody() (lockBody, error) {
	var body lockBody
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return body, fmt.Errorf("queue locks: %w", err)
	}
	return body, nil
}

// holdsLock tells whether anybody holds a queue of the group. b.mu is held.
func (b *Broker) holdsLock(group string) bool {
	now := b.cluster.opts.Now()
	for key, lock := range b.locks {
		if key.group == group && now.Before(lock.expires) {
			return true
		}
	}
	return false
}
