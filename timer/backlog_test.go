package timer

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// Intake that is faster than the seals waits for them: no more than two full segments and the open one are unsealed.
func TestIntakeWaitsForSeals(t *testing.T) {
	r := newRig(t)
	r.fs.Set(func(op vfs.Op, path string) *vfs.Fault {
		if op == vfs.OpSync && strings.Contains(path, runPrefix) {
			time.Sleep(time.Millisecond) // intake is faster
		}
		return nil
	})
	const n, most = 500, maxUnsealed + 2 // a segment holds five
	var open sync.WaitGroup
	open.Add(n)
	e := &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 60_000, Body: body(1, 3000)}
	for left := n; left > 0; {
		if segments := r.s.Stats().Segments; segments > most {
			t.Errorf("%d unsealed segments", segments)
			return
		}
		_, err := r.s.Put(e, func(err error) {
			if err != nil {
				t.Error(err)
			}
			open.Done()
		})
		switch {
		case err == nil:
			left--
		case errors.Is(err, ErrBusy):
			runtime.Gosched()
		default:
			t.Fatal(err)
		}
	}
	open.Wait()
	r.wantPending(n)
	r.until("all sealed", func() bool { return r.s.Stats().Segments == 1 })
}
