package codec

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// Recall is what a recall handle says. A handle is base64url of items separated by blanks:
//
//	v1 topic broker dueMs uniqKey        from a broker (RocketMQ 5.3.2 and later, RecallMessageHandle)
//	v1 topic broker dueMs uniqKey lsn.id from a proxy; Java clients ignore what follows the fifth item. lsn is decimal, id hex
type Recall struct {
	Topic, Broker string
	DueMs         int64 // wall clock, ms since 1970
	UniqKey       string
	LSN           uint64 // place in the store; 0 unless Own
	Store         uint64 // identity of the store; 0 unless Own
	Own           bool   // the handle has the sixth item: the message is or was held by a proxy
}

const (
	recallVersion = "v1"
	recallItems   = 5

	// maxRecallHandle bounds a handle in bytes: a topic, a broker's name and a key are 255 bytes or a few more each.
	maxRecallHandle = 8 << 10
)

// RecallHandle writes a handle of a proxy whose store has that identity, padded as Java pads it. Topic, broker and key must not be empty
// nor hold a blank, since a handle with such an item reads back as another one or not at all: then "" is returned,
// and a reply should go without handle.
func RecallHandle(topic, broker string, dueMs int64, uniqKey string, lsn, store uint64) string {
	for _, item := range []string{topic, broker, uniqKey} {
		if item == "" || strings.Contains(item, " ") {
			return ""
		}
	}
	raw := strings.Join([]string{
		recallVersion, topic, broker, strconv.FormatInt(dueMs, 10), uniqKey,
		strconv.FormatUint(lsn, 10) + "." + strconv.FormatUint(store, 16),
	}, " ")
	if handle := base64.URLEncoding.EncodeToString([]byte(raw)); len(handle) <= maxRecallHandle {
		return handle
	}
	return ""
}

// ParseRecallHandle reads a handle, with or without padding. A sixth item of another form, or a seventh
// item, makes the handle one of somebody else: Own is false, no error.
func ParseRecallHandle(s string) (Recall, error) {
	if len(s) > maxRecallHandle {
		return Recall{}, frameErr(0, "recall handle of %d bytes: more than %d", len(s), maxRecallHandle)
	}
	if strings.ContainsAny(s, "\r\n") {
		return Recall{}, frameErr(0, "recall handle: line breaks are no base64url")
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return Recall{}, frameErr(0, "recall handle: expected base64url: %v", err)
	}
	items := strings.Split(string(raw), " ")
	if items[0] != recallVersion || len(items) < recallItems || items[4] == "" {
		return Recall{}, frameErr(0, "recall handle: expected %q, topic, broker, time and key", recallVersion)
	}
	due, err := strconv.ParseInt(items[3], 10, 64)
	if err != nil {
		return Recall{}, frameErr(0, "recall handle: time %q is no number of milliseconds", clip([]byte(items[3])))
	}
	r := Recall{Topic: items[1], Broker: items[2], DueMs: due, UniqKey: items[4]}
	if len(items) == recallItems+1 {
		r.LSN, r.Store, r.Own = parsePlace(items[recallItems])
	}
	return r, nil
}

// parsePlace reads the sixth item.
func parsePlace(s string) (lsn, store uint64, ok bool) {
	number, id, ok := strings.Cut(s, ".")
	if !ok {
		return 0, 0, false
	}
	lsn, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	if store, err = strconv.ParseUint(id, 16, 64); err != nil {
		return 0, 0, false
	}
	return lsn, store, true
}
