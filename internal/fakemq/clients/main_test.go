package clients

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
	"go.uber.org/goleak"

	"github.com/delaygate/delaygate/internal/fakemq"
)

// patience bounds what a client does within its own periods: rebalance 20 s, route poll 30 s.
const patience = 60 * time.Second

// scenarioVar names the scenario that a child process runs, serversVar the name servers it is given.
const (
	scenarioVar = "FAKEMQ_SCENARIO"
	serversVar  = "FAKEMQ_NAMESERVERS"
)

func TestMain(m *testing.M) {
	name := os.Getenv(scenarioVar)
	if name == "" {
		goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // libraries start some at initialization
		return
	}
	rlog.SetLogLevel("fatal")
	log.SetFlags(0)
	scenarios[name](strings.Split(os.Getenv(serversVar), ";"))
	os.Exit(0)
}

func start(t *testing.T) *fakemq.Cluster {
	t.Helper()
	broker := fakemq.BrokerOptions{DelayLevels: "1s 2s 1s 2s"}
	c, err := fakemq.Start(fakemq.Options{Brokers: []fakemq.BrokerOptions{broker, broker}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.CreateTopic("t", 4)
	return c
}

// run runs a scenario in a child process. Whenever the child prints a line, atPoint is called, after which
// the child goes on.
func run(t *testing.T, c *fakemq.Cluster, scenario string, atPoint func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), scenarioVar+"="+scenario, serversVar+"="+strings.Join(c.NameServerAddrs(), ";"),
		"GORACE=exitcode=0", "ROCKETMQ_GO_HOME="+t.TempDir(), "HOME="+t.TempDir())
	var errors strings.Builder
	cmd.Stderr = &errors
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if atPoint != nil {
			atPoint()
		}
		fmt.Fprintln(in)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", scenario, err, errors.String())
	}
}

// point, in the child, lets the test process do something and waits until it has.
func point() {
	fmt.Println("point")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		log.Fatal(err)
	}
}
