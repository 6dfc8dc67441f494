// Command go drives producers and consumers of rocketmq-client-go by JSON lines; the protocol is
// described in the package comment of compat_test/driver.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// request is one line of standard input; a member that is missing is zero.
type request struct {
	ID        int64             `json:"id"`
	Op        string            `json:"op"`
	Name      string            `json:"name"`
	NameSrv   string            `json:"namesrv"`
	Group     string            `json:"group"`
	TimeoutMs int               `json:"timeoutMs"`
	Retries   int               `json:"retries"`
	Producer  string            `json:"producer"`
	Mode      string            `json:"mode"`
	Topic     string            `json:"topic"`
	Tags      string            `json:"tags"`
	Keys      string            `json:"keys"`
	Body      []byte            `json:"body"`
	Flag      int32             `json:"flag"`
	Props     map[string]string `json:"props"`
	Level     int               `json:"level"`
	DeliverMs int64             `json:"deliverMs"`
	DelayMs   int64             `json:"delayMs"`
	DelaySec  int64             `json:"delaySec"`
	Broker    string            `json:"broker"`
	Queue     *int              `json:"queue"`
	OrderKey  string            `json:"orderKey"`
	Expr      string            `json:"expr"`
	Broadcast bool              `json:"broadcast"`
	Orderly   bool              `json:"orderly"`
	Fail      int               `json:"fail"`
}

type object = map[string]any

// driver owns what the tests opened. Its methods may run side by side.
type driver struct {
	mu        sync.Mutex
	out       *json.Encoder
	producers map[string]*producing
	consumers map[string]*consuming
}

func main() {
	rlog.SetLogLevel("fatal")
	d := &driver{out: json.NewEncoder(os.Stdout), producers: map[string]*producing{}, consumers: map[string]*consuming{}}
	d.emit(object{"event": "ready"})
	if err := d.serve(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

// serve answers requests, each on its own goroutine, until the input ends.
func (d *driver) serve(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("bad request line: %w", err)
		}
		go d.answer(r)
	}
	return lines.Err()
}

func (d *driver) answer(r request) {
	result, err := d.dispatch(r)
	if err != nil {
		code, remark := brokerError(err)
		d.emit(object{"id": r.ID, "error": err.Error(), "code": code, "remark": remark})
		return
	}
	if result == nil {
		result = object{}
	}
	result["id"], result["ok"] = r.ID, true
	d.emit(result)
}

func (d *driver) dispatch(r request) (object, error) {
	switch r.Op {
	case "producer":
		p, err := newProducing(r)
		if err == nil {
			d.put(func() { d.producers[r.Name] = p })
		}
		return nil, err
	case "consumer":
		c, err := newConsuming(r, d.emit)
		if err == nil {
			d.put(func() { d.consumers[r.Name] = c })
		}
		return nil, err
	case "send":
		var p *producing
		d.put(func() { p = d.producers[r.Producer] })
		if p == nil {
			return nil, fmt.Errorf("no producer %q", r.Producer)
		}
		return p.send(r)
	case "close-producer":
		var p *producing
		d.put(func() { p = d.producers[r.Name]; delete(d.producers, r.Name) })
		return nil, p.client.Shutdown()
	case "close-consumer":
		var c *consuming
		d.put(func() { c = d.consumers[r.Name]; delete(d.consumers, r.Name) })
		return nil, c.client.Shutdown()
	}
	return nil, fmt.Errorf("unknown op %q", r.Op)
}

func (d *driver) put(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *driver) emit(line object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.out.Encode(line); err != nil {
		os.Exit(0) // the tests have gone
	}
}

var brokerText = regexp.MustCompile(`(?s)^CODE: (-?\d+), DESC: (.*)$`)

// brokerError takes the code and remark of a broker's reply out of the text that the client makes of it.
func brokerError(err error) (int, string) {
	m := brokerText.FindStringSubmatch(err.Error())
	if m == nil {
		return -1, ""
	}
	code, _ := strconv.Atoi(m[1])
	return code, m[2]
}
