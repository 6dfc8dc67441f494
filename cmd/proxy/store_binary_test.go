package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/raw"
	"github.com/delaygate/delaygate/internal/fakemq"
)

// buildShifted builds the real binary, with a clock that can be moved.
func buildShifted(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "delaygate")
	if out, err := exec.Command("go", "build", "-tags", "clockshift", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// serving is a proxy process.
type serving struct {
	cmd    *exec.Cmd
	listen string
	err    output
}

func serveBinary(t *testing.T, bin, data string, cluster *fakemq.Cluster, env ...string) *serving {
	t.Helper()
	s := &serving{listen: freeAddr(t)}
	admin := freeAddr(t)
	s.cmd = exec.Command(bin, "serve", "--upstream", strings.Join(cluster.NameServerAddrs(), ";"), "--listen", s.listen, "--admin", admin, "--data", data)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = &s.err
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	for range 200 {
		if code, _ := status("http://" + admin + "/readyz"); code == 200 {
			return s
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not ready:\n%s", s.err.String())
	return nil
}

func (s *serving) stop(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	s.cmd.Wait()
}

// moved is what must be the same about a message on its way from folder to folder.
func moved(m fakemq.Message) string {
	uniq, _ := m.Property(codec.PropUniqKey)
	keys, _ := m.Property(codec.PropKeys)
	tags, _ := m.Property("TAGS")
	return fmt.Sprintf("%s queue %d %s %q %q %x", m.Topic, m.QueueID, uniq, keys, tags, m.Body)
}

// Messages that one proxy has accepted are exported from its folder, imported into another in two tries, and delivered by a proxy on that: exactly
// these, once.
func TestExportedMessagesAreDeliveredFromAnotherFolder(t *testing.T) {
	bin := buildShifted(t)
	cluster, err := fakemq.Start(fakemq.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	topics := []string{"move-a", "move-b"}
	for _, topic := range topics {
		cluster.CreateTopic(topic, 4)
	}
	from, to, stream := t.TempDir(), filepath.Join(t.TempDir(), "new"), filepath.Join(t.TempDir(), "stream")
	first := serveBinary(t, bin, from, cluster)
	addr, err := raw.MasterAddr(t.Context(), first.listen, cluster.Brokers()[0].Name())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := raw.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var want []string
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range 60 {
		m := &raw.Message{Topic: topics[i%2], Queue: int32(i % 4), Body: bytes.Repeat([]byte{byte(i)}, 10+i*50)}
		uniq := fmt.Sprintf("MOVE%028d", i)
		m.Props.Set(codec.PropUniqKey, uniq)
		m.Props.Set(codec.PropKeys, fmt.Sprintf("order%d shop", i))
		m.Props.Set("TAGS", fmt.Sprint("tag", i%3))
		m.Props.Set("TIMER_DELIVER_MS", fmt.Sprint(due+int64(i%7)*1000))
		if _, err := conn.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%s queue %d %s %q %q %x", m.Topic, m.Queue, uniq, fmt.Sprintf("order%d shop", i), fmt.Sprint("tag", i%3), m.Body))
	}
	if out, err := exec.Command(bin, "store", "export", from).CombinedOutput(); exitCode(err) != 2 || !strings.Contains(string(out), "in use") {
		t.Errorf("an export beside a running proxy: %v\n%s", err, out)
	}
	first.stop(t, syscall.SIGKILL)

	command := func(stdin io.Reader, wantExit int, args ...string) (string, []byte) {
		t.Helper()
		var out, errs bytes.Buffer
		cmd := exec.Command(bin, append([]string{"store"}, args...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
		if err := cmd.Run(); exitCode(err) != wantExit {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, exitCode(err), wantExit, errs.String())
		}
		return errs.String(), out.Bytes()
	}
	if said, _ := command(nil, 0, "export", from, "-o", stream); !strings.HasPrefix(said, "60 messages exported") {
		t.Errorf("export says %q", said)
	}
	inFile, err := os.ReadFile(stream)
	if err != nil {
		t.Fatal(err)
	}
	_, out := command(nil, 0, "export", from)
	if len(out) != len(inFile) {
		t.Errorf("%d bytes on standard output, %d in the file", len(out), len(inFile))
	}
	if said, _ := command(bytes.NewReader(inFile[:len(inFile)/2]), 1, "import", to); !strings.Contains(said, "cut off") {
		t.Errorf("the import of a half says %q", said)
	}
	if said, _ := command(nil, 0, "import", to, stream); !strings.Contains(said, "were pending already") || strings.HasPrefix(said, "60 ") {
		t.Errorf("the import of the rest says %q", said)
	}
	if said, _ := command(bytes.NewReader(inFile), 0, "import", filepath.Join(to, storeFolder)); said != "0 messages imported, 60 were pending already\n" {
		t.Errorf("the import once more says %q", said)
	}

	serveBinary(t, bin, to, cluster, "DELAYGATE_TEST_CLOCK_SHIFT=2h")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for _, topic := range topics {
		messages, err := cluster.Await(ctx, topic, 30)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			got = append(got, moved(m))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode()
	}
	return -1
}
