package timer

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/delaygate/delaygate/timer/vfs"
)

func TestFailedSyncStopsAcknowledging(t *testing.T) {
	r := newRig(t)
	r.put(3, 5000, 100)
	r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if op == vfs.OpSync {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	if _, err := putWait(r.s, &Entry{Due: rigNow}); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("put: %v", err)
	}
	if _, err := putWait(r.s, &Entry{Due: rigNow}); !errors.Is(err, ErrFailed) {
		t.Fatalf("put: %v", err)
	}
	r.fs.Set(nil)
	r.until("puts again", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 6000})
		return err == nil
	})
	r.kill(true)
	r.wantPending(4)
	r.wantCorrupt(false)
	if n := len(r.fireAll(true)); n != 4 {
		t.Fatal(n)
	}
}

// What a failed group left behind does not come back, although the segment is not sealed yet when the process dies.
func TestFailedGroupIsCutOff(t *testing.T) {
	r := newRig(t)
	r.put(3, 5000, 100)
	open := r.segment().path
	var fail atomic.Bool
	fail.Store(true)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		switch {
		case op == vfs.OpCreate && strings.HasPrefix(path, "/data/"+runPrefix): // nothing is sealed
			return &vfs.Fault{Err: syscall.EIO}
		case op == vfs.OpSync && path == open && fail.Swap(false): // the group can be read back, but failed
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	if _, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow, Body: body(1, 500)}); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	r.until("puts again", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 6000})
		return err == nil
	})
	r.put(3, 6000, 10)
	r.kill(false)
	r.wantPending(7)
	r.wantCorrupt(false)
}

// A segment is not recycled under a reader.
func TestLoadWhileTheSegmentIsSealed(t *testing.T) {
	r := newRig(t)
	r.put(1, 50, 700)
	open := r.segment().path
	r.clock.Store(rigNow + 60)
	r.s.Start(r.c.sink)
	item := r.c.wait(t)[0]
	reading, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	first.Store(true)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpRead && path == open && first.Swap(false) {
			close(reading)
			<-goOn
		}
		return nil
	})
	loaded := make(chan error, 1)
	go func() {
		b, err := r.s.Load(item)
		if err == nil && string(b) != string(body(0, 700)) {
			err = errors.New("another body")
		}
		loaded <- err
	}()
	<-reading
	r.put(150, 5000, 900)
	r.until("seals", func() bool { return r.s.Stats().Seals >= 8 })
	close(goOn)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	if _, err := r.s.Load(item); err != nil { // now out of the run
		t.Fatal(err)
	}
}

func TestFullDisk(t *testing.T) {
	r := newRig(t)
	var full atomic.Bool
	full.Store(true)
	r.fs.Set(func(op vfs.Op, _ string) *vfs.Fault {
		if full.Load() && (op == vfs.OpCreate || op == vfs.OpRename) {
			return &vfs.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	acked := int64(0)
	var err error
	for err == nil {
		if _, err = putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 500, Body: body(1, 900)}); err == nil {
			acked++
		}
	}
	if !errors.Is(err, ErrFull) || acked < 10 {
		t.Fatalf("after %d puts: %v", acked, err)
	}
	r.wantPending(acked)
	full.Store(false)
	r.until("puts again", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 6000})
		return err == nil
	})
	r.kill(true)
	r.wantPending(acked + 1)
	r.wantCorrupt(false)
}

func TestPutRefusals(t *testing.T) {
	r := newRig(t)
	if _, err := r.s.Put(&Entry{Body: make([]byte, minSegmentBytes)}, nil); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("too large: %v", err)
	}
	block := make(chan struct{})
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpSync {
			<-block
		}
		return nil
	})
	answers := make(chan error, 100_000)
	n := 0
	var err error
	for err == nil {
		if _, err = r.s.Put(&Entry{Due: rigNow, Body: make([]byte, 10_000)}, func(err error) { answers <- err }); err == nil {
			n++
		}
	}
	if !errors.Is(err, ErrBusy) {
		t.Fatalf("busy: %v", err)
	}
	close(block)
	for range n {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, r.s)
	if _, err := r.s.Put(&Entry{}, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
}

// A store that has filled its disk goes on by itself once what fills it is delivered.
func TestSpaceOfDeliveredRunsIsGivenBackWhenTheDiskIsFull(t *testing.T) {
	r := newRig(t)
	for r.s.Stats().Runs < 2 {
		r.put(1, 5000, 1000)
	}
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if (op == vfs.OpCreate || op == vfs.OpRename) && strings.HasPrefix(path, "/data/"+segPrefix) && len(r.names(runPrefix, "")) > 0 {
			return &vfs.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	r.until("the store is full", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 5000, Body: body(1, 1000)})
		return errors.Is(err, ErrFull)
	})
	r.fireAll(true)
	r.until("puts again", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 200_000})
		return err == nil
	})
	r.kill(false)
	r.wantPending(1)
}
