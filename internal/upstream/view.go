package upstream

import (
	"context"
	"log/slog"
	"time"
)

// Broker is one broker instance of the cluster.
type Broker struct {
	Name    string
	Cluster string
	ID      int64  // 0 is the master
	Addr    string // host:port, as the broker registered it
}

// Topic is what one broker says about a topic.
type Topic struct {
	Exists      bool
	Perm        int32 // 4 read, 2 write, 1 inherit
	ReadQueues  int32
	WriteQueues int32
}

// Settings are the parts of a broker's configuration that matter to a proxy.
type Settings struct {
	MessageDelayLevel string // as written in the broker's configuration
	TimerPrecisionMs  int64
	MaxMessageSize    int // bytes of a message body
	AutoCreateTopic   bool
	BrokerPermission  int32 // 4 read, 2 write
	Version           int32 // ordinal of the broker's version, from the header of its reply
}

// DefaultSettings are a broker's own defaults (4.x and 5.x), with version 0: not known.
func DefaultSettings() Settings {
	return Settings{
		MessageDelayLevel: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
		TimerPrecisionMs:  1000,
		MaxMessageSize:    4 << 20,
		AutoCreateTopic:   true,
		BrokerPermission:  6,
	}
}

// ViewOptions configure a View. A zero field takes its default.
type ViewOptions struct {
	Client      *Client      // required
	NameServers *NameServers // required
	Log         *slog.Logger // default: nothing is logged
	// Refresh is the time between two polls of the cluster info; default 5 s. While nothing is known,
	// or the last poll failed, it is a tenth of this.
	Refresh time.Duration
	// TopicTTL is how long a topic that exists is served without asking again; default 5 s.
	TopicTTL time.Duration
	// Topics is the most topics remembered; default 10 000.
	Topics int
	// SettingsTTL is the time between two reads of a broker's configuration; default 1 min.
	SettingsTTL time.Duration
}

// View is what the proxy knows about the cluster. All methods may be called from any goroutine.
type View struct{ o ViewOptions }

// NewView returns a view that knows nothing until Seed, Refresh or Run.
func NewView(o ViewOptions) *View { return &View{o: o} }

// Run keeps the view up to date until ctx ends.
func (v *View) Run(ctx context.Context) {}

// Refresh asks for the cluster info once.
func (v *View) Refresh(ctx context.Context) error { return ErrNotSent }

// Known says whether cluster info has been received since the start.
func (v *View) Known() bool { return false }

// Seed tells brokers from an earlier life of the process; what was learnt since wins.
func (v *View) Seed(brokers []Broker) {}

// Brokers returns every broker ever seen, vanished ones included, sorted by name, id and address.
func (v *View) Brokers() []Broker { return nil }

// ByAddr returns the broker that registered addr.
func (v *View) ByAddr(addr string) (Broker, bool) { return Broker{}, false }

// Master returns the address of the broker with id 0 of that name: the last known one while there is none.
func (v *View) Master(name string) (addr string, ok bool) { return "", false }

// OnChange registers a function that gets all brokers after each change: a broker appeared, or its name,
// cluster or id changed. It is called on the goroutine of Run, Refresh or Seed, one call at a time.
func (v *View) OnChange(f func([]Broker)) {}

// Topic returns what is known of a topic on a broker, asking the name servers unless a fresh answer is
// cached. That a topic does not exist is asked again each time. The last known answer serves when the
// name servers cannot be asked; an error means that there is none.
func (v *View) Topic(ctx context.Context, broker Broker, topic string) (Topic, error) {
	return Topic{}, ErrNotSent
}

// CachedTopic returns a topic that is known to exist on the broker, from the cache alone. It never blocks.
func (v *View) CachedTopic(broker Broker, topic string) (Topic, bool) { return Topic{}, false }

// CreateTopic creates a topic on a master (UPDATE_AND_CREATE_TOPIC, 17) with as many queues to read as to
// write.
func (v *View) CreateTopic(ctx context.Context, broker Broker, topic string, queues, perm int32) error {
	return ErrNotSent
}

// Settings returns the settings of a broker, asking it (GET_BROKER_CONFIG, 26) unless they are cached.
// The last known ones serve while it cannot be asked; without any, it returns DefaultSettings and an error.
func (v *View) Settings(ctx context.Context, broker Broker) (Settings, error) {
	return DefaultSettings(), ErrNotSent
}

// CachedSettings returns the last known settings of a broker. It never blocks.
func (v *View) CachedSettings(broker Broker) (Settings, bool) { return Settings{}, false }
