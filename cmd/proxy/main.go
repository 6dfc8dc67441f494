package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run in front of a RocketMQ cluster."`
	Dev     devCmd     `cmd:"" help:"Run with an embedded name server and broker, to try it; nothing else is needed."`
	Store   storeCmd   `cmd:"" help:"Work on the data folder of a proxy that does not run."`
	Version versionCmd `cmd:"" help:"Print version, commit and Go release."`
}

// process is what a command may use of the world.
type process struct {
	ctx            context.Context
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	raiseProcs()
	os.Exit(execute(os.Args[1:], &process{ctx: ctx, environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}))
}

// raiseProcs gives the scheduler two threads beyond the cores: the event loops wait in raw epoll
// calls, and with every processor taken by a busy goroutine an idle connection waits for milliseconds.
func raiseProcs() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	}
}

// execute runs one command line and returns the exit code. Every failure is one line on stderr.
func execute(args []string, p *process) int {
	exit := -1
	parser, err := kong.New(&cli{},
		kong.Name("delaygate"),
		kong.Description("Precise delayed and timed messages for any Apache RocketMQ cluster. Clients point namesrvAddr at it."),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { exit = code }),
		kong.UsageOnError(),
	)
	if err != nil {
		return fail(p, 1, err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	c, err := parser.Parse(args)
	if exit >= 0 {
		return exit
	}
	if err != nil {
		return fail(p, 2, fmt.Errorf("%w (see delaygate --help)", err))
	}
	err = c.Run(p)
	var exitAs *exitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exitAs):
		return fail(p, 1, err)
	case exitAs.err == nil:
		return exitAs.code
	}
	return fail(p, exitAs.code, err)
}

func fail(p *process, code int, err error) int {
	fmt.Fprintln(p.stderr, "delaygate:", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}
