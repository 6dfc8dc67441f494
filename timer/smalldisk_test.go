package timer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	smallDiskBytes = 24 << 20
	smallDiskDir   = "TIMER_SMALL_DISK"
)

// A store on a real disk of 24 MiB, which another program fills up, too: see fullDiskStory. The test runs itself in a mount namespace of
// its own with a tmpfs; where the system does not let it, the same happens on a memory disk of that size, with the test's own ENOSPC.
func TestSmallRealDisk(t *testing.T) {
	if dir := os.Getenv(smallDiskDir); dir != "" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDiskBytes)); err != nil {
			fmt.Println(noMount, err)
			return
		}
		fullDiskStory(t, vfs.OS{}, dir+"/data")
		return
	}
	why := ""
	for _, asUser := range []bool{false, true} {
		out, err := runInNamespace(t.TempDir(), asUser)
		switch {
		case err != nil && len(out) == 0, strings.Contains(out, noMount):
			why += fmt.Sprintf("%v %s; ", err, strings.TrimSpace(out))
		case err != nil || !strings.Contains(out, "--- PASS"):
			t.Fatalf("%v\n%s", err, out)
		default:
			t.Logf("on a tmpfs of %d bytes:\n%s", smallDiskBytes, out)
			return
		}
	}
	t.Logf("no file system may be mounted here, so the disk is a memory one: %s", why)
	mem := vfs.NewMem()
	mem.SetCapacity(smallDiskBytes)
	fullDiskStory(t, mem, "/data")
}

const noMount = "cannot mount:"

