package timer

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/delaygate/delaygate/timer/vfs"
)

// settleWait settles and waits until that is written.
func settleWait(s *Store, it Item) {
	done := make(chan struct{})
	s.SettleThen(it, func() { close(done) })
	<-done
}

// fired returns a rig whose n entries have fired.
func fired(t *testing.T, n int) (*rig, []Item) {
	r := newRig(t)
	r.o.Window = n
	r.kill(false)
	r.put(n, 50, 10)
	return r, r.fireAll(false)
}

// hold makes one kind of operation on the open segment wait: it tells when one began, and lets it end with fault, nil for
// success.
func (r *rig) hold(kind vfs.Op, fault *vfs.Fault) (began chan struct{}, letGo func()) {
	began = make(chan struct{})
	gate := make(chan struct{})
	var first sync.Once
	open := r.segment().path
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == kind && path == open {
			first.Do(func() { close(began) })
			<-gate
			return fault
		}
		return nil
	})
	return began, sync.OnceFunc(func() { close(gate) })
}

// failLog makes the log fail from now on until goOn. No run can be made, so that no seal saves a settle.
func (r *rig) failLog() (goOn func()) {
	gate, open := make(chan struct{}), r.segment().path
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		switch {
		case (op == vfs.OpSync || op == vfs.OpWrite) && path == open, op == vfs.OpCreate && strings.Contains(path, runPrefix):
			return &vfs.Fault{Err: syscall.EIO}
		case op == vfs.OpSync || op == vfs.OpWrite: // MANIFEST
			<-gate
		}
		return nil
	})
	return func() {
		close(gate)
		r.until("puts again", func() bool {
			_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 200_000})
			return err == nil
		})
	}
}

func TestWrittenSettleSurvivesAKill(t *testing.T) {
	r, items := fired(t, 3)
	settleWait(r.s, items[1])
	r.kill(false)
	r.wantPending(2)
}

// While the disk is busy with a sync that puts wait for, settles are written all the same.
func TestSettleIsWrittenDuringASync(t *testing.T) {
	r, items := fired(t, 3)
	began, letGo := r.hold(vfs.OpSync, nil)
	answers := make(chan error, 2)
	put := func() {
		if _, err := r.s.Put(&Entry{Flow: Flow{"b", "t"}, Due: rigNow + 200_000}, func(err error) { answers <- err }); err != nil {
			t.Fatal(err)
		}
	}
	put()
	<-began
	put() // waits for the next group, and is written with the settles
	for _, it := range items {
		settleWait(r.s, it)
	}
	select {
	case err := <-answers:
		t.Fatalf("a put was answered before its sync: %v", err)
	default:
	}
	mem := r.mem.AfterKill()
	letGo()
	for range 2 {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	r.mem.Kill()
	r.s.Close()
	r.mem = mem
	r.open()
	r.wantPending(2)
}

// Nobody waits for a settle that cannot be written; it is written when the log goes on.
func TestSettlesDoNotWaitForAFailingDisk(t *testing.T) {
	r, items := fired(t, 4)
	settleWait(r.s, items[0]) // the given-up segment loses it
	goOn := r.failLog()
	_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 200_000})
	if !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	settleWait(r.s, items[1])
	goOn()
	r.kill(true)
	r.wantPending(3)
}

// The same for those in the group that fails, and behind it.
func TestSettlesInAFailedGroupAreFreed(t *testing.T) {
	r, items := fired(t, 4)
	began, letGo := r.hold(vfs.OpWrite, &vfs.Fault{Err: syscall.EIO})
	var both sync.WaitGroup
	both.Add(2)
	r.s.SettleThen(items[0], both.Done)
	<-began
	r.s.SettleThen(items[1], both.Done)
	goOn := r.failLog()
	letGo()
	both.Wait()
	goOn()
	r.kill(true)
	r.wantPending(3)
}

// A settle that was written while one sync went on is lost with the next.
func TestSettleBetweenTwoSyncsIsWrittenAgain(t *testing.T) {
	r, items := fired(t, 3)
	began, letGo := r.hold(vfs.OpSync, nil)
	answer := make(chan error, 1)
	r.s.Put(&Entry{Flow: Flow{"b", "t"}, Due: rigNow + 200_000}, func(err error) { answer <- err })
	<-began
	settleWait(r.s, items[0])
	goOn := r.failLog()
	letGo()
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	r.until("the log fails", func() bool {
		_, err := putWait(r.s, &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 200_000})
		return errors.Is(err, ErrFailed)
	})
	goOn()
	r.kill(true)
	r.wantPending(4)
}

func TestSettlingAfterCloseWaitsForNothing(t *testing.T) {
	r, items := fired(t, 1)
	mustClose(t, r.s)
	settleWait(r.s, items[0])
	settleWait(r.s, Item{})
	r.open()
	r.wantPending(1)
}
