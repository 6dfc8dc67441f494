package fakemq

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/delaygate/delaygate/levels"
)

// MQVersion ordinals that change a broker's behaviour (RocketMQ common, MQVersion).
const (
	Version497 int32 = 407
	Version500 int32 = 413
	Version533 int32 = 479
)

// Options describe a cluster. The zero value is one name server and one broker on free ports of 127.0.0.1.
type Options struct {
	Cluster     string           // name of the cluster; "DefaultCluster" if empty
	NameServers []string         // listen addresses "IP:port", port 0 for a free one; one on 127.0.0.1 if nil
	Brokers     []BrokerOptions  // one with default settings if nil
	Now         func() time.Time // the cluster's clock; the system's if nil
	Log         *slog.Logger     // discards if nil
}

// BrokerOptions describe a broker; a zero field takes the default, which is RocketMQ's unless said otherwise.
type BrokerOptions struct {
	Name              string        // "broker-a", "broker-b"... by position
	Addr              string        // "IP:port" to listen on and to advertise; default a free port of 127.0.0.1
	Version           int32         // MQVersion ordinal of replies; default Version533, below Version500 a 4.9.7 broker
	DelayLevels       string        // messageDelayLevel; default 1s 5s 10s 30s 1m ... 2h
	TimerPrecision    time.Duration // timerPrecisionMs, which rounds TIMER_OUT_MS only; default 1 s
	TimerMaxDelay     time.Duration // timerMaxDelaySec; default 3 days
	MaxMessageSize    int           // bytes of a body; default 4 MiB
	NoAutoCreateTopic bool          // autoCreateTopicEnable=false
	TopicQueues       int32         // queues of TBW102, the most an auto-created topic gets; default 8
	MaxMessages       int           // bound of the log, in messages; default 1 Mi
	MaxBytes          int64         // bound of the log, in bytes; default 256 MiB
}

const anyLoopbackPort = "127.0.0.1:0"

func (o Options) withDefaults() Options {
	if o.Cluster == "" {
		o.Cluster = "DefaultCluster"
	}
	if o.NameServers == nil {
		o.NameServers = []string{anyLoopbackPort}
	}
	if o.Brokers == nil {
		o.Brokers = []BrokerOptions{{}}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	brokers := make([]BrokerOptions, len(o.Brokers))
	for i, b := range o.Brokers {
		brokers[i] = b.withDefaults(i)
	}
	o.Brokers = brokers
	return o
}

func (o BrokerOptions) withDefaults(position int) BrokerOptions {
	setDefault(&o.Name, "broker-"+string(rune('a'+position%26)))
	setDefault(&o.Addr, anyLoopbackPort)
	setDefault(&o.Version, Version533)
	setDefault(&o.DelayLevels, levels.Default().String())
	setDefault(&o.TimerPrecision, time.Second)
	setDefault(&o.TimerMaxDelay, 72*time.Hour)
	setDefault(&o.MaxMessageSize, 4<<20)
	setDefault(&o.TopicQueues, 8)
	setDefault(&o.MaxMessages, 1<<20)
	setDefault(&o.MaxBytes, 256<<20)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check refuses what would surface as a puzzle later: two brokers of one name, an address that no
// client can be sent to.
func (o Options) check() error {
	names := make(map[string]bool)
	for _, b := range o.Brokers {
		if names[b.Name] {
			return fmt.Errorf("fakemq: two brokers are named %q; give each its own Name", b.Name)
		}
		names[b.Name] = true
		if err := checkAddr(b.Addr); err != nil {
			return fmt.Errorf("fakemq: broker %s: %w", b.Name, err)
		}
	}
	for _, addr := range o.NameServers {
		if err := checkAddr(addr); err != nil {
			return fmt.Errorf("fakemq: name server: %w", err)
		}
	}
	return nil
}

func checkAddr(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: %w; use IP:port", addr, err)
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		return fmt.Errorf("address %q: clients are sent to this very address; use a concrete IP", addr)
	}
	return nil
}
