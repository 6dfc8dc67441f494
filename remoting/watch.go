package remoting

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher tells wires that their descriptor has become writable, and paused wires that their peer has
// gone: gnet reports neither. It is an epoll set of its own, waited for by one goroutine through the
// runtime's poller, so that it blocks no thread. Every registration is one-shot and carries an id that
// is never used twice, so an event of a descriptor that has since been closed finds nobody.
type watcher struct {
	epfd int
	file *os.File // owns epfd
	done chan struct{}

	mu     sync.Mutex
	lastID uint64
	wires  map[uint64]*wire
}

func newWatcher() (*watcher, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(epfd, true); err != nil { // lets os.NewFile hand it to the runtime's poller
		_ = unix.Close(epfd)
		return nil, fmt.Errorf("epoll descriptor: %w", err)
	}
	w := &watcher{epfd: epfd, file: os.NewFile(uintptr(epfd), "epoll"), done: make(chan struct{}), wires: map[uint64]*wire{}}
	conn, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("epoll descriptor: %w", err)
	}
	go w.run(conn)
	return w, nil
}

// close ends the goroutine. No wire may arm or disarm afterwards.
func (w *watcher) close() {
	_ = w.file.Close()
	<-w.done
}

func (w *watcher) run(conn syscall.RawConn) {
	defer close(w.done)
	var events [128]unix.EpollEvent
	for {
		n := 0
		var failed error
		err := conn.Read(func(fd uintptr) bool {
			n, failed = pollNow(int(fd), events[:])
			return n > 0 || failed != nil
		})
		if err != nil || failed != nil {
			return // closed
		}
		for i := range n {
			w.deliver(&events[i])
		}
	}
}

func pollNow(epfd int, events []unix.EpollEvent) (int, error) {
	for {
		n, err := unix.EpollWait(epfd, events, 0)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (w *watcher) deliver(ev *unix.EpollEvent) {
	w.mu.Lock()
	x := w.wires[eventID(ev)]
	w.mu.Unlock()
	if x == nil {
		return
	}
	x.fired.Or(ev.Events)
	x.s.post(x)
}

func eventID(ev *unix.EpollEvent) uint64 { return uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32 }

// arm reports the first of events (or an error or hang-up) on fd to x, once. Loop only.
func (w *watcher) arm(x *wire, fd int, events uint32) error {
	op := unix.EPOLL_CTL_MOD
	if x.watchID == 0 {
		op = unix.EPOLL_CTL_ADD
		w.mu.Lock()
		w.lastID++
		x.watchID = w.lastID
		w.wires[x.watchID] = x
		w.mu.Unlock()
	}
	ev := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(x.watchID), Pad: int32(x.watchID >> 32)}
	if err := unix.EpollCtl(w.epfd, op, fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// disarm forgets x before its descriptor fd is closed: another descriptor of the same socket may live on
// and would keep the registration alive. Loop only.
func (w *watcher) disarm(x *wire, fd int) {
	if x.watchID == 0 {
		return
	}
	_ = unix.EpollCtl(w.epfd, unix.EPOLL_CTL_DEL, fd, nil)
	w.mu.Lock()
	delete(w.wires, x.watchID)
	w.mu.Unlock()
	x.watchID = 0
}
