// Command setup checks Go, Java and Maven and puts real RocketMQ brokers and clients below .cache, for
// the suites of compat_test. Run it from anywhere in the module; it is quick when all is there.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/delaygate/delaygate/compat_test/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t, err := toolchain.New(".", os.Stdout)
	if err == nil {
		err = t.Setup(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}
