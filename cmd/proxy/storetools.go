package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/delaygate/delaygate/timer"
	"github.com/delaygate/delaygate/timer/vfs"
)

type dirArg struct {
	Dir string `arg:"" help:"The data folder (of --data), or the folder store in it; its proxy must not run." placeholder:"DIR"`
}

type verifyCmd struct{ dirArg }

func (c *verifyCmd) Run(p *process) error {
	dir, err := storeDir(c.Dir)
	if err != nil {
		return err
	}
	sum, err := timer.Verify(vfs.ReadOnly{}, dir, func(x timer.Problem) { fmt.Fprintln(p.stdout, x) })
	if err != nil {
		return cannot(err)
	}
	fmt.Fprintln(p.stdout, summary(sum))
	if sum.Problems > 0 {
		return &exitError{code: exitDamaged}
	}
	return nil
}

type repairCmd struct{ dirArg }

func (c *repairCmd) Run(p *process) error {
	dir, err := storeDir(c.Dir)
	if err != nil {
		return err
	}
	sum, err := timer.Repair(vfs.OS{}, dir, func(x timer.Problem) { fmt.Fprintln(p.stdout, x) })
	if err != nil {
		return cannot(err)
	}
	fmt.Fprintln(p.stdout, summary(sum))
	if sum.Lost > 0 {
		return &exitError{code: exitDamaged}
	}
	return nil
}

func summary(s timer.Summary) string {
	return fmt.Sprintf("%d pending in %d runs and %d segments; %d problems, at most %d messages lost; %d files set aside as .broken",
		s.Pending, s.Runs, s.Segments, s.Problems, s.Lost, s.Evidence)
}

type dumpCmd struct {
	dirArg
	Body bool `help:"Add the stored frame of each message, in base64."`
}

// dumpLine is a line of store dump. Part of the interface: names do not change.
type dumpLine struct {
	LSN    timer.LSN `json:"lsn"`
	Due    int64     `json:"due"` // Unix ms
	DueAt  string    `json:"due_at"`
	Broker string    `json:"broker"`
	Topic  string    `json:"topic"`
	Queue  uint16    `json:"queue"`
	Key    string    `json:"key"`
	Keys   string    `json:"keys,omitempty"`
	Bytes  int       `json:"bytes"` // of the stored frame
	File   string    `json:"file"`
	Offset int64     `json:"offset"`
	Body   string    `json:"body,omitempty"`
}

func (c *dumpCmd) Run(p *process) error {
	dir, err := storeDir(c.Dir)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(p.stdout, 1<<16)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	sum, err := timer.Dump(vfs.ReadOnly{}, dir, func(e timer.Pending) error {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		l := dumpLine{
			LSN: e.LSN, Due: e.Due, DueAt: time.UnixMilli(e.Due).UTC().Format("2006-01-02T15:04:05.000Z"),
			Broker: e.Flow.Broker, Topic: e.Flow.Topic, Queue: e.Lane, Key: e.Key, Keys: e.Keys,
			Bytes: len(e.Body), File: e.File, Offset: e.Offset,
		}
		if c.Body {
			l.Body = base64.StdEncoding.EncodeToString(e.Body)
		}
		return lines.Encode(l)
	}, func(x timer.Problem) { fmt.Fprintln(p.stderr, x) })
	if err := errors.Join(err, out.Flush()); err != nil {
		return cannot(err)
	}
	if sum.Problems > 0 {
		return &exitError{code: exitDamaged}
	}
	return nil
}
