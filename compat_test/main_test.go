package compat_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// The tests wait more than they compute, so many more run side by side than there are cores.
const parallelTests = "64"

var suite *environment

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if suite, err = newEnvironment(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer suite.close()
	code := m.Run()
	if err := suite.verdict(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = max(code, 1)
	}
	if code != 0 {
		suite.keep = true
	}
	return code
}