// runInNamespace runs TestSmallRealDisk once more, in a mount namespace where it may mount a disk on dir. asUser: without being root, by
// way of a user namespace.
func runInNamespace(dir string, asUser bool) (string, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestSmallRealDisk$", "-test.v")
	cmd.Env = append(os.Environ(), smallDiskDir+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if asUser {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestSmallMemoryDisk(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetCapacity(smallDiskBytes)
	fullDiskStory(t, mem, "/data")
}

// story is a store on a small disk with what was put into it.
type story struct {
	t     *testing.T
	disk  vfs.FS
	fs    *vfs.Faulty
	clock atomic.Int64
	o     Options
	s     *Store
	n     int

	mu      sync.Mutex
	pending map[LSN]*told // acknowledged, not settled
	fired   map[LSN]Item  // of those, in this life of the store
}

// told is an entry that the store has acknowledged.
type told struct {
	due  int64
	body []byte
}

const (
	storyNear = 2_000     // ms ahead
	storyFar  = 7_200_000 // beyond Options.FarAfter
	storyBody = 30_000
)

// fullDiskStory fills a disk: first far messages are refused, then all; what was accepted fires, what is settled stays settled, through a
// killed process; when there is room again the store goes on, and everything acknowledged was delivered.
func fullDiskStory(t *testing.T, disk vfs.FS, dir string) {
	x := &story{t: t, disk: disk, pending: map[LSN]*told{}}
	x.clock.Store(rigNow)
	x.o = testOptions(nil, &x.clock)
	x.o.Dir, x.o.SegmentBytes, x.o.Window = dir, 1<<20, 10_000
	first := x.fill("first", smallDiskBytes/3)
	x.open()
	defer func() { x.s.Close() }()

	far := x.putUntilFull(storyFar, "far mark")
	if st := x.s.Stats(); !st.FarRefused || st.PutsRefused || !st.Reserve {
		t.Fatalf("after the far mark: %+v", st)
	}
	near := x.putUntilFull(storyNear, "min mark")
	if _, err := x.put(storyFar); !errors.Is(err, ErrFull) {
		t.Fatalf("far beyond the lower mark: %v", err)
	}
	x.until("all is sealed", func(st Stats) bool { return st.Segments == 1 && st.Reserve })
	second := x.fill("second", 2*smallDiskBytes)
	x.until("all is refused", func(st Stats) bool { return st.PutsRefused && st.FreeBytes <= spareFiles*x.o.SegmentBytes })
	t.Logf("%d far messages were taken, then %d near ones; now the disk is full: %+v", far, near, x.s.Stats())

	x.clock.Add(2 * storyNear)
	x.until("what is due fires", func(Stats) bool { return x.firedNow() == near })
	x.settle(near / 2)
	x.until("settles are durable", func(st Stats) bool { return st.Settling == 0 })
	if st := x.s.Stats(); !st.PutsRefused || st.Pending != int64(far+near-near/2) {
		t.Fatalf("half is delivered: %+v", st)
	}
	x.kill()
	x.until("what was not settled fires again", func(Stats) bool { return x.firedNow() == near-near/2 })
	x.settle(near / 4)
	x.until("settles are durable, although the disk is full", func(st Stats) bool { return st.Settling == 0 })
	x.kill()

	if err := errors.Join(x.disk.Remove(first), x.disk.Remove(second)); err != nil {
		t.Fatal(err)
	}
	x.until("messages are taken again", func(Stats) bool { _, err := x.put(storyNear); return err == nil })
	x.until("the reserve is back", func(st Stats) bool { return st.Reserve })
	x.clock.Add(2 * storyFar)
	x.until("everything is delivered", func(st Stats) bool { x.settle(1000); return st.Pending == 0 })
	x.until("far messages are taken again", func(Stats) bool { _, err := x.put(storyFar); return err == nil })
	if st := x.s.Stats(); st.Corrupt > 0 || len(x.pending) != int(st.Pending) {
		t.Fatalf("%d of the acknowledged were not delivered: %+v", len(x.pending), st)
	}
}

func (x *story) open() {
	x.t.Helper()
	x.fs = vfs.NewFaulty(x.disk)
	x.o.FS = x.fs
	x.s = mustOpen(x.t, x.o)
	x.fired = map[LSN]Item{}
	if st := x.s.Stats(); int(st.Pending) != len(x.pending) {
		x.t.Fatalf("%d are pending, want %d", st.Pending, len(x.pending))
	}
	x.s.Start(x.sink)
}

// kill lets no operation through any more, as if the process were gone, and opens the folder again.
func (x *story) kill() {
	x.t.Helper()
	x.fs.Set(func(vfs.Op, string) *vfs.Fault { return &vfs.Fault{Err: errInjected} })
	x.s.Close()
	x.open()
}

func (x *story) sink(items []Item) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, it := range items {
		e := x.pending[it.LSN]
		if _, again := x.fired[it.LSN]; e == nil || again || it.Due != e.due || it.Due > x.clock.Load() {
			x.t.Errorf("fired %+v, known: %v, fired before: %v", it, e != nil, again)
		}
		x.fired[it.LSN] = it
	}
}

func (x *story) put(in int64) (LSN, error) {
	x.n++
	e := &told{due: x.clock.Load() + in, body: body(x.n, storyBody)}
	lsn, err := putWait(x.s, &Entry{Flow: Flow{"b", "t"}, Due: e.due, Key: fmt.Sprint(x.n), Body: e.body})
	if err == nil {
		x.mu.Lock()
		x.pending[lsn] = e
		x.mu.Unlock()
	}
	return lsn, err
}

// putUntilFull puts until that is refused for good and returns how many were taken.
func (x *story) putUntilFull(in int64, mark string) (n int) {
	x.t.Helper()
	for refused, end := 0, time.Now().Add(20*time.Second); refused < 20; {
		if time.Now().After(end) {
			x.t.Fatalf("not refused for the %s: %+v", mark, x.s.Stats())
		}
		_, err := x.put(in)
		switch {
		case err == nil:
			n, refused = n+1, 0
		case !errors.Is(err, ErrFull):
			x.t.Fatalf("after %d: %v", n, err)
		default: // a seal may make room
			if refused++; !strings.Contains(err.Error(), mark) {
				refused = 0
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	if n < 20 {
		x.t.Fatalf("only %d taken: %+v", n, x.s.Stats())
	}
	return n
}

// fill is another program that writes size bytes, or until nothing is left.
func (x *story) fill(name string, size int64) (path string) {
	x.t.Helper()
	path = strings.TrimSuffix(x.o.Dir, "/data") + "/" + name
	f, err := x.disk.Create(path)
	if err != nil {
		x.t.Fatal(err)
	}
	defer f.Close()
	if err := vfs.ZeroFill(f, 0, size); vfs.IsFull(err) != (size > smallDiskBytes) {
		x.t.Fatal(err)
	}
	return path
}

func (x *story) firedNow() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.fired)
}

// settle checks and settles up to n fired entries.
func (x *story) settle(n int) {
	x.t.Helper()
	x.mu.Lock()
	var items []Item
	for lsn, it := range x.fired {
		if e := x.pending[lsn]; e != nil && len(items) < n {
			items = append(items, it)
		}
	}
	x.mu.Unlock()
	for _, it := range items {
		x.mu.Lock()
		want := x.pending[it.LSN].body
		delete(x.pending, it.LSN)
		x.mu.Unlock()
		if b, err := x.s.Load(it); err != nil || !bytes.Equal(b, want) {
			x.t.Fatalf("load %+v: %d bytes, %v", it, len(b), err)
		}
		x.s.Settle(it)
	}
}

func (x *story) until(what string, ok func(Stats) bool) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(x.s.Stats()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("not within 20 s: %s: %d fired, %+v", what, x.firedNow(), x.s.Stats())
		}
	}
}
