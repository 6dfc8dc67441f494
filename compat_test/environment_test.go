package compat_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/delaygate/delaygate/compat_test/client"
	"github.com/delaygate/delaygate/compat_test/cluster"
	"github.com/delaygate/delaygate/compat_test/process"
	"github.com/delaygate/delaygate/compat_test/proxy"
	"github.com/delaygate/delaygate/compat_test/toolchain"
)

const (
	// upstreamHost is where all real servers are.
	upstreamHost = "127.7.7.7"
	// brokerA has default settings and is never stopped.
	brokerA = "broker-a"
	// brokerB has a level table of seconds; tests stop and start it.
	brokerB = "broker-b"
)

// shortLevels is the level table of brokerB: sixteen retries within half a minute.
var shortLevels = []int{1, 1, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4}

func shortLevelTable() string {
	var b strings.Builder
	for _, s := range shortLevels {
		fmt.Fprintf(&b, "%ds ", s)
	}
	return strings.TrimSpace(b.String())
}

// environment is all that the tests share. Everything starts on first use.
type environment struct {
	ctx    context.Context
	tools  *toolchain.Toolchain
	group  *process.Group
	ports  process.Ports
	dir    string
	direct bool
	keep   bool

	binary   func() (string, error)
	clusters map[string]func() (*cluster.Cluster, error)
	drivers  map[string]func() (*client.Driver, error)
	shared   map[string]func() (*proxy.Proxy, error)
	fixtures map[string]func() (*fixture, error)

	// whole is held for reading by tests that need brokerB, for writing while it is down; by version.
	whole map[string]*sync.RWMutex

	mu      sync.Mutex
	proxies []*proxy.Proxy
}

func newEnvironment(ctx context.Context) (*environment, error) {
	tools, err := toolchain.New(".", os.Stderr)
	if err != nil {
		return nil, err
	}
	if err := tools.Setup(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "delaygate-compat-")
	if err != nil {
		return nil, err
	}
	e := &environment{
		ctx: ctx, tools: tools, group: process.NewGroup(), dir: dir,
		direct:   os.Getenv("DELAYGATE_COMPAT_TARGET") == "direct",
		clusters: map[string]func() (*cluster.Cluster, error){},
		drivers:  map[string]func() (*client.Driver, error){},
		shared:   map[string]func() (*proxy.Proxy, error){},
		fixtures: map[string]func() (*fixture, error){},
		whole:    map[string]*sync.RWMutex{},
	}
	e.binary = sync.OnceValues(func() (string, error) {
		return tools.GoBuild(ctx, "delaygate-compat", "./cmd/proxy", raceFlags...)
	})
	for _, v := range toolchain.Versions {
		e.whole[v] = &sync.RWMutex{}
		e.clusters[v] = sync.OnceValues(func() (*cluster.Cluster, error) { return e.startCluster(v) })
		e.shared[v] = sync.OnceValues(func() (*proxy.Proxy, error) { return e.startProxy(v, "shared") })
		e.drivers["java-"+v] = sync.OnceValues(func() (*client.Driver, error) { return e.startJava(v) })
	}
	e.drivers["go"] = sync.OnceValues(e.startGo)
	for _, p := range pairs() {
		e.fixtures[p.String()] = sync.OnceValues(func() (*fixture, error) { return newFixture(p) })
	}
	return e, nil
}

// close kills all children. The folder with their logs stays when a test failed.
func (e *environment) close() {
	e.group.Close()
	if e.keep {
		fmt.Fprintln(os.Stderr, "logs of servers, proxies and clients are kept in", e.dir)
		return
	}
	_ = os.RemoveAll(e.dir)
}

// verdict looks through what the proxies wrote for what no test may overlook.
func (e *environment) verdict() error {
	var errs []error
	for _, p := range e.proxies {
		b, err := os.ReadFile(p.LogFile())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, word := range []string{"DATA RACE", "panic"} {
			if i := bytes.Index(b, []byte(word)); i >= 0 {
				errs = append(errs, fmt.Errorf("a proxy wrote %q; %s:\n%s", word, p.LogFile(), b[max(0, i-200):min(len(b), i+4000)]))
				break
			}
		}
	}
	return errors.Join(errs...)
}

