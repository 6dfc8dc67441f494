package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delaygate/delaygate/compat_test/process"
)

const (
	startTimeout = 60 * time.Second
	callTimeout  = 60 * time.Second
)

// Driver is a running process with one client library in it. Its methods may be called from any goroutine.
type Driver struct {
	// Kind names the library and its version.
	Kind string
	// Timers tells whether the library has its own setters for exact delivery times.
	Timers bool

	proc  *process.Process
	write sync.Mutex

	mu        sync.Mutex
	lastID    int64
	waiting   map[int64]chan reply
	consumers map[string]*Consumer
	gone      error
}

// reply is one line of the driver; it holds the members of every kind of line.
type reply struct {
	ID     int64  `json:"id"`
	Error  string `json:"error"`
	Code   int    `json:"code"`
	Remark string `json:"remark"`
	Result
	Event    string `json:"event"`
	Consumer string `json:"consumer"`
}

// Start starts a driver process and waits until it is ready.
func Start(ctx context.Context, g *process.Group, kind string, s process.Spec) (*Driver, error) {
	s.Pipe = true
	p, err := g.Start(s)
	if err != nil {
		return nil, err
	}
	d := &Driver{Kind: kind, proc: p, waiting: map[int64]chan reply{}, consumers: map[string]*Consumer{}}
	ready := make(chan reply, 1)
	d.waiting[0] = ready
	go d.read()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case r := <-ready:
		if r.Error != "" {
			return nil, fmt.Errorf("%s: %s; its log:\n%s", kind, r.Error, p.Tail(4<<10))
		}
		return d, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s is not ready after %v; its log:\n%s", kind, startTimeout, p.Tail(4<<10))
	}
}

// Log returns the end of what the driver and its library printed.
func (d *Driver) Log() string { return d.proc.Tail(4 << 10) }

func (d *Driver) read() {
	lines := bufio.NewScanner(d.proc.Stdout)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			d.end(fmt.Errorf("%s wrote a line that is no JSON: %.200q", d.Kind, lines.Bytes()))
			return
		}
		d.route(r, lines.Bytes())
	}
	err := lines.Err()
	if err == nil {
		err = errors.New("its output ended")
	}
	d.end(fmt.Errorf("%s: %w", d.Kind, err))
}

func (d *Driver) route(r reply, line []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Event != "msg" {
		if ch := d.waiting[r.ID]; ch != nil {
			delete(d.waiting, r.ID)
			ch <- r
		}
		return
	}
	var m Delivery
	if err := json.Unmarshal(line, &m); err != nil {
		m.Problem = err
	}
	if c := d.consumers[r.Consumer]; c != nil {
		c.add(m)
	}
}

func (d *Driver) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = err
	for id, ch := range d.waiting {
		delete(d.waiting, id)
		ch <- reply{Error: err.Error(), Code: -1}
	}
}

// call sends one request line and waits for its answer.
func (d *Driver) call(ctx context.Context, r request) (Result, error) {
	ch := make(chan reply, 1)
	d.mu.Lock()
	if d.gone != nil {
		d.mu.Unlock()
		return Result{}, d.gone
	}
	d.lastID++
	r.ID = d.lastID
	d.waiting[r.ID] = ch
	d.mu.Unlock()
	line, err := json.Marshal(r)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", d.Kind, err)
	}
	d.write.Lock()
	_, err = d.proc.Stdin.Write(append(line, '\n'))
	d.write.Unlock()
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", d.Kind, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case a := <-ch:
		if a.Error != "" {
			return Result{}, &Error{Code: a.Code, Remark: a.Remark, Text: a.Error}
		}
		return a.Result, nil
	case <-ctx.Done():
		return Result{}, fmt.Errorf("%s did not answer %s: %w", d.Kind, r.Op, ctx.Err())
	}
}

// Error is what a client library reported.
type Error struct {
	// Code and Remark are those of the broker's reply; -1 when there was none.
	Code   int
	Remark string
	// Text is the library's own text.
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("code %d: %s (%s)", e.Code, e.Remark, e.Text) }
