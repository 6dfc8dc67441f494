package timer

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"
)

// killDir makes the test binary a victim: it puts into a store in that folder, prints what was acknowledged, and never
// ends by itself.
const killDir = "TIMER_KILL_DIR"

func killOptions(dir string) Options {
	o := DefaultOptions()
	o.Dir, o.SegmentBytes = dir, 256<<10
	return o
}

func victim(dir string) {
	s, err := Open(killOptions(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var mu sync.Mutex
	for i := 0; ; i++ {
		lsn := make(chan LSN, 1)
		l, err := s.Put(&Entry{Flow: Flow{"b", "t"}, Due: 1_000_000 + rand.Int64N(1000), Key: "k", Body: body(i, rand.IntN(2000))}, func(err error) {
			if err == nil {
				mu.Lock()
				os.Stdout.WriteString(strconv.FormatUint(uint64(<-lsn), 10) + "\n")
				mu.Unlock()
			}
		})
		lsn <- l
		if err != nil {
			time.Sleep(time.Millisecond)
		}
		if i%50 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// A real process on the real disk, killed at random moments, several times in the same folder: everything
// acknowledged fires, once.
func TestKilledProcessLosesNothing(t *testing.T) {
	dir := t.TempDir()
	acked := map[LSN]bool{}
	for range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if n, err := strconv.ParseUint(lines.Text(), 10, 64); err == nil {
					acked[LSN(n)] = true
				}
			}
		}()
		time.Sleep(300*time.Millisecond + time.Duration(rand.IntN(400))*time.Millisecond)
		cmd.Process.Kill()
		<-read
		cmd.Wait()
	}
	s := mustOpen(t, killOptions(dir))
	defer mustClose(t, s)
	if st := s.Stats(); st.Pending < int64(len(acked)) || len(acked) < 100 || st.Corrupt != 0 {
		t.Fatalf("%d acknowledged, %+v", len(acked), st)
	}
	c := newCollector()
	fired := map[LSN]bool{}
	total := int(s.Stats().Pending)
	s.Start(c.sink)
	for len(fired) < total {
		for _, it := range c.wait(t) {
			if fired[it.LSN] {
				t.Fatalf("%d fired twice", it.LSN)
			}
			fired[it.LSN] = true
			delete(acked, it.LSN)
			if _, err := s.Load(it); err != nil {
				t.Fatal(err)
			}
			s.Settle(it)
		}
	}
	if len(acked) > 0 {
		t.Fatalf("%d of the acknowledged did not fire", len(acked))
	}
	t.Logf("%d fired, %+v", total, s.Stats())
}
