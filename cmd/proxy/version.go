package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker of a release build.
var version = "dev"

type versionCmd struct{}

func (versionCmd) Run(p *process) error {
	_, err := fmt.Fprintf(p.stdout, "delaygate %s (commit %s, %s, %s/%s)\n", version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
