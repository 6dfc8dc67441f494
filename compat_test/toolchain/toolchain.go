package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// Versions are the RocketMQ releases that the suites run, servers and Java clients alike.
var Versions = []string{"4.9.7", "5.5.0"}

// JavaRelease is the Java release that servers, clients and the driver run on.
const JavaRelease = 17

// Toolchain knows the folders of one checkout.
type Toolchain struct {
	// Root is the folder of go.mod.
	Root string
	// Out receives one line per step that takes time, and the output of a step that failed.
	Out io.Writer
}

// New finds the module that dir lies in.
func New(dir string, out io.Writer) (*Toolchain, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("toolchain: %s: %w", dir, err)
	}
	for d := abs; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return &Toolchain{Root: d, Out: out}, nil
		}
		if d == filepath.Dir(d) {
			return nil, fmt.Errorf("toolchain: no go.mod above %s", abs)
		}
	}
}

// LibDir returns the folder of the jars of a version.
func (t *Toolchain) LibDir(version string) string { return t.cache("lib", version) }

// DriverDir returns the folder of the Java driver's classes for a client version.
func (t *Toolchain) DriverDir(version string) string { return t.cache("driver", version) }

func (t *Toolchain) cache(parts ...string) string {
	return filepath.Join(append([]string{t.Root, ".cache"}, parts...)...)
}

func (t *Toolchain) source(parts ...string) string {
	return filepath.Join(append([]string{t.Root, "compat_test"}, parts...)...)
}

// Setup checks the tools and makes every artifact that is missing or older than its source.
func (t *Toolchain) Setup(ctx context.Context) error {
	if err := t.Check(ctx); err != nil {
		return err
	}
	for _, v := range Versions {
		if err := t.fetch(ctx, v); err != nil {
			return err
		}
		if err := t.compileDriver(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// Check reports the first tool that is missing or too old, in one line that says what to install.
func (t *Toolchain) Check(ctx context.Context) error {
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("go is missing: install Go 1.26 or later and put it on PATH")
	}
	for _, tool := range []string{"java", "javac"} {
		if err := checkJava(ctx, tool); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return errors.New("mvn is missing: install Maven 3.8 or later and put it on PATH")
	}
	return nil
}

var javaVersion = regexp.MustCompile(`(?:version "|javac )(\d+)`)

func checkJava(ctx context.Context, tool string) error {
	if _, err := exec.LookPath(tool); err != nil {
		return fmt.Errorf("%s is missing: install a JDK %d and put it on PATH", tool, JavaRelease)
	}
	out, err := exec.CommandContext(ctx, tool, "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s -version failed: %w", tool, err)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("%s -version says %q: install a JDK %d", tool, firstLine(out), JavaRelease)
	}
	if n, _ := strconv.Atoi(string(m[1])); n < JavaRelease {
		return fmt.Errorf("%s is release %d: install a JDK %d", tool, n, JavaRelease)
	}
	return nil
}

// fetch copies the jars of a version. A look-up that failed once is remembered by Maven for a day, so
// the second try updates (-U).
func (t *Toolchain) fetch(ctx context.Context, version string) error {
	pom := t.source("jars", version, "pom.xml")
	dir := t.LibDir(version)
	return t.once(dir, []string{pom}, func() error {
		t.say("fetching RocketMQ %s", version)
		args := []string{"-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=" + dir}
		if t.run(ctx, "mvn", args...) == nil {
			return nil
		}
		if err := t.run(ctx, "mvn", append([]string{"-U"}, args...)...); err != nil {
			return fmt.Errorf("cannot fetch RocketMQ %s with Maven (%w): check that Maven reaches its repository", version, err)
		}
		return nil
	})
}

func (t *Toolchain) compileDriver(ctx context.Context, version string) error {
	sources, err := filepath.Glob(t.source("driver", "java", "*.java"))
	if err != nil || len(sources) == 0 {
		return fmt.Errorf("toolchain: no Java sources in %s (%v)", t.source("driver", "java"), err)
	}
	dir := t.DriverDir(version)
	return t.once(dir, append(sources, t.source("jars", version, "pom.xml")), func() error {
		t.say("compiling the Java driver for client %s", version)
		args := append([]string{"-nowarn", "-Xlint:none", "--release", strconv.Itoa(JavaRelease), "-encoding", "UTF-8",
			"-cp", filepath.Join(t.LibDir(version), "*"), "-d", dir}, sources...)
		if err := t.run(ctx, "javac", args...); err != nil {
			return fmt.Errorf("cannot compile the Java driver for client %s: %w", version, err)
		}
		return nil
	})
}

// GoBuild builds a package of the module into .cache/bin/name and returns the path. The Go build cache
// makes a repeated call cheap.
func (t *Toolchain) GoBuild(ctx context.Context, name, pkg string, flags ...string) (string, error) {
	out := t.cache("bin", name)
	args := append(append([]string{"build", "-o", out}, flags...), pkg)
	if err := t.run(ctx, "go", args...); err != nil {
		return "", fmt.Errorf("cannot build %s: %w", pkg, err)
	}
	return out, nil
}

const stampFile = ".stamp"

// once makes dir anew unless its stamp shows that it was made from the same inputs.
func (t *Toolchain) once(dir string, inputs []string, produce func() error) error {
	want, err := stamp(inputs)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(filepath.Join(dir, stampFile)); err == nil && string(have) == want {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("toolchain: %w", err)
	}
	if err := produce(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, stampFile), []byte(want), 0o644)
}

func stamp(inputs []string) (string, error) {
	sort.Strings(inputs)
	h := sha256.New()
	for _, p := range inputs {
		b, err := os.ReadFile(p)
		if err != nil {
			return "", fmt.Errorf("toolchain: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(p), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// run executes a tool in the module's root; its output is shown only when it fails.
func (t *Toolchain) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.Root
	out, err := cmd.CombinedOutput()
	if err != nil {
		fmt.Fprintf(t.Out, "%s %s\n%s\n", name, strings.Join(args, " "), out)
	}
	return err
}

func (t *Toolchain) say(format string, args ...any) { fmt.Fprintf(t.Out, format+"\n", args...) }

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return line
}
