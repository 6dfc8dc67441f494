package fakemq

import "github.com/delaygate/delaygate/codec"

// unlockQueues serves UNLOCK_BATCH_MQ (42); queues that another client holds stay locked.
func (b *Broker) unlockQueues(r *call) *codec.Command {
	body, err := r.lockBody()
	if err != nil {
		return r.refuse(codec.RespSystemError, "%v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range body.Queues {
		key := lockKey{body.Group, q.Topic, q.QueueID}
		if b.locks[key].client == body.ClientID {
			delete(b.locks, key)
		}
	}
	return r.success()
}
