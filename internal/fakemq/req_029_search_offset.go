package fakemq

import (
	"sort"

	"github.com/delaygate/delaygate/codec"
)

// searchOffset serves SEARCH_OFFSET_BY_TIMESTAMP (29): the first message stored at timestamp or later, or
// with boundaryType "upper" the last one not stored later; the end of the queue if there is none.
func (b *Broker) searchOffset(r *call) *codec.Command {
	ts := r.int("timestamp", 0)
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queueOf(r)
	if q == nil {
		return r.success(intField("offset", 0))
	}
	i := sort.Search(len(q.records), func(i int) bool { return q.records[i].storedMs >= ts })
	if r.field("boundaryType") == "upper" {
		i = sort.Search(len(q.records), func(i int) bool { return q.records[i].storedMs > ts }) - 1
		i = max(i, 0)
	}
	return r.success(intField("offset", q.min+int64(i)))
}

// queueOf finds the queue that a request names, or nil. b.mu is held.
func (b *Broker) queueOf(r *call) *queue {
	return b.topics[r.field("topic")].existing(int32(r.int("queueId", -1)))
}
