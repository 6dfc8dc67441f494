package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/delaygate/delaygate/timer"
	"github.com/delaygate/delaygate/timer/vfs"
)

func TestStoreCommands(t *testing.T) {
	held := map[string]*timer.Store{}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":  wantCode,
			"lines": wantLines,
			"fill": func(ts *testscript.TestScript, _ bool, args []string) {
				fillSealed(ts, ts.MkAbs(args[0]), number(ts, args[1]))
			},
			"flip": func(ts *testscript.TestScript, _ bool, args []string) {
				flipByte(ts, ts.MkAbs(args[0]), args[1], number(ts, args[2]))
			},
			"newer": func(ts *testscript.TestScript, _ bool, args []string) { makeNewer(ts, ts.MkAbs(args[0])) },
			"hold": func(ts *testscript.TestScript, _ bool, args []string) {
				held[ts.Name()] = openAt(ts, ts.MkAbs(args[0]))
				ts.Defer(func() { held[ts.Name()].Close() })
			},
			"release": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(held[ts.Name()].Close()) },
		},
	})
}

// wantCode runs a command and checks its exit code.
func wantCode(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := number(ts, args[0]); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func wantLines(ts *testscript.TestScript, _ bool, args []string) {
	if n := strings.Count(ts.ReadFile(args[0]), "\n"); n != number(ts, args[1]) {
		ts.Fatalf("%d lines in %s, want %s", n, args[0], args[1])
	}
}

func number(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	return n
}

func openAt(ts *testscript.TestScript, dir string) *timer.Store {
	o := timer.DefaultOptions()
	o.Dir, o.SegmentBytes = dir, 64<<10
	s, err := timer.Open(o)
	ts.Check(err)
	return s
}

// fillSealed makes a store with n pending messages in one run.
func fillSealed(ts *testscript.TestScript, dir string, n int) {
	s := openAt(ts, dir)
	done := make(chan error, n)
	for i := range n {
		_, err := s.Put(&timer.Entry{
			Flow: timer.Flow{Broker: "b", Topic: "orders"}, Lane: uint16(i % 4), Due: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(),
			Key: fmt.Sprint("K", i), Keys: fmt.Sprintf("order-%d <all>", i), Body: fmt.Append(nil, "body of ", i),
		}, func(err error) { done <- err })
		ts.Check(err)
	}
	for range n {
		ts.Check(<-done)
	}
	ts.Check(s.Close())
	_, err := timer.Repair(vfs.OS{}, dir, func(p timer.Problem) { ts.Fatalf("%v", p) }) // seals
	ts.Check(err)
}

// flipByte damages the run: a byte from its beginning, or from that of its index.
func flipByte(ts *testscript.TestScript, dir, what string, at int) {
	runs, err := filepath.Glob(filepath.Join(dir, "run-????????????????"))
	ts.Check(err)
	if len(runs) != 1 {
		ts.Fatalf("runs: %v", runs)
	}
	f, err := os.OpenFile(runs[0], os.O_RDWR, 0)
	ts.Check(err)
	defer f.Close()
	st, err := f.Stat()
	ts.Check(err)
	if what == "index" {
		var b [8]byte
		_, err := f.ReadAt(b[:], st.Size()-144+40) // in the footer
		ts.Check(err)
		at += int(binary.LittleEndian.Uint64(b[:]))
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], int64(at))
	ts.Check(err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], int64(at))
	ts.Check(err)
}

// makeNewer gives MANIFEST the next format version.
func makeNewer(ts *testscript.TestScript, dir string) {
	f, err := os.OpenFile(filepath.Join(dir, "MANIFEST"), os.O_RDWR, 0)
	ts.Check(err)
	defer f.Close()
	var head [64]byte
	_, err = f.ReadAt(head[:], 0)
	ts.Check(err)
	binary.LittleEndian.PutUint32(head[12:], 2)
	binary.LittleEndian.PutUint32(head[8:], crc32.Checksum(head[12:], crc32.MakeTable(crc32.Castagnoli)))
	_, err = f.WriteAt(head[:], 0)
	ts.Check(err)
}
