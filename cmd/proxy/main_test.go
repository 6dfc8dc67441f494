package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"delaygate": main})
}

// leakChecked runs the tests and looks for goroutines that they left.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	err := goleak.Find(
		// The relay's library keeps a worker pool for the life of the process.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// output is a buffer that a running command and a test share.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// command is one command line that runs.
type command struct {
	out, err output
	cancel   context.CancelFunc
	exit     chan int
}

func run(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &command{cancel: cancel, exit: make(chan int, 1)}
	go func() { c.exit <- execute(args, &process{ctx: ctx, stdout: &c.out, stderr: &c.err}) }()
	t.Cleanup(cancel)
	return c
}

// end asks the command to stop, as SIGTERM does, and returns its exit code.
func (c *command) end(t *testing.T) int {
	t.Helper()
	c.cancel()
	select {
	case code := <-c.exit:
		return code
	case <-time.After(30 * time.Second):
		t.Fatalf("the command does not end; it wrote:\n%s", c.err.String())
		return -1
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// devAddr returns an address whose port and the embedded broker's are free, below the ports that the system
// lends to outgoing connections.
func devAddr(t *testing.T) string {
	t.Helper()
	for port := 15000; port < 25000; port += 7 {
		if canListen("127.0.0.1", port) && canListen("127.0.0.1", port+devBrokerOffset) {
			return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
	}
	t.Fatal("no port is free")
	return ""
}

func status(url string) (int, string) {
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(b)
}

func await(t *testing.T, c *command, url string, want int) string {
	t.Helper()
	var code int
	var body string
	for range 200 {
		if code, body = status(url); code == want {
			return body
		}
		select {
		case exit := <-c.exit:
			t.Fatalf("the command ended with %d:\n%s", exit, c.err.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("%s: last answer %d %q, want %d", url, code, body, want)
	return ""
}

func TestAFailedStartIsOneLineThatSaysWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func(args ...string) []string {
		return append([]string{"serve", "--upstream", "127.0.0.1:1", "--admin", freeAddr(t), "--listen", freeAddr(t)}, args...)
	}
	for name, tc := range map[string]struct {
		args []string
		exit int
		want []string
	}{
		"unknown flag":      {serve("--colour", "red"), 2, []string{"--colour", "--help"}},
		"unknown command":   {[]string{"run"}, 2, []string{"run"}},
		"no upstream":       {[]string{"serve"}, 1, []string{"--upstream"}},
		"bad upstream":      {[]string{"serve", "--upstream", "nowhere"}, 1, []string{"upstream", "HOST:PORT"}},
		"bad ports":         {serve("--data", t.TempDir(), "--broker-ports", "9-1"), 1, []string{"broker_ports", "FIRST-LAST"}},
		"data is a file":    {serve("--data", file), 1, []string{file}},
		"data below a file": {serve("--data", filepath.Join(file, "x")), 1, []string{file, "--data"}},
		"admin port taken":  {serve("--data", t.TempDir(), "--admin", taken.Addr().String()), 1, []string{taken.Addr().String(), "--admin"}},
		"listen port taken": {serve("--data", t.TempDir(), "--listen", taken.Addr().String()), 1, []string{taken.Addr().String(), "--listen"}},
		"no such file":      {serve("--config", file+"x"), 2, []string{file + "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := run(t, tc.args...)
			select {
			case exit := <-c.exit:
				if exit != tc.exit {
					t.Errorf("exit code %d, want %d", exit, tc.exit)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the command goes on")
			}
			lines := strings.Split(strings.TrimSpace(c.err.String()), "\n")
			last := lines[len(lines)-1]
			if !strings.HasPrefix(last, "delaygate: ") {
				t.Errorf("last line %q", last)
			}
			for _, w := range tc.want {
				if !strings.Contains(last, w) {
					t.Errorf("%q does not name %q", last, w)
				}
			}
		})
	}
}

func TestServeWithoutUpstreamKeepsTryingAndSaysSo(t *testing.T) {
	admin := freeAddr(t)
	c := run(t, "serve", "--upstream", "127.0.0.1:1", "--listen", freeAddr(t), "--admin", admin, "--data", t.TempDir())
	await(t, c, "http://"+admin+"/healthz", 200)
	if body := await(t, c, "http://"+admin+"/readyz", 503); !strings.Contains(body, "routes: ") {
		t.Errorf("readyz says %q", body)
	}
	for range 100 {
		if strings.Contains(c.err.String(), "127.0.0.1:1") && strings.Contains(c.err.String(), "WARN") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if log := c.err.String(); !strings.Contains(log, "WARN") {
		t.Errorf("no warning in the log:\n%s", log)
	}
	if exit := c.end(t); exit != 0 {
		t.Errorf("exit code %d:\n%s", exit, c.err.String())
	}
}

func TestOneFolderServesOneProcess(t *testing.T) {
	data, admin := t.TempDir(), freeAddr(t)
	first := run(t, "serve", "--upstream", "127.0.0.1:1", "--listen", freeAddr(t), "--admin", admin, "--data", data)
	await(t, first, "http://"+admin+"/healthz", 200)
	await(t, first, "http://"+admin+"/readyz", 503)
	time.Sleep(100 * time.Millisecond)
	second := run(t, "serve", "--upstream", "127.0.0.1:1", "--listen", freeAddr(t), "--admin", freeAddr(t), "--data", data)
	if exit := <-second.exit; exit != 1 || !strings.Contains(second.err.String(), data) {
		t.Errorf("exit code %d:\n%s", exit, second.err.String())
	}
	if exit := first.end(t); exit != 0 {
		t.Errorf("exit code %d:\n%s", exit, first.err.String())
	}
}

// TestDevRunsTheExample does what the README tells a new user to do.
func TestDevRunsTheExample(t *testing.T) {
	listen, admin := freeAddr(t), freeAddr(t)
	c := run(t, "dev", "--listen", listen, "--admin", admin)
	await(t, c, "http://"+admin+"/readyz", 200)
	example := exec.Command("go", "run", "./examples/timed", "-namesrv", listen, "-delay", "3s")
	example.Dir = filepath.Join("..", "..")
	out, err := example.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "after it was due") {
		t.Errorf("example: %v\n%s\nproxy:\n%s", err, out, c.err.String())
	}
	_, metrics := status("http://" + admin + "/metrics")
	for _, want := range []string{"delaygate_gate_held_total 1", "delaygate_delivery_delivered_total 1", "delaygate_store_pending_messages 0",
		"delaygate_store_reserve 1", `delaygate_store_refusing{messages="all"} 0`, `delaygate_store_refusing{messages="far"} 0`,
		"delaygate_store_disk_free_bytes ", "delaygate_store_settling ", "delaygate_store_clock_jumps_total 0", "go_goroutines"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	if !strings.Contains(c.out.String(), listen) {
		t.Errorf("dev does not say where clients go:\n%s", c.out.String())
	}
	if exit := c.end(t); exit != 0 {
		t.Errorf("exit code %d:\n%s", exit, c.err.String())
	}
}

func TestDevKeepsItsFolder(t *testing.T) {
	data, listen, admin := t.TempDir(), devAddr(t), freeAddr(t)
	var books []string
	for range 2 {
		c := run(t, "dev", "--listen", listen, "--admin", admin, "--data", data)
		await(t, c, "http://"+admin+"/readyz", 200)
		if exit := c.end(t); exit != 0 {
			t.Fatalf("exit code %d:\n%s", exit, c.err.String())
		}
		book, err := os.ReadFile(filepath.Join(data, bookFile))
		if err != nil {
			t.Fatal(err)
		}
		books = append(books, string(book))
	}
	if books[0] != books[1] {
		t.Errorf("the address book changed:\n%s\n%s", books[0], books[1])
	}
}

func TestABrokerWithoutListenerIsNotReady(t *testing.T) {
	data, listen, admin := t.TempDir(), devAddr(t), freeAddr(t)
	c := run(t, "dev", "--listen", listen, "--admin", admin, "--data", data)
	await(t, c, "http://"+admin+"/readyz", 200)
	if exit := c.end(t); exit != 0 {
		t.Fatalf("exit code %d:\n%s", exit, c.err.String())
	}
	var book struct{ Brokers []struct{ Port int } }
	raw, err := os.ReadFile(filepath.Join(data, bookFile))
	if err == nil {
		err = json.Unmarshal(raw, &book)
	}
	if err != nil || len(book.Brokers) != 1 {
		t.Fatal(err, string(raw))
	}
	other, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(book.Brokers[0].Port)))
	if err != nil {
		t.Fatal(err)
	}
	c = run(t, "dev", "--listen", listen, "--admin", admin, "--data", data)
	var body string
	for range 100 {
		if _, body = status("http://" + admin + "/readyz"); strings.Contains(body, "listeners: no listener for 127.0.0.1:") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !strings.Contains(body, "listeners: no listener for 127.0.0.1:") {
		t.Errorf("readyz says %q", body)
	}
	other.Close()
	await(t, c, "http://"+admin+"/readyz", 200)
	if exit := c.end(t); exit != 0 {
		t.Errorf("exit code %d:\n%s", exit, c.err.String())
	}
}

func TestVersionNamesTheBuild(t *testing.T) {
	c := run(t, "version")
	if exit := <-c.exit; exit != 0 || !strings.HasPrefix(c.out.String(), "delaygate ") {
		t.Errorf("exit code %d: %q", exit, c.out.String())
	}
}
