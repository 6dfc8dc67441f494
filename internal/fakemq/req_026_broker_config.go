package fakemq

import (
	"fmt"
	"strings"

	"github.com/delaygate/delaygate/codec"
)

// brokerConfig serves GET_BROKER_CONFIG (26): the settings that this broker has, as properties text.
func (b *Broker) brokerConfig(r *call) *codec.Command {
	reply := r.success(codec.Field{Name: "version", Value: `{"counter":1,"timestamp":0}`})
	reply.Body = []byte(b.configText())
	return reply
}

func (b *Broker) configText() string {
	_, port, _ := strings.Cut(b.Addr(), ":")
	lines := [][2]string{
		{"brokerClusterName", b.cluster.Name()},
		{"brokerName", b.Name()},
		{"brokerId", "0"},
		{"brokerRole", "ASYNC_MASTER"},
		{"brokerPermission", "6"},
		{"listenPort", port},
		{"autoCreateTopicEnable", fmt.Sprint(!b.opts.NoAutoCreateTopic)},
		{"autoCreateSubscriptionGroup", "true"},
		{"defaultTopicQueueNums", fmt.Sprint(b.opts.TopicQueues)},
		{"messageDelayLevel", b.levels.String()},
		{"maxMessageSize", fmt.Sprint(b.opts.MaxMessageSize)},
		{"flushDiskType", "ASYNC_FLUSH"},
	}
	if b.is5() {
		lines = append(lines,
			[2]string{"timerWheelEnable", "true"},
			[2]string{"timerPrecisionMs", fmt.Sprint(b.opts.TimerPrecision.Milliseconds())},
			[2]string{"timerMaxDelaySec", fmt.Sprint(int64(b.opts.TimerMaxDelay.Seconds()))},
		)
	}
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "%s=%s\n", l[0], l[1])
	}
	return text.String()
}
