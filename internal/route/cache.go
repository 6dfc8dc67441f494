package route

import (
	"container/list"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// keptBytes bounds the bodies of kept replies.
const keptBytes = 64 << 20

// strictVersion (V4_9_4) is the client version from which a name server writes strict JSON.
const strictVersion = 401

// replyCache keeps the latest good reply to each question, the least recently used goes first.
type replyCache struct {
	entries int
	bytes   int
	age     time.Duration

	mu    sync.Mutex
	size  int
	byKey map[string]*list.Element
	order list.List // front: used last
}

type keptReply struct {
	key   string
	reply *codec.Command
	at    time.Time
}

func newReplyCache(entries, bytes int, age time.Duration) *replyCache {
	return &replyCache{entries: entries, bytes: bytes, age: age, byKey: map[string]*list.Element{}}
}

func (k *keptReply) cost() int { return len(k.key) + len(k.reply.Body) }

func (rc *replyCache) put(key string, r *codec.Command, now time.Time) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.remove(key)
	k := &keptReply{key: key, reply: r, at: now}
	rc.byKey[key] = rc.order.PushFront(k)
	rc.size += k.cost()
	for len(rc.byKey) > rc.entries || rc.size > rc.bytes {
		rc.remove(rc.order.Back().Value.(*keptReply).key)
	}
}

// get returns nil when there is no reply, or it is too old. The caller must not change it.
func (rc *replyCache) get(key string, now time.Time) *codec.Command {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	e, ok := rc.byKey[key]
	if !ok {
		return nil
	}
	k := e.Value.(*keptReply)
	if now.Sub(k.at) > rc.age {
		rc.remove(key)
		return nil
	}
	rc.order.MoveToFront(e)
	return k.reply
}

func (rc *replyCache) drop(key string) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.remove(key)
}

func (rc *replyCache) remove(key string) {
	e, ok := rc.byKey[key]
	if !ok {
		return
	}
	rc.order.Remove(e)
	delete(rc.byKey, key)
	rc.size -= e.Value.(*keptReply).cost()
}

// cacheKey holds all that a reply may depend on: the fields, as zones (__ZONE_NAME, __ZONE_MODE) and
// credentials are among them, and whether the version asks for strict JSON.
func cacheKey(c *codec.Command) string {
	fields := slices.Clone(c.Fields)
	slices.SortFunc(fields, func(a, b codec.Field) int {
		if d := strings.Compare(a.Name, b.Name); d != 0 {
			return d
		}
		return strings.Compare(a.Value, b.Value)
	})
	key := strconv.AppendInt(nil, int64(c.Code), 10)
	key = strconv.AppendBool(append(key, ' '), c.Version >= strictVersion)
	for _, f := range fields {
		key = strconv.AppendQuote(append(key, ' '), f.Name)
		key = strconv.AppendQuote(append(key, '='), f.Value)
	}
	return string(key)
}
