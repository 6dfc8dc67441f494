package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delaygate/delaygate/timer"
)

// fill puts n messages into a data folder, due in an hour and later.
func fill(t *testing.T, data string, n int) {
	t.Helper()
	s := openStore(t, data)
	done := make(chan error, n)
	for i := range n {
		e := &timer.Entry{
			Flow: timer.Flow{Broker: "broker-a", Topic: fmt.Sprint("topic", i%3)}, Lane: uint16(i % 8),
			Due: time.Now().Add(time.Hour).UnixMilli() + int64(i), Key: fmt.Sprint("key", i), Keys: "order " + fmt.Sprint(i),
			Body: bytes.Repeat([]byte{byte(i)}, i%400),
		}
		if _, err := s.Put(e, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, data string) *timer.Store {
	t.Helper()
	o := timer.DefaultOptions()
	o.Dir, o.SegmentBytes = filepath.Join(data, storeFolder), 1<<20
	s, err := timer.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tool runs one command to its end.
func tool(stdin []byte, args ...string) (code int, stdout []byte, stderr string) {
	var out, errs bytes.Buffer
	code = execute(args, &process{ctx: context.Background(), stdin: bytes.NewReader(stdin), stdout: &out, stderr: &errs})
	return code, out.Bytes(), errs.String()
}

func want(t *testing.T, what string, code, wantCode int, stderr string, texts ...string) {
	t.Helper()
	if code != wantCode {
		t.Fatalf("%s: exit code %d, want %d: %s", what, code, wantCode, stderr)
	}
	for _, text := range texts {
		if !strings.Contains(stderr, text) {
			t.Errorf("%s says %q, which lacks %q", what, stderr, text)
		}
	}
}

func TestExportedMessagesAreInTheFolderTheyAreImportedInto(t *testing.T) {
	from, to, file := t.TempDir(), filepath.Join(t.TempDir(), "new"), filepath.Join(t.TempDir(), "pending")
	fill(t, from, 500)
	code, _, errs := tool(nil, "store", "export", from, "-o", file)
	want(t, "export", code, 0, errs, "500 messages exported")
	code, _, errs = tool(nil, "store", "import", to, file)
	want(t, "import", code, 0, errs, "500 messages imported, 0 were pending already")

	stream, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	code, _, errs = tool(stream, "store", "import", to)
	want(t, "import again", code, 0, errs, "0 messages imported, 500 were pending already")
	s := openStore(t, to)
	defer s.Close()
	if n := s.Stats().Pending; n != 500 {
		t.Fatalf("%d are pending", n)
	}
	code, again, errs := tool(nil, "store", "export", from)
	want(t, "export to standard output", code, 0, errs)
	const head = 64 // it has the time of the export
	if len(again) != len(stream) || len(stream) < head {
		t.Fatalf("%d bytes, then %d", len(stream), len(again))
	}
}

func TestStoreCommandsSayWhatIsWrong(t *testing.T) {
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "pending")
	fill(t, data, 100)
	code, _, errs := tool(nil, "store", "export", data, "-o", file)
	want(t, "export", code, 0, errs)
	stream, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	code, _, errs = tool(nil, "store", "export", data, "-o", file)
	want(t, "export over a file", code, 2, errs, file, "exists")
	code, _, errs = tool(stream[:len(stream)/2], "store", "import", t.TempDir())
	want(t, "import of half a stream", code, 1, errs, "damaged", "were taken")
	code, _, errs = tool([]byte("hello"), "store", "import", t.TempDir())
	want(t, "import of something else", code, 1, errs, "damaged")
	code, _, errs = tool(nil, "store", "export", filepath.Join(data, "nowhere"))
	want(t, "export of no folder", code, 2, errs, "nowhere")
	empty := t.TempDir()
	code, _, errs = tool(nil, "store", "export", empty)
	want(t, "export of an empty folder", code, 2, errs, empty, "--data")

	s := openStore(t, data)
	defer s.Close()
	code, _, errs = tool(nil, "store", "export", data)
	want(t, "export of a folder in use", code, 2, errs, "in use")
	code, _, errs = tool(stream, "store", "import", data)
	want(t, "import into a folder in use", code, 2, errs, "in use")
}

// A damaged message is left out, which is said; the stream of the others is good and kept.
func TestStoreExportLeavesDamageOut(t *testing.T) {
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "pending")
	fill(t, data, 100)
	if err := openStore(t, data).Close(); err != nil { // from now on what is in it is known to have been synced
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(data, storeFolder, "*-*"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := false
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, bytes.Repeat([]byte{50}, 50)); at > 0 {
			b[at+10] ^= 1
			damaged = true
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !damaged {
		t.Fatal("no file has the message")
	}
	code, _, errs := tool(nil, "store", "export", data, "-o", file)
	want(t, "export", code, 1, errs, "99 messages exported", "1 messages are damaged")
	code, _, errs = tool(nil, "store", "import", t.TempDir(), file)
	want(t, "import", code, 0, errs, "99 messages imported")
}

func TestStoreImportTakesTheStoreFolderToo(t *testing.T) {
	data := t.TempDir()
	fill(t, data, 10)
	store := filepath.Join(data, storeFolder)
	code, stream, errs := tool(nil, "store", "export", store)
	want(t, "export", code, 0, errs, "10 messages exported")
	code, _, errs = tool(stream, "store", "import", store)
	want(t, "import", code, 0, errs, "0 messages imported, 10 were pending already")
	if _, err := os.Stat(filepath.Join(store, storeFolder)); err == nil {
		t.Error("a store was made in the store")
	}
}
