package fakemq

import (
	"math"

	"github.com/delaygate/delaygate/codec"
)

// queryMessage serves QUERY_MESSAGE (12): by key or by UNIQ_KEY, which share one index in a broker too.
func (b *Broker) queryMessage(r *call) *codec.Command {
	most := int(min(max(1, r.int("maxNum", 32)), 64))
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.log.find(r.field("topic"), r.field("key"), r.int("beginTimestamp", 0), r.int("endTimestamp", math.MaxInt64), most)
	if len(found) == 0 {
		return r.refuse(codec.RespQueryNotFound, "can not find message, maybe time range not correct")
	}
	last := found[len(found)-1]
	reply := r.success(intField("indexLastUpdateTimestamp", last.storedMs), intField("indexLastUpdatePhyoffset", last.offset))
	for _, rec := range found {
		reply.Body = append(reply.Body, rec.raw...)
	}
	return reply
}
