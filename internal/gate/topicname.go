package gate

import (
	"strconv"
	"strings"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
)

const (
	retryPrefix  = "%RETRY%"
	deadPrefix   = "%DLQ%"
	systemPrefix = "rmq_sys_"
	wheelTopic   = "rmq_sys_wheel_timer"
	autoCreate   = "TBW102"
)

// systemTopics are the broker's own (TopicValidator of 4.9.7 and 5.5.0), but for those named after brokers and
// clusters and those with systemPrefix.
var systemTopics = map[string]bool{
	autoCreate:                            true,
	"SCHEDULE_TOPIC_XXXX":                 true,
	"BenchmarkTest":                       true,
	"RMQ_SYS_TRANS_HALF_TOPIC":            true,
	"RMQ_SYS_TRACE_TOPIC":                 true,
	"RMQ_SYS_TRANS_OP_HALF_TOPIC":         true,
	"TRANS_CHECK_MAX_TIME_TOPIC":          true,
	"SELF_TEST_TOPIC":                     true,
	"OFFSET_MOVED_EVENT":                  true,
	"CHECKPOINT_TOPIC":                    true,
	"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC":    true,
	"RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": true,
}

// isSystemTopic: TopicConfigManager adds the topics named after the broker, its cluster and the cluster's replies.
func isSystemTopic(topic string, b upstream.Broker) bool {
	return systemTopics[topic] || strings.HasPrefix(topic, systemPrefix) ||
		topic == b.Name || topic == b.Cluster || topic == b.Cluster+"_REPLY_TOPIC"
}

func isRetryTopic(topic string) bool { return strings.HasPrefix(topic, retryPrefix) }

const (
	topicMaxLength = 127
	groupMaxLength = 255 // of %RETRY% and %DLQ% topics, in later versions
)

// Versions of brokers, ordinals of MQVersion.
const (
	version349 = 121 // clients from here on send maxReconsumeTimes
	version500 = 413
	version531 = 475
	version533 = 479
)

// dialect is how a version of the broker words its refusals. A broker that has not told its version is taken
// for a late one.
type dialect struct{ version int32 }

func (d dialect) is5() bool { return d.version == 0 || d.version >= version500 }

// badParameter is the code for an illegal topic name or queue id: 29 after 5.3.1, 1 up to there.
func (d dialect) badParameter() int32 {
	if d.version == 0 || d.version > version531 {
		return codec.RespInvalidParameter
	}
	return codec.RespSystemError
}

// illegalTopic checks a topic's name as TopicValidator.validateTopic does; nil when it is legal.
func (d dialect) illegalTopic(topic string) *refusal {
	wordy := d.version == 0 || d.version > version533
	limit, what := topicMaxLength, "The specified topic: "
	if wordy && (isRetryTopic(topic) || strings.HasPrefix(topic, deadPrefix)) {
		limit, what = groupMaxLength, "The specified topic is DLQ or Retry topic: "
	}
	switch {
	case strings.TrimSpace(topic) == "":
		return &refusal{d.badParameter(), "The specified topic is blank."}
	case strings.ContainsFunc(topic, illegalInTopic):
		const allowed = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
		if wordy {
			return &refusal{d.badParameter(), "The specified topic: " + topic + ", " + allowed}
		}
		return &refusal{d.badParameter(), "The specified topic " + allowed}
	case len(topic) <= limit:
		return nil
	case !wordy:
		return &refusal{d.badParameter(), "The specified topic is longer than topic max length."}
	case limit == groupMaxLength:
		return &refusal{d.badParameter(), what + topic + ", and it's longer than topic max length: " + strconv.Itoa(limit)}
	default:
		return &refusal{d.badParameter(), what + topic + ", is longer than topic max length: " + strconv.Itoa(limit)}
	}
}

func illegalInTopic(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return r != '%' && r != '|' && r != '_' && r != '-'
}

// noTopic is the broker's answer when a topic neither exists nor may be created.
func (d dialect) noTopic(topic string) *refusal {
	url := "http://rocketmq.apache.org/docs/faq/"
	if d.is5() {
		url = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
	}
	return &refusal{codec.RespTopicNotExist,
		"topic[" + topic + "] not exist, apply first please!\nSee " + url + " for further details."}
}
