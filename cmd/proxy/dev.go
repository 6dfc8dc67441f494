package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/delaygate/delaygate/internal/config"
	"github.com/delaygate/delaygate/internal/fakemq"
)

type devCmd struct {
	Listen string `help:"Where clients ask for routes: their namesrvAddr." default:"127.0.0.1:9876" placeholder:"HOST:PORT"`
	Admin  string `help:"HTTP for health and metrics." default:"127.0.0.1:9880" placeholder:"HOST:PORT"`
	Data   string `help:"Folder for pending messages; a temporary one, removed at the end, unless given." placeholder:"DIR"`
}

func (c *devCmd) Run(p *process) (err error) {
	embedded, err := c.cluster()
	if err != nil {
		return err
	}
	cluster, err := fakemq.Start(embedded)
	if err != nil {
		return fmt.Errorf("embedded cluster: %w", err)
	}
	defer cluster.Close()
	data, remove, err := c.folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	cfg, _, err := config.Load(config.Sources{Environ: p.environ, Flags: map[string]string{
		"listen": c.Listen, "admin": c.Admin, "data": data, "upstream": strings.Join(cluster.NameServerAddrs(), ";"), "log.level": "warn",
	}})
	if err != nil {
		return err
	}
	a, err := start(cfg, newLogger(p.stderr, cfg.Log))
	if err != nil {
		return err
	}
	c.greet(p, a.admin.Addr(), data)
	<-p.ctx.Done()
	return a.close()
}

// devBrokerOffset is the distance between the ports of a name server and a broker in RocketMQ's defaults.
const devBrokerOffset = 10911 - 9876

// cluster describes the embedded cluster. With a folder that outlives the process its broker has the same
// address each time, as the address book expects.
func (c *devCmd) cluster() (fakemq.Options, error) {
	if c.Data == "" {
		return fakemq.Options{}, nil
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fakemq.Options{}, fmt.Errorf("--listen %q is not HOST:PORT: %w", c.Listen, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n+devBrokerOffset > 65535 {
		return fakemq.Options{}, fmt.Errorf("--listen %q: with --data the port must be within 1 to %d", c.Listen, 65535-devBrokerOffset)
	}
	return fakemq.Options{Brokers: []fakemq.BrokerOptions{{Addr: fmt.Sprintf("127.0.0.1:%d", n+devBrokerOffset)}}}, nil
}

// folder returns the data folder and what to do with it at the end.
func (c *devCmd) folder() (dir string, remove func() error, err error) {
	if c.Data != "" {
		return c.Data, func() error { return nil }, nil
	}
	dir, err = os.MkdirTemp("", "delaygate-dev-")
	if err != nil {
		return "", nil, fmt.Errorf("temporary data folder: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

func (c *devCmd) greet(p *process, admin, data string) {
	host, port, _ := net.SplitHostPort(c.Listen)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	namesrv := net.JoinHostPort(host, port)
	fmt.Fprintf(p.stdout, `delaygate dev: an embedded name server and broker, in memory, behind the proxy

  point clients at   namesrvAddr = %s
  try it             go run ./examples/timed -namesrv %s -delay 3s
  health, metrics    http://%s/readyz  http://%s/metrics
  pending messages   %s

Topics are created on first use. Stop with Ctrl-C.
`, namesrv, namesrv, admin, admin, data)
}
