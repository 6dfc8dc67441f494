package fakemq

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Cluster is a running set of name servers and brokers.
type Cluster struct {
	opts        Options
	nameServers []*NameServer
	brokers     []*Broker
	arrivals    signal
	connSeq     atomic.Int64

	hooksMu sync.Mutex
	hooks   []*hook // the newest first; replaced, never changed in place
}

// Start listens on every address and serves. The returned cluster must be closed.
func Start(opts Options) (*Cluster, error) {
	opts = opts.withDefaults()
	if err := opts.check(); err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts}
	if err := c.start(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start() error {
	for _, o := range c.opts.Brokers {
		b, err := newBroker(c, o)
		if err != nil {
			return err
		}
		c.brokers = append(c.brokers, b)
		if err := b.Restart(); err != nil {
			return err
		}
	}
	for i, addr := range c.opts.NameServers {
		n := newNameServer(c, i, addr)
		c.nameServers = append(c.nameServers, n)
		if err := n.Restart(); err != nil {
			return err
		}
	}
	return nil
}

// Close stops everything and returns when all goroutines have ended. Messages can still be inspected.
func (c *Cluster) Close() {
	for _, n := range c.nameServers {
		n.Stop()
	}
	for _, b := range c.brokers {
		b.Stop()
	}
}

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.opts.Cluster }

// NameServerAddrs lists the name servers' addresses, for a client's configuration.
func (c *Cluster) NameServerAddrs() []string {
	addrs := make([]string, len(c.nameServers))
	for i, n := range c.nameServers {
		addrs[i] = n.Addr()
	}
	return addrs
}

// NameServers lists the name servers in the order of Options.
func (c *Cluster) NameServers() []*NameServer { return slices.Clone(c.nameServers) }

// Brokers lists the brokers in the order of Options.
func (c *Cluster) Brokers() []*Broker { return slices.Clone(c.brokers) }

// Broker returns the broker of that name; nil if there is none.
func (c *Cluster) Broker(name string) *Broker {
	for _, b := range c.brokers {
		if b.Name() == name {
			return b
		}
	}
	return nil
}

// CreateTopic creates or changes a topic on every broker, readable and writable, with so many queues on
// each.
func (c *Cluster) CreateTopic(topic string, queues int32) {
	for _, b := range c.brokers {
		b.CreateTopic(topic, queues, permRead|permWrite)
	}
}

// CreateGroup creates a consumer group and its retry topic on every broker. A group is otherwise created by
// its first heartbeat, and clients then look for the retry topic only at their next route poll, 30 s later.
func (c *Cluster) CreateGroup(name string) {
	for _, b := range c.brokers {
		b.CreateGroup(GroupConfig{Name: name})
	}
}

// registered lists the brokers that name servers know at this moment.
func (c *Cluster) registered() []*Broker {
	var list []*Broker
	for _, b := range c.brokers {
		if b.registered.Load() {
			list = append(list, b)
		}
	}
	return list
}