func (e *environment) startCluster(version string) (*cluster.Cluster, error) {
	return cluster.Start(e.ctx, cluster.Options{
		Group: e.group, Ports: &e.ports, Version: version, Libs: e.tools.LibDir(version),
		Dir: filepath.Join(e.dir, version), Host: upstreamHost,
		Brokers: map[string]map[string]string{
			brokerA: {},
			brokerB: {"messageDelayLevel": shortLevelTable()},
		},
	})
}

// startProxy starts a proxy of its own in front of a cluster.
func (e *environment) startProxy(version, name string, env ...string) (*proxy.Proxy, error) {
	p, err := e.newProxy(version, name, env...)
	if err != nil {
		return nil, err
	}
	return p, p.Start(e.ctx)
}

func (e *environment) newProxy(version, name string, env ...string) (*proxy.Proxy, error) {
	if e.direct {
		return nil, errors.New("this test is about the proxy: run it without DELAYGATE_COMPAT_TARGET=direct")
	}
	c, err := e.clusters[version]()
	if err != nil {
		return nil, err
	}
	binary, err := e.binary()
	if err != nil {
		return nil, err
	}
	p, err := proxy.New(proxy.Options{
		Group: e.group, Ports: &e.ports, Binary: binary, Upstream: c.NameServer,
		Dir: filepath.Join(e.dir, version, "proxy-"+name), Env: env,
	})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.proxies = append(e.proxies, p)
	e.mu.Unlock()
	return p, nil
}

func (e *environment) startJava(version string) (*client.Driver, error) {
	dir := filepath.Join(e.dir, "java-"+version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	args := append(cluster.JVMFlags(dir, 160), "-Xss512k", "-Drocketmq.client.logLevel=WARN", "-Drocketmq.client.rebalance.waitInterval=2000",
		"-cp", e.tools.DriverDir(version)+":"+filepath.Join(e.tools.LibDir(version), "*"), "Driver")
	return client.Start(e.ctx, e.group, "java-"+version, process.Spec{
		Name: "Java driver " + version, Path: "java", Args: args, Dir: dir, Log: filepath.Join(dir, "log"),
	})
}

func (e *environment) startGo() (*client.Driver, error) {
	dir := filepath.Join(e.dir, "go")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	binary, err := e.tools.GoBuild(e.ctx, "driver-go", "./compat_test/driver/go")
	if err != nil {
		return nil, err
	}
	return client.Start(e.ctx, e.group, "go", process.Spec{
		Name: "Go driver", Path: binary, Dir: dir, Env: []string{"HOME=" + dir}, Log: filepath.Join(dir, "log"),
	})
}

// target is what clients of a cluster use as namesrvAddr.
func (e *environment) target(version string) (string, error) {
	c, err := e.clusters[version]()
	if err != nil || e.direct {
		return c.NameServer, err
	}
	p, err := e.shared[version]()
	if err != nil {
		return "", err
	}
	return p.NameServer, nil
}

// must returns a value or ends the test.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eachVersion runs a test against both clusters side by side.
func eachVersion(t *testing.T, f func(t *testing.T, version string)) {
	for _, v := range toolchain.Versions {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			f(t, v)
		})
	}
}

// eachPair runs a test with every client library against every cluster, side by side.
func eachPair(t *testing.T, f func(t *testing.T, p pair)) {
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			f(t, p)
		})
	}
}

// pair is a client library and a cluster.
type pair struct {
	kind    string
	version string
}

// String names the pair with letters that topics and groups allow.
func (p pair) String() string { return strings.ReplaceAll(p.kind+"-on-"+p.version, ".", "_") }

// holdsTimers tells whether TIMER_* properties are honoured: always by the proxy, by brokers from 5.0 on.
func (p pair) holdsTimers() bool { return !suite.direct || strings.HasPrefix(p.version, "5.") }

var clientKinds = []string{"java-4.9.7", "java-5.5.0", "go"}

func pairs() []pair {
	var all []pair
	for _, k := range clientKinds {
		for _, v := range toolchain.Versions {
			all = append(all, pair{k, v})
		}
	}
	return slices.Clip(all)
}
