package fakemq

import (
	"github.com/delaygate/delaygate/codec"
)

const (
	transactionBits   = 0xC
	transactionCommit = 0x8
	transactionUndo   = 0xC
)

// sendHalf keeps a transactional message out of its topic until END_TRANSACTION. b.mu is held.
func (b *Broker) sendHalf(r *call, m codec.StoredMessage, props codec.Properties, uniq string) *codec.Command {
	real := m
	real.Properties = props.String()
	props.Set(codec.PropRealTopic, m.Topic)
	props.Set(codec.PropRealQueueID, intField("", int64(m.QueueID)).Value)
	queueID := m.QueueID
	m.Topic, m.QueueID, m.SysFlag, m.Properties = halfTopic, 0, m.SysFlag&^transactionBits, props.String()
	rec := b.store(m)
	real.PreparedTransactionOffset = rec.offset
	b.halves[rec.offset] = real
	return r.sent(string(codec.AppendOffsetID(nil, b.addr, rec.offset)), queueID, rec.position, uniq)
}

// endTransaction serves END_TRANSACTION (37). Commit stores the message, rollback forgets it, anything else
// leaves it; the broker never asks back by itself.
func (b *Broker) endTransaction(r *call) *codec.Command {
	offset := r.int("commitLogOffset", -1)
	b.mu.Lock()
	defer b.mu.Unlock()
	m, ok := b.halves[offset]
	verdict := r.int("commitOrRollback", 0)
	switch {
	case verdict != transactionCommit && verdict != transactionUndo:
		return nil // a broker answers nothing, either
	case !ok:
		return r.refuse(codec.RespSystemError, "Find prepared transaction message failed")
	}
	delete(b.halves, offset)
	if verdict == transactionCommit {
		m.SysFlag = m.SysFlag&^transactionBits | transactionCommit
		props := codec.ParseProperties(m.Properties)
		props.Del(codec.PropTransPrepared)
		m.Properties = props.String()
		b.store(m)
	}
	return r.success()
}
