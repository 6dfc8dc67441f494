package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaygate/delaygate/compat_test/process"
	"github.com/delaygate/delaygate/compat_test/raw"
)

// startTimeout bounds one start; a JVM takes a few seconds alone and many when all start at once.
const startTimeout = 120 * time.Second

// Options describes a cluster.
type Options struct {
	Group   *process.Group
	Ports   *process.Ports
	Version string
	// Libs is the folder of the version's jars.
	Libs string
	// Dir is where configuration, stores and logs go.
	Dir string
	// Host is the loopback address that brokers advertise.
	Host string
	// Brokers maps a name to the lines of broker.conf that differ from the default ones.
	Brokers map[string]map[string]string
}

// Cluster is a running name server with its brokers.
type Cluster struct {
	Version string
	// NameServer is host:port.
	NameServer string

	o       Options
	ns      *process.Process
	brokers map[string]*Broker
}

// Broker is one broker, running or not.
type Broker struct {
	Name string
	// Addr is the host:port that it advertises.
	Addr string

	c    *Cluster
	dir  string
	proc *process.Process
}

// Start starts the name server, then all brokers side by side, and waits until all are registered.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Version: o.Version, o: o, brokers: map[string]*Broker{}}
	if err := c.startNameServer(ctx); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Brokers)) {
		b, err := c.newBroker(name, o.Brokers[name])
		if err != nil {
			return nil, err
		}
		c.brokers[name] = b
	}
	var g errgroup.Group
	for _, b := range c.brokers {
		g.Go(func() error { return b.Start(ctx) })
	}
	return c, g.Wait()
}

// Broker returns a broker by name.
func (c *Cluster) Broker(name string) *Broker { return c.brokers[name] }

func (c *Cluster) startNameServer(ctx context.Context) error {
	port, err := c.o.Ports.Block(1)
	if err != nil {
		return err
	}
	c.NameServer = fmt.Sprintf("%s:%d", c.o.Host, port)
	dir := filepath.Join(c.o.Dir, "namesrv")
	conf, err := writeHome(dir, "namesrv", map[string]string{
		"listenPort":  fmt.Sprint(port),
		"bindAddress": c.o.Host,
		// a broker that was killed leaves the routes within seconds
		"scanNotActiveBrokerInterval": "1000",
	})
	if err != nil {
		return err
	}
	spec := javaSpec("name server "+c.Version, dir, c.o.Libs, 128, nil, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", conf)
	if c.ns, err = c.o.Group.Start(spec); err != nil {
		return err
	}
	return until(ctx, c.ns, "answers cluster info", func(ctx context.Context) error {
		_, err := raw.ClusterInfo(ctx, c.NameServer)
		return err
	})
}

func (c *Cluster) newBroker(name string, conf map[string]string) (*Broker, error) {
	first, err := c.o.Ports.Block(20)
	if err != nil {
		return nil, err
	}
	port := first + 10 // port-2 (VIP) and port+1 (HA) belong to it as well
	b := &Broker{Name: name, Addr: fmt.Sprintf("%s:%d", c.o.Host, port), c: c, dir: filepath.Join(c.o.Dir, name)}
	lines := map[string]string{
		"brokerClusterName": "DefaultCluster", "brokerName": name, "brokerId": "0",
		"brokerIP1": c.o.Host, "brokerIP2": c.o.Host, "bindAddress": c.o.Host,
		"namesrvAddr": c.NameServer, "listenPort": fmt.Sprint(port), "haListenPort": fmt.Sprint(port + 1),
		"storePathRootDir": filepath.Join(b.dir, "store"), "storePathCommitLog": filepath.Join(b.dir, "store", "commitlog"),
		"autoCreateTopicEnable": "true", "autoCreateSubscriptionGroup": "true",
		"registerBrokerTimeoutMills": "3000", "registerNameServerPeriod": "10000",
		"mappedFileSizeCommitLog": "67108864", "mappedFileSizeConsumeQueue": "600000",
		"diskMaxUsedSpaceRatio": "99", "flushDiskType": "ASYNC_FLUSH",
		// a shared two-core machine stalls a broker for seconds; its own flow control is not under test
		"waitTimeMillsInSendQueue": "20000", "osPageCacheBusyTimeOutMills": "20000",
		// so that a test can count a hundred thousand messages in few pulls
		"maxTransferCountOnMessageInMemory": "2000", "maxTransferBytesOnMessageInMemory": "4194304",
		"maxTransferCountOnMessageInDisk": "2000", "maxTransferBytesOnMessageInDisk": "4194304",
	}
	if strings.HasPrefix(c.Version, "5.") {
		maps.Copy(lines, map[string]string{
			"timerWheelEnable": "true", "timerMaxDelaySec": "3456000",
		})
	}
	maps.Copy(lines, conf)
	_, err = writeHome(b.dir, "broker", lines)
	return b, err
}

// writeHome lays out the home folder of a server and returns the path of its configuration.
func writeHome(dir, kind string, conf map[string]string) (string, error) {
	if err := os.MkdirAll(filepath.Join(dir, "conf"), 0o755); err != nil {
		return "", fmt.Errorf("cluster: %w", err)
	}
	xml := fmt.Sprintf(logback, filepath.Join(dir, "server.log"))
	if err := os.WriteFile(filepath.Join(dir, "conf", "logback_"+kind+".xml"), []byte(xml), 0o644); err != nil {
		return "", fmt.Errorf("cluster: %w", err)
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(conf)) {
		fmt.Fprintf(&b, "%s=%s\n", k, conf[k])
	}
	path := filepath.Join(dir, "conf", kind+".conf")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return "", fmt.Errorf("cluster: %w", err)
	}
	return path, nil
}

// Start starts the broker on its folder, which may hold what an earlier life left, and waits until it
// answers and the name server lists it.
func (b *Broker) Start(ctx context.Context) error {
	spec := javaSpec("broker "+b.Name+" "+b.c.Version, b.dir, b.c.o.Libs, 512,
		[]string{"-XX:MaxDirectMemorySize=512m"},
		"org.apache.rocketmq.broker.BrokerStartup", "-c", filepath.Join(b.dir, "conf", "broker.conf"))
	p, err := b.c.o.Group.Start(spec)
	if err != nil {
		return err
	}
	b.proc = p
	return until(ctx, p, "is registered and answers", func(ctx context.Context) error {
		info, err := raw.ClusterInfo(ctx, b.c.NameServer)
		if err != nil {
			return err
		}
		if _, ok := info.Brokers[b.Name]; !ok {
			return errors.New("not listed by the name server")
		}
		return raw.Ping(ctx, b.Addr)
	})
}

// Kill ends the broker at once, as kill -9 does.
func (b *Broker) Kill() { b.proc.Kill() }

// Stop ends the broker in order: it unregisters and flushes.
func (b *Broker) Stop() error { return b.proc.Terminate(30*time.Second, 143) }

// Log returns the end of what the broker printed.
func (b *Broker) Log() string { return b.proc.Tail(8 << 10) }

// until repeats check until it passes, the process ends, or the time is over.
func until(ctx context.Context, p *process.Process, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended while starting: %v; its output:\n%s", p.Name, p.Err(), p.Tail(4<<10))
		case <-ctx.Done():
			return fmt.Errorf("waited %v until %s %s: %w; its output:\n%s", startTimeout, p.Name, what, err, p.Tail(4<<10))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
