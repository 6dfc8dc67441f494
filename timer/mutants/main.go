// Command mutants shows that the model test of package timer guards what durability rests on: it takes out one fsync,
// folder sync, rename, checksum or order of steps at a time and demands that the model test fails.
//
//	go run ./timer/mutants [-run REGEXP] [-checks N]
//
// The mutants are in mutants.go. The tree is not changed: each one is built with an overlay. It prints one line
// for each, with the seed that caught it (to see it again: apply the mutant and run the test with -rapid.seed), and exits with 1 if one
// survived.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	only := flag.String("run", "", "try only the mutants whose name matches this regular expression")
	checks := flag.Int("checks", 2000, "model runs before a mutant counts as a survivor")
	flag.Parse()
	survivors, err := tryAll(*only, *checks)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		fmt.Printf("%d survived\n", survivors)
		os.Exit(1)
	}
}

func tryAll(only string, checks int) (survivors int, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return 0, fmt.Errorf("-run: %w", err)
	}
	dir, err := timerDir()
	if err != nil {
		return 0, err
	}
	for _, m := range mutants {
		if !match.MatchString(m.name) {
			continue
		}
		start := time.Now()
		how, err := m.try(dir, checks)
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.name, err)
		}
		if how == "" {
			survivors++
			how = "SURVIVED"
		}
		fmt.Printf("%-36s %6.1fs  %s\n", m.name, time.Since(start).Seconds(), how)
	}
	return survivors, nil
}

// timerDir returns the folder of package timer.
func timerDir() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/delaygate/delaygate/timer").Output()
	if err != nil {
		return "", fmt.Errorf("find package timer: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// mutant is a change to one place of a source file.
type mutant struct {
	name     string
	file     string
	old, new string
	by       string // the test that guards it, if it is not the model test: what it breaks is no promise, or not one that a model can see
}

// source returns the changed file.
func (m *mutant) source(dir string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, m.file))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(b), m.old); n != 1 {
		return nil, fmt.Errorf("%s has its text %d times, want once: bring mutants.go up to date", m.file, n)
	}
	return []byte(strings.Replace(string(b), m.old, m.new, 1)), nil
}

var (
	seedLine = regexp.MustCompile(`-rapid\.seed=\d+`)
	whyLine  = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (?:\[rapid\] (?:failed|panic)[^:]*: )?(.*)$`)
)

// try builds the mutant and runs the model test. It says how it was caught, "" if it was not.
func (m *mutant) try(dir string, checks int) (string, error) {
	src, err := m.source(dir)
	if err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	changed, overlay := filepath.Join(tmp, m.file), filepath.Join(tmp, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, m.file): changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(changed, src, 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return "", err
	}
	bin := filepath.Join(tmp, "timer.test")
	build := exec.Command("go", "test", "-overlay", overlay, "-c", "-o", bin, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %s", out)
	}
	guard := cmp.Or(m.by, "^TestModel$")
	test := exec.Command(bin, "-test.run", guard, "-test.timeout", "20m", "-test.failfast",
		fmt.Sprint("-rapid.checks=", checks), "-rapid.nofailfile", "-rapid.shrinktime=1s")
	test.Dir = dir
	out, err := test.CombinedOutput()
	if err == nil {
		return "", nil
	}
	return "caught: " + reason(string(out)), nil
}

// reason picks the seed and the first line that says what was wrong.
func reason(out string) string {
	why := "?"
	if m := whyLine.FindStringSubmatch(out); m != nil {
		why = m[1]
	} else if at := strings.Index(out, "panic: "); at >= 0 {
		why, _, _ = strings.Cut(out[at:], "\n")
	}
	return seedLine.FindString(out) + " " + why
}
