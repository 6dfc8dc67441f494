package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/delaygate/delaygate/codec"
)

// Broker is one broker instance of the cluster.
type Broker struct {
	Name    string
	Cluster string
	ID      int64  // 0 is the master
	Addr    string // host:port, as the broker registered it
}

// ViewOptions configure a View. A zero field takes its default.
type ViewOptions struct {
	Client      *Client      // required
	NameServers *NameServers // required
	Log         *slog.Logger // default: nothing is logged
	// Refresh is the time between two polls of the cluster info; default 5 s. While no broker is known
	// from the upstream, or the last poll failed, it is a tenth of this.
	Refresh time.Duration
	// TopicTTL is how long a topic that exists is served without asking again; default 5 s.
	TopicTTL time.Duration
	// Topics is the most topics remembered; default 10 000.
	Topics int
	// SettingsTTL is the time between two reads of a broker's configuration; default 1 min.
	SettingsTTL time.Duration
}

func (o ViewOptions) withDefaults() ViewOptions {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Refresh <= 0 {
		o.Refresh = 5 * time.Second
	}
	if o.TopicTTL <= 0 {
		o.TopicTTL = 5 * time.Second
	}
	if o.Topics <= 0 {
		o.Topics = 10_000
	}
	if o.SettingsTTL <= 0 {
		o.SettingsTTL = time.Minute
	}
	return o
}

// View is what the proxy knows about the cluster. All methods may be called from any goroutine.
type View struct {
	o       ViewOptions
	flights singleflight.Group

	change   sync.Mutex // held over a change of the brokers and its callbacks
	watchers []func([]Broker)
	failing  bool

	mu      sync.RWMutex
	brokers map[string]Broker // by address; never shrinks
	masters map[string]string // name -> address of the latest master
	live    bool              // brokers were received since the start

	topics   topicCache
	settings settingsCache
}

// NewView returns a view that knows nothing until Seed, Refresh or Run.
func NewView(o ViewOptions) *View {
	v := &View{o: o.withDefaults(), brokers: map[string]Broker{}, masters: map[string]string{}}
	v.topics.init(v.o.Topics)
	v.settings.init()
	return v
}

// Run keeps the brokers and their settings up to date until ctx ends.
func (v *View) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { v.followSettings(ctx) })
	defer wg.Wait()
	for {
		pause := v.o.Refresh
		if err := v.Refresh(ctx); err != nil || !v.Known() {
			pause /= 10
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Refresh asks for the cluster info (GET_BROKER_CLUSTER_INFO, 106) once.
func (v *View) Refresh(ctx context.Context) error {
	info, err := v.clusterInfo(ctx)
	v.change.Lock()
	defer v.change.Unlock()
	if ctx.Err() != nil && err != nil {
		return err
	}
	if failing := err != nil; failing != v.failing {
		v.failing = failing
		if failing {
			v.o.Log.Warn("the cluster cannot be asked for its brokers, the last known ones serve", "err", err)
		} else {
			v.o.Log.Info("the name servers answer again")
		}
	}
	if err != nil {
		return err
	}
	v.learn(liveBrokers(info), true)
	return nil
}

func (v *View) clusterInfo(ctx context.Context) (*codec.ClusterInfo, error) {
	r, err := v.o.NameServers.Call(ctx, newRequest(codec.ReqGetBrokerClusterInfo, nil))
	if err != nil {
		return nil, fmt.Errorf("cluster info: %w", err)
	}
	if r.Code != codec.RespSuccess {
		return nil, fmt.Errorf("cluster info: %w", &ReplyError{Code: r.Code, Remark: r.Remark})
	}
	info, err := codec.ParseClusterInfo(r.Body)
	if err != nil {
		return nil, fmt.Errorf("cluster info: %w", err)
	}
	return info, nil
}

// liveBrokers lists what a name server knows, in a fixed order.
func liveBrokers(info *codec.ClusterInfo) []Broker {
	var all []Broker
	for name, data := range info.Brokers {
		for id, addr := range data.BrokerAddrs {
			if addr != "" {
				all = append(all, Broker{Name: name, Cluster: data.Cluster, ID: id, Addr: addr})
			}
		}
	}
	slices.SortFunc(all, compareBrokers)
	return all
}

func compareBrokers(a, b Broker) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	if a.ID != b.ID {
		if a.ID < b.ID {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Addr, b.Addr)
}

// learn merges brokers and tells the watchers. The caller holds v.change.
func (v *View) learn(brokers []Broker, live bool) {
	changed := v.merge(brokers, live)
	if !changed {
		return
	}
	all := v.Brokers()
	for _, f := range v.watchers {
		f(slices.Clone(all))
	}
	v.settings.poke()
}

func (v *View) merge(brokers []Broker, live bool) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range brokers {
		old, known := v.brokers[b.Addr]
		if !live && (known || b.Name == "") {
			continue
		}
		if !known || old != b {
			v.brokers[b.Addr] = b
			changed = true
			v.o.Log.Info("broker", "name", b.Name, "id", b.ID, "addr", b.Addr, "cluster", b.Cluster, "seen_before", known)
		}
		if _, has := v.masters[b.Name]; b.ID == 0 && (live || !has) {
			v.masters[b.Name] = b.Addr
		}
	}
	if live && len(brokers) > 0 {
		v.live = true
	}
	return changed
}

// Known says whether brokers have been received from a name server since the start.
func (v *View) Known() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.live
}

// Seed tells brokers that some other source names: an earlier life of the process, or a route. What a
// cluster info says wins. Brokers without a name are ignored.
func (v *View) Seed(brokers []Broker) {
	v.change.Lock()
	defer v.change.Unlock()
	v.learn(brokers, false)
}

// Brokers returns every broker ever seen, vanished ones included, sorted by name, id and address.
func (v *View) Brokers() []Broker {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.SortedFunc(maps.Values(v.brokers), compareBrokers)
}

// ByAddr returns the broker that registered addr.
func (v *View) ByAddr(addr string) (Broker, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	b, ok := v.brokers[addr]
	return b, ok
}

// Master returns the address of the broker with id 0 of that name: the last known one while there is none.
func (v *View) Master(name string) (addr string, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	addr, ok = v.masters[name]
	return addr, ok
}

// OnChange registers a function that gets all brokers after each change: a broker appeared, or its name,
// cluster or id changed. It is called on the goroutine of Run, Refresh or Seed, one call at a time, and
// must not call these or OnChange.
func (v *View) OnChange(f func([]Broker)) {
	v.change.Lock()
	defer v.change.Unlock()
	v.watchers = append(v.watchers, f)
}

// ReplyError is a reply whose code says that the request failed.
type ReplyError struct {
	Code   int32
	Remark string
}

func (e *ReplyError) Error() string {
	if e.Remark == "" {
		return fmt.Sprintf("code %d", e.Code)
	}
	return fmt.Sprintf("code %d: %s", e.Code, e.Remark)
}

// requestVersion is the version that own requests carry: V5_3_3. From V4_9_4 (401) on a name server writes
// strict JSON, and above V5_3_1 (475) a server may answer GO_AWAY, which the client understands.
const requestVersion = 479

func newRequest(code int32, fields codec.Fields) *codec.Command {
	return &codec.Command{Code: code, Language: codec.LangGo, Version: requestVersion, Fields: fields}
}

var errNoMaster = errors.New("no master of this name is known")
