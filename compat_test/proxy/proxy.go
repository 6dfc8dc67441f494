// Package proxy runs the real delaygate binary in front of a cluster: start, kill -9, restart on the same
// folder, stop in order.
package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/delaygate/delaygate/compat_test/process"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	brokerPorts  = 100
)

// Options describes a proxy.
type Options struct {
	Group *process.Group
	Ports *process.Ports
	// Binary is the built proxy.
	Binary string
	// Upstream is the real name server.
	Upstream string
	// Dir is where the data folder and the log go.
	Dir string
	// Env is added to the environment.
	Env []string
}

// Proxy is a delaygate process and its folder. It keeps its addresses over restarts.
type Proxy struct {
	// NameServer is what clients use as namesrvAddr.
	NameServer string
	// Admin is the base URL of the admin server.
	Admin string

	o     Options
	ports string
	proc  *process.Process
}

// New chooses ports; Start starts the process.
func New(o Options) (*Proxy, error) {
	first, err := o.Ports.Block(brokerPorts + 20)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return &Proxy{
		NameServer: fmt.Sprintf("127.0.0.1:%d", first),
		Admin:      fmt.Sprintf("http://127.0.0.1:%d", first+1),
		ports:      fmt.Sprintf("%d-%d", first+10, first+10+brokerPorts),
		o:          o,
	}, nil
}

// Start starts the process on its folder and waits until it is ready.
func (p *Proxy) Start(ctx context.Context, env ...string) error {
	proc, err := p.o.Group.Start(process.Spec{
		Name: "delaygate", Path: p.o.Binary, Dir: p.o.Dir, Log: p.LogFile(),
		Args: []string{
			"serve", "--listen", p.NameServer, "--upstream", p.o.Upstream, "--data", filepath.Join(p.o.Dir, "data"),
			"--broker-ports", p.ports, "--admin", strings.TrimPrefix(p.Admin, "http://"),
		},
		Env: append(append([]string{}, p.o.Env...), env...),
	})
	if err != nil {
		return err
	}
	p.proc = proc
	return p.waitReady(ctx)
}

func (p *Proxy) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		_, err := p.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-p.proc.Done():
			return fmt.Errorf("delaygate ended while starting: %v; its log:\n%s", p.proc.Err(), p.Log())
		case <-ctx.Done():
			return fmt.Errorf("delaygate is not ready: %w; its log:\n%s", err, p.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Use makes the next start run another binary.
func (p *Proxy) Use(binary string) { p.o.Binary = binary }

// Kill ends the process as kill -9 does.
func (p *Proxy) Kill() { p.proc.Kill() }

// Stop ends the process by SIGTERM and checks that it says goodbye in order.
func (p *Proxy) Stop() error { return p.proc.Terminate(stopTimeout, 0) }

// Running tells whether the process is alive.
func (p *Proxy) Running() bool {
	select {
	case <-p.proc.Done():
		return false
	default:
		return true
	}
}

// Log returns the end of the log of all its lives.
func (p *Proxy) Log() string { return p.proc.Tail(8 << 10) }

// LogFile is where the process writes, in all its lives.
func (p *Proxy) LogFile() string { return filepath.Join(p.o.Dir, "log") }

// Metric reads one metric without labels; several with the same name are summed.
func (p *Proxy) Metric(ctx context.Context, name string) (float64, error) {
	text, err := p.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || (fields[0] != name && !strings.HasPrefix(fields[0], name+"{")) {
			continue
		}
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}

func (p *Proxy) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: status %d: %s", path, resp.StatusCode, strings.TrimSpace(string(b)))
	}
	return string(b), nil
}
