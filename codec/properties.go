package codec

import "strings"

// Names of message properties that decide or describe something here.
const (
	PropDelay            = "DELAY"
	PropTimerDeliverMs   = "TIMER_DELIVER_MS"
	PropTimerDelayMs     = "TIMER_DELAY_MS"
	PropTimerDelaySec    = "TIMER_DELAY_SEC"
	PropTimerOutMs       = "TIMER_OUT_MS"
	PropTimerDelUniqKey  = "TIMER_DEL_UNIQKEY"
	PropTimerRollTimes   = "TIMER_ROLL_TIMES"
	PropTimerEnqueueMs   = "TIMER_ENQUEUE_MS"
	PropTimerDequeueMs   = "TIMER_DEQUEUE_MS"
	PropStartDeliverTime = "__STARTDELIVERTIME"
	PropRealTopic        = "REAL_TOPIC"
	PropRealQueueID      = "REAL_QID"
	PropUniqKey          = "UNIQ_KEY"
	PropBornHost         = "__BORNHOST"
	PropTransPrepared    = "TRAN_MSG"
	PropProducerGroup    = "PGROUP"
	PropKeys             = "KEYS"
	PropTags             = "TAGS"
	PropShardingKey      = "__SHARDINGKEY"
	PropMsgRegion        = "MSG_REGION"
	PropTraceOn          = "TRACE_ON"
	PropCluster          = "CLUSTER"
	PropRetryTopic       = "RETRY_TOPIC"
	PropOriginMessageID  = "ORIGIN_MESSAGE_ID"
	PropReconsumeTime    = "RECONSUME_TIME"
	PropMaxReconsume     = "MAX_RECONSUME_TIMES"
	PropWait             = "WAIT"
)

const (
	nameValueSeparator = "\x01"
	propertySeparator  = "\x02"
)

// Property is one user or system property of a message.
type Property struct{ Name, Value string }

// Properties are a message's properties in the order of the wire.
type Properties []Property

// ParseProperties reads a property string by the rules of the brokers' reader (MessageDecoder,
// 4.x and 5.x): entries end with 0x02, the last end may be missing, the first 0x01 parts name and value,
// and entries with an empty name or value are dropped.
func ParseProperties(s string) Properties {
	var p Properties
	for s != "" {
		var entry string
		entry, s, _ = strings.Cut(s, propertySeparator)
		name, value, ok := strings.Cut(entry, nameValueSeparator)
		if ok && name != "" && value != "" {
			p = append(p, Property{name, value})
		}
	}
	return p
}

// Get returns the value of name; of several the last, as in a broker's map.
func (p Properties) Get(name string) (string, bool) {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i].Name == name {
			return p[i].Value, true
		}
	}
	return "", false
}

// Set gives name a single value.
func (p *Properties) Set(name, value string) {
	p.Del(name)
	*p = append(*p, Property{name, value})
}

// Del removes every entry called one of names.
func (p *Properties) Del(names ...string) {
	kept := (*p)[:0]
next:
	for _, e := range *p {
		for _, n := range names {
			if e.Name == n {
				continue next
			}
		}
		kept = append(kept, e)
	}
	*p = kept
}

// String renders the properties with every separator, as 5.2 and later clients do.
func (p Properties) String() string {
	var b strings.Builder
	for _, e := range p {
		b.WriteString(e.Name)
		b.WriteString(nameValueSeparator)
		b.WriteString(e.Value)
		b.WriteString(propertySeparator)
	}
	return b.String()
}
