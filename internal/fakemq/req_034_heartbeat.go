package fakemq

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/delaygate/delaygate/codec"
)

// heartbeatBody is the part of HeartbeatData that a broker looks at here; producers need no registration,
// because nothing is ever asked back from them.
type heartbeatBody struct {
	ClientID  string `json:"clientID"`
	Consumers []struct {
		Group         string `json:"groupName"`
		Subscriptions []struct {
			Topic      string       `json:"topic"`
			Expression string       `json:"subString"`
			Codes      []hashNumber `json:"codeSet"`
			Version    int64        `json:"subVersion"`
			Kind       string       `json:"expressionType"`
		} `json:"subscriptionDataSet"`
	} `json:"consumerDataSet"`
}

// hashNumber is a tag hash: a JSON number from most clients, a string from Go.
type hashNumber int64

func (n *hashNumber) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	*n = hashNumber(v)
	return err
}

// heartbeat serves HEART_BEAT (34): it creates groups and their retry topics, and tells all members of a
// group that has changed.
func (b *Broker) heartbeat(r *call) *codec.Command {
	var body heartbeatBody
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return r.refuse(codec.RespSystemError, "heartbeat: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range body.Consumers {
		subs := make(map[string]subscription, len(c.Subscriptions))
		for _, s := range c.Subscriptions {
			codes := make([]int64, len(s.Codes))
			for i, code := range s.Codes {
				codes[i] = int64(code)
			}
			subs[s.Topic] = subscription{s.Version, s.Kind, s.Expression, newTagFilter(s.Expression, codes)}
		}
		b.ensureRetryTopic(b.groupConfig(c.Group))
		if b.register(c.Group, r.conn, body.ClientID, subs) {
			b.notifyMembers(c.Group, b.groups[c.Group])
		}
	}
	return r.success()
}
