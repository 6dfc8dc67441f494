package fakemq

import "github.com/delaygate/delaygate/codec"

// lockQueues serves LOCK_BATCH_MQ (41): the queues that nobody else holds are the client's for 60 s.
func (b *Broker) lockQueues(r *call) *codec.Command {
	body, err := r.lockBody()
	if err != nil {
		return r.refuse(codec.RespSystemError, "%v", err)
	}
	now := b.cluster.opts.Now()
	locked := make([]messageQueue, 0, len(body.Queues))
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range body.Queues {
		key := lockKey{body.Group, q.Topic, q.QueueID}
		if held, ok := b.locks[key]; ok && held.client != body.ClientID && now.Before(held.expires) {
			continue
		}
		b.locks[key] = queueLock{body.ClientID, now.Add(lockLease)}
		locked = append(locked, q)
	}
	return r.successJSON(struct {
		Locked []messageQueue `json:"lockOKMQSet"`
	}{locked})
}
