package fakemq

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/levels"
)

// Broker is a master broker. Its topics, messages, offsets and pending delays outlive Stop and Restart;
// connections, registered clients and queue locks do not.
type Broker struct {
	cluster    *Cluster
	opts       BrokerOptions
	levels     levels.Table
	ep         *endpoint
	registered atomic.Bool // name servers list it

	lifeMu sync.Mutex    // orders Stop and Restart
	halt   chan struct{} // closed to end the timer loop; nil while stopped

	mu        sync.Mutex // all below; nothing blocks while it is held
	addr      netip.AddrPort
	ids       *codec.UniqueIDs
	notifySeq int32 // opaque of requests to clients
	topics    map[string]*topic
	log       messageLog
	offsets   map[offsetKey]int64
	configs   map[string]GroupConfig
	groups    map[string]*group
	locks     map[lockKey]queueLock
	delays    delayHeap
	delaySeq  int64
	earlier   chan struct{} // capacity 1: the first due time has changed
	halves    map[int64]codec.StoredMessage
}

func newBroker(c *Cluster, o BrokerOptions) (*Broker, error) {
	table, err := levels.Parse(o.DelayLevels)
	if err != nil {
		return nil, fmt.Errorf("fakemq: broker %s: DelayLevels: %w", o.Name, err)
	}
	b := &Broker{
		cluster: c, opts: o, levels: table,
		topics:  make(map[string]*topic),
		log:     messageLog{maxMessages: o.MaxMessages, maxBytes: o.MaxBytes},
		offsets: make(map[offsetKey]int64),
		configs: make(map[string]GroupConfig),
		groups:  make(map[string]*group),
		earlier: make(chan struct{}, 1),
		halves:  make(map[int64]codec.StoredMessage),
	}
	b.log.init()
	b.ep = &endpoint{
		cluster: c, broker: o.Name, addr: o.Addr, version: o.Version, serve: b.serve, gone: b.leave,
		log: c.opts.Log.With("broker", o.Name),
	}
	b.createSystemTopics()
	return b, nil
}

// Name is the broker's name.
func (b *Broker) Name() string { return b.opts.Name }

// Addr is the address it listens on and advertises; it keeps it while stopped.
func (b *Broker) Addr() string { return b.ep.address() }

// Requests counts the requests of a code that it has received.
func (b *Broker) Requests(code int32) int64 { return b.ep.requests(code) }

// Connections counts its open client connections.
func (b *Broker) Connections() int { return b.ep.connections() }

// Stop takes the broker away: its port is closed, its connections end, name servers forget it, and delays
// that come due wait for Restart.
func (b *Broker) Stop() {
	b.registered.Store(false)
	b.Kill()
}

// Kill is Stop with name servers that have not noticed: routes and cluster info still name the broker.
func (b *Broker) Kill() {
	b.lifeMu.Lock()
	defer b.lifeMu.Unlock()
	if b.halt != nil {
		close(b.halt)
		b.halt = nil
	}
	b.ep.stop()
}

// Restart serves again on the same address and registers with the name servers; nothing happens to a
// broker that runs.
func (b *Broker) Restart() error {
	b.lifeMu.Lock()
	defer b.lifeMu.Unlock()
	if b.halt != nil {
		return nil
	}
	if err := b.ep.start(); err != nil {
		return err
	}
	addr, err := netip.ParseAddrPort(b.ep.address())
	if err != nil {
		return fmt.Errorf("fakemq: broker %s: %w", b.Name(), err)
	}
	b.mu.Lock()
	b.addr = addr
	b.locks = make(map[lockKey]queueLock)
	if b.ids == nil {
		b.ids = codec.NewUniqueIDs(addr.Addr(), os.Getpid(), rand.Uint32())
	}
	b.mu.Unlock()
	halt := make(chan struct{})
	b.halt = halt
	b.ep.wg.Go(func() { b.delayLoop(halt) })
	b.registered.Store(true)
	return nil
}

func (b *Broker) brokerData() codec.BrokerData {
	return codec.BrokerData{
		Cluster: b.cluster.Name(), BrokerName: b.Name(), BrokerAddrs: map[int64]string{0: b.Addr()},
	}
}

func (b *Broker) nowMs() int64 { return b.cluster.opts.Now().UnixMilli() }

// is5 tells whether the broker knows timers, as RocketMQ does from 5.0.0 on.
func (b *Broker) is5() bool { return b.opts.Version >= Version500 }

// serve executes a request; nil when it is answered later or not at all.
func (b *Broker) serve(r *call) *codec.Command {
	switch r.Code {
	case codec.ReqSendMessage, codec.ReqSendMessageV2, codec.ReqSendBatchMessage:
		return b.send(r)
	case codec.ReqPullMessage, codec.ReqLitePullMessage:
		return b.pull(r)
	case codec.ReqQueryMessage:
		return b.queryMessage(r)
	case codec.ReqQueryConsumerOffset:
		return b.queryOffset(r)
	case codec.ReqUpdateConsumerOffset:
		return b.updateOffset(r)
	case codec.ReqUpdateAndCreateTopic:
		return b.updateTopic(r)
	case codec.ReqGetBrokerConfig:
		return b.brokerConfig(r)
	case codec.ReqGetBrokerRuntimeInfo:
		return b.runtimeInfo(r)
	case codec.ReqSearchOffsetByTimestamp:
		return b.searchOffset(r)
	case codec.ReqGetMaxOffset:
		return b.maxOffset(r)
	case codec.ReqGetMinOffset:
		return b.minOffset(r)
	case codec.ReqGetEarliestMsgStoreTime:
		return b.earliestTime(r)
	case codec.ReqViewMessageByID:
		return b.viewMessage(r)
	case codec.ReqHeartBeat:
		return b.heartbeat(r)
	case codec.ReqUnregisterClient:
		return b.unregister(r)
	case codec.ReqConsumerSendMsgBack:
		return b.sendBack(r)
	case codec.ReqEndTransaction:
		return b.endTransaction(r)
	case codec.ReqGetConsumerListByGroup:
		return b.consumerList(r)
	case codec.ReqLockBatchMQ:
		return b.lockQueues(r)
	case codec.ReqUnlockBatchMQ:
		return b.unlockQueues(r)
	case codec.ReqCheckClientConfig:
		return b.checkClient(r)
	case codec.ReqUpdateAndCreateSubscriptionGroup:
		return b.updateGroup(r)
	case codec.ReqGetAllSubscriptionGroupConfig:
		return b.allGroups(r)
	case codec.ReqDeleteTopicInBroker:
		return b.deleteTopic(r)
	case codec.ReqGetTopicConfig:
		return b.getTopicConfig(r)
	case codec.ReqGetSubscriptionGroupConfig:
		return b.getGroup(r)
	default:
		return r.notSupported()
	}
}
