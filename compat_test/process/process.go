// Package process runs the children of a test run - name servers, brokers, proxies, client drivers - so
// that none outlives it: each is the leader of its own process group and is killed by the kernel when the
// thread that started it dies, even when the test binary itself is killed.
//
// Linux only, as the suites are.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Group starts children and ends them all.
type Group struct {
	work chan func()

	mu       sync.Mutex
	children map[*Process]struct{}
}

// NewGroup returns an empty group. The kernel's death signal follows the thread that forked, so one
// goroutine that never ends keeps its thread for all starts.
func NewGroup() *Group {
	g := &Group{work: make(chan func()), children: map[*Process]struct{}{}}
	go func() {
		runtime.LockOSThread()
		for f := range g.work {
			f()
		}
		select {}
	}()
	return g
}

// Spec says what to start.
type Spec struct {
	// Name is for messages.
	Name string
	// Path is the program, Args what follows it.
	Path string
	Args []string
	// Env is added to the environment of the test run.
	Env []string
	// Dir is the working directory.
	Dir string
	// Log is the file that standard error, and standard output unless Pipe is set, are appended to.
	Log string
	// Pipe makes standard input and output available as Process.Stdin and Process.Stdout.
	Pipe bool
}

// Process is a running child.
type Process struct {
	Name   string
	Log    string
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	group *Group
	cmd   *exec.Cmd
	done  chan struct{}
	err   error
}

// Start starts a child.
func (g *Group) Start(s Spec) (*Process, error) {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Dir = s.Dir
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{Name: s.Name, Log: s.Log, group: g, cmd: cmd, done: make(chan struct{})}
	if err := p.pipes(s.Pipe, log); err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	g.work <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	g.mu.Lock()
	g.children[p] = struct{}{}
	g.mu.Unlock()
	go p.reap()
	return p, nil
}

func (p *Process) pipes(wanted bool, log *os.File) (err error) {
	if !wanted {
		p.cmd.Stdout = log
		return nil
	}
	if p.Stdin, err = p.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	// A pipe of our own: that of StdoutPipe is closed by Wait, which loses lines not yet read.
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.Stdout, p.cmd.Stdout = r, w
	return nil
}

func (p *Process) reap() {
	if w, ok := p.cmd.Stdout.(*os.File); ok && p.Stdout != nil {
		w.Close()
	}
	p.err = p.cmd.Wait()
	p.group.mu.Lock()
	delete(p.group.children, p)
	p.group.mu.Unlock()
	close(p.done)
}

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid returns the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Err returns how the child ended; call it after Done.
func (p *Process) Err() error { return p.err }

// Kill ends the child and its own children at once (kill -9) and waits for it.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Terminate sends SIGTERM and waits. A child that is still there after the timeout is killed, which is an
// error, as is an exit code other than want.
func (p *Process) Terminate(timeout time.Duration, want int) error {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(timeout):
		p.Kill()
		return fmt.Errorf("%s was still running %v after SIGTERM", p.Name, timeout)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != want {
		return fmt.Errorf("%s ended with exit code %d after SIGTERM, want %d", p.Name, code, want)
	}
	return nil
}

func (p *Process) signal(s syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

// Tail returns the end of the child's log, at most n bytes.
func (p *Process) Tail(n int64) string { return Tail(p.Log, n) }

// Tail returns the end of a file, at most n bytes, or what kept it from being read.
func Tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(n, info.Size()))
	if _, err := f.ReadAt(b, info.Size()-int64(len(b))); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	return string(b)
}

// Close kills every child that still runs.
func (g *Group) Close() {
	g.mu.Lock()
	var rest []*Process
	for p := range g.children {
		rest = append(rest, p)
	}
	g.mu.Unlock()
	for _, p := range rest {
		p.Kill()
	}
}
