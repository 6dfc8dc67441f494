package upstream

import (
	"container/list"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
)

const (
	// refreshPatience is how long a caller waits for a new answer when the last known one could serve.
	refreshPatience = 500 * time.Millisecond
	// retryPause is the time between two attempts to refresh what cannot be refreshed.
	retryPause = time.Second
	// routeLag is how long a topic just created is believed to exist while no route names it.
	routeLag = 10 * time.Second
)

// Topic is what one broker says about a topic.
type Topic struct {
	Exists      bool
	Perm        int32 // 4 read, 2 write, 1 inherit
	ReadQueues  int32
	WriteQueues int32
}

// topicEntry is the last answer about one topic: of all brokers, since that is what a route holds.
type topicEntry struct {
	topic   string
	brokers map[string]Topic // by broker name
	made    map[string]made  // topics created by this process
	fresh   time.Time        // until when it serves without asking
}

type made struct {
	topic Topic
	until time.Time
}

func (e *topicEntry) on(broker string, now time.Time) Topic {
	t := e.brokers[broker]
	if m, ok := e.made[broker]; ok && !t.Exists && now.Before(m.until) {
		return m.topic
	}
	return t
}

// topicCache keeps the topics asked for last.
type topicCache struct {
	mu     sync.Mutex
	max    int
	byName map[string]*list.Element
	order  *list.List // of *topicEntry, the latest in front
}

func (tc *topicCache) init(size int) {
	tc.max, tc.byName, tc.order = size, map[string]*list.Element{}, list.New()
}

// get returns the entry of a topic. The caller holds the mutex.
func (tc *topicCache) get(topic string, create bool) *topicEntry {
	if el := tc.byName[topic]; el != nil {
		tc.order.MoveToFront(el)
		return el.Value.(*topicEntry)
	}
	if !create {
		return nil
	}
	e := &topicEntry{topic: topic}
	tc.byName[topic] = tc.order.PushFront(e)
	for tc.order.Len() > tc.max {
		last := tc.order.Remove(tc.order.Back()).(*topicEntry)
		delete(tc.byName, last.topic)
	}
	return e
}

// look returns what is known about a topic on a broker, and whether that is fresh.
func (tc *topicCache) look(broker, topic string) (t Topic, known, fresh bool) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	e := tc.get(topic, false)
	if e == nil {
		return Topic{}, false, false
	}
	now := time.Now()
	t = e.on(broker, now)
	return t, e.brokers != nil || t.Exists, t.Exists && now.Before(e.fresh)
}

func (tc *topicCache) store(topic string, brokers map[string]Topic, ttl time.Duration) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	e := tc.get(topic, true)
	e.brokers, e.fresh = brokers, time.Now().Add(ttl)
}

// extend lets a known answer serve for a while, when a new one was not to be had.
func (tc *topicCache) extend(topic string, by time.Duration) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if e := tc.get(topic, false); e != nil {
		e.fresh = time.Now().Add(by)
	}
}

func (tc *topicCache) created(broker, topic string, t Topic, ttl time.Duration) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	e := tc.get(topic, true)
	if e.made == nil {
		e.made = map[string]made{}
	}
	now := time.Now()
	e.made[broker] = made{topic: t, until: now.Add(routeLag)}
	e.fresh = now.Add(min(ttl, routeLag))
}

// CachedTopic returns a topic that is known to exist on the broker, from the cache alone. It never blocks.
func (v *View) CachedTopic(broker Broker, topic string) (Topic, bool) {
	t, _, fresh := v.topics.look(broker.Name, topic)
	return t, fresh
}

