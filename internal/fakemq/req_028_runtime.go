package fakemq

import (
	"fmt"

	"github.com/delaygate/delaygate/codec"
)

// runtimeInfo serves GET_BROKER_RUNTIME_INFO (28) with the part of the table that can be told here.
func (b *Broker) runtimeInfo(r *call) *codec.Command {
	b.mu.Lock()
	table := map[string]string{
		"brokerVersion":       fmt.Sprint(b.opts.Version),
		"brokerActive":        "true",
		"msgPutTotalTodayNow": fmt.Sprint(b.log.count),
		"commitLogMaxOffset":  fmt.Sprint(b.log.end),
		"commitLogMinOffset":  fmt.Sprint(b.log.start()),
		"timerReadBehind":     "0",
		"pendingDelays":       fmt.Sprint(len(b.delays)),
	}
	b.mu.Unlock()
	return r.successJSON(struct {
		Table map[string]string `json:"table"`
	}{table})
}
