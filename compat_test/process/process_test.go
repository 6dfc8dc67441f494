package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delaygate/delaygate/compat_test/process"
)

// helperEnv makes this test binary play the part of a test run that starts a child and is killed.
const helperEnv = "DELAYGATE_PROCESS_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		p, err := process.NewGroup().Start(process.Spec{Name: "sleep", Path: "sleep", Args: []string{"600"}, Log: filepath.Join(dir, "log")})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.Pid())
		select {}
	}
	os.Exit(m.Run())
}

func TestAChildDiesWithTheRunThatStartedIt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the helper says %q", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitGone(t, child)
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	for give := time.Now().Add(10 * time.Second); time.Now().Before(give); time.Sleep(20 * time.Millisecond) {
		if !running(pid) {
			return
		}
	}
	t.Fatalf("process %d still runs", pid)
}

// running tells whether a process is there and no zombie that waits for its parent.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestCloseEndsAllChildren(t *testing.T) {
	g := process.NewGroup()
	var all []*process.Process
	for i := range 3 {
		p, err := g.Start(process.Spec{Name: "sleep", Path: "sleep", Args: []string{"600"}, Log: filepath.Join(t.TempDir(), fmt.Sprint(i))})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	g.Close()
	for _, p := range all {
		if running(p.Pid()) {
			t.Errorf("child %d still runs", p.Pid())
		}
	}
}

func TestTerminateReportsAnotherExitCode(t *testing.T) {
	g := process.NewGroup()
	defer g.Close()
	log := filepath.Join(t.TempDir(), "log")
	p, err := g.Start(process.Spec{Name: "shell", Path: "sh", Args: []string{"-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(p.Tail(100), "up") {
		time.Sleep(10 * time.Millisecond)
	}
	if err := p.Terminate(5*time.Second, 0); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("got %v", err)
	}
}

func TestPortsAreNeverGivenTwice(t *testing.T) {
	var ports process.Ports
	seen := map[int]bool{}
	for range 20 {
		first, err := ports.Block(30)
		if err != nil {
			t.Fatal(err)
		}
		for p := first; p < first+30; p++ {
			if seen[p] {
				t.Fatalf("port %d twice", p)
			}
			seen[p] = true
		}
	}
}