// Topic returns what the topic's route (GET_ROUTEINFO_BY_TOPIC, 105) says about a broker, asking the name
// servers unless a fresh answer is cached. That a topic does not exist is asked again each time. The last
// known answer serves when the name servers cannot be asked; an error means that there is none.
func (v *View) Topic(ctx context.Context, broker Broker, topic string) (Topic, error) {
	last, known, fresh := v.topics.look(broker.Name, topic)
	if fresh {
		return last, nil
	}
	ended := v.flights.DoChan("topic "+topic, func() (any, error) { return nil, v.askTopic(topic) })
	var patience <-chan time.Time
	if known {
		patience = time.After(refreshPatience)
	}
	var err error
	select {
	case r := <-ended:
		err = r.Err
	case <-patience:
		return last, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if t, known, _ := v.topics.look(broker.Name, topic); known {
		return t, nil
	}
	return Topic{}, fmt.Errorf("topic %s on broker %s: %w", topic, broker.Name, err)
}

// WriteQueues returns how many queues of a topic a broker lets be written, from a fresh cache alone. When it
// does not know it asks for the next time. It never blocks.
func (v *View) WriteQueues(broker, topic string) (n int32, ok bool) {
	t, _, fresh := v.topics.look(broker, topic)
	if !fresh {
		v.flights.DoChan("topic "+topic, func() (any, error) { return nil, v.askTopic(topic) })
	}
	return t.WriteQueues, fresh
}

// askTopic brings one topic up to date. It serves many callers, so that no one's context ends it.
func (v *View) askTopic(topic string) error {
	brokers, err := v.route(topic)
	if err != nil {
		v.topics.extend(topic, min(retryPause, v.o.TopicTTL))
		return err
	}
	v.topics.store(topic, brokers, v.o.TopicTTL)
	return nil
}

// route returns the brokers of a topic, none when it does not exist.
func (v *View) route(topic string) (map[string]Topic, error) {
	r, err := v.o.NameServers.Call(context.Background(), newRequest(codec.ReqGetRouteInfoByTopic, codec.Fields{
		{Name: "topic", Value: topic}, {Name: "acceptStandardJsonOnly", Value: "true"},
	}))
	switch {
	case err != nil:
		return nil, err
	case r.Code == codec.RespTopicNotExist:
		return map[string]Topic{}, nil
	case r.Code != codec.RespSuccess:
		return nil, &ReplyError{Code: r.Code, Remark: r.Remark}
	}
	route, err := codec.ParseRoute(r.Body)
	if err != nil {
		return nil, err
	}
	brokers := make(map[string]Topic, len(route.Queues))
	for _, q := range route.Queues {
		brokers[q.BrokerName] = Topic{Exists: true, Perm: q.Perm, ReadQueues: q.ReadQueueNums, WriteQueues: q.WriteQueueNums}
	}
	return brokers, nil
}

// CreateTopic creates a topic (UPDATE_AND_CREATE_TOPIC, 17) on the master of that broker's name, with as
// many queues to read as to write. From then on Topic says that it exists. A *ReplyError says why the
// broker refused.
func (v *View) CreateTopic(ctx context.Context, broker Broker, topic string, queues, perm int32) error {
	what := func(err error) error { return fmt.Errorf("create topic %s on broker %s: %w", topic, broker.Name, err) }
	addr := broker.Addr
	if broker.ID != 0 {
		var ok bool
		if addr, ok = v.Master(broker.Name); !ok {
			return what(fmt.Errorf("%w: %w", ErrNotSent, errNoMaster))
		}
	}
	n := strconv.Itoa(int(queues))
	r, err := v.o.Client.repeatable(ctx, addr, newRequest(codec.ReqUpdateAndCreateTopic, codec.Fields{
		{Name: "topic", Value: topic},
		{Name: "defaultTopic", Value: "TBW102"},
		{Name: "readQueueNums", Value: n},
		{Name: "writeQueueNums", Value: n},
		{Name: "perm", Value: strconv.Itoa(int(perm))},
		{Name: "topicFilterType", Value: "SINGLE_TAG"},
		{Name: "topicSysFlag", Value: "0"},
		{Name: "order", Value: "false"},
	}))
	if err != nil {
		return what(err)
	}
	if r.Code != codec.RespSuccess {
		return what(&ReplyError{Code: r.Code, Remark: r.Remark})
	}
	v.topics.created(broker.Name, topic, Topic{Exists: true, Perm: perm, ReadQueues: queues, WriteQueues: queues}, v.o.TopicTTL)
	return nil
}
