package fakemq

import (
	"encoding/json"

	"github.com/delaygate/delaygate/codec"
)

// checkClient serves CHECK_CLIENT_CONFIG (46), which clients send before they filter by anything but tags.
func (b *Broker) checkClient(r *call) *codec.Command {
	var body struct {
		Subscription struct {
			Kind string `json:"expressionType"`
		} `json:"subscriptionData"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return r.refuse(codec.RespSystemError, "client configuration: %v", err)
	}
	if !isTagExpression(body.Subscription.Kind) {
		return r.refuse(codec.RespSystemError, "The broker does not support consumer to filter message by %s", body.Subscription.Kind)
	}
	return r.success()
}
