package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/timer/vfs"
)

const bookPath = "/data/addresses.json"

func openMem(t *testing.T, fs vfs.FS, first, last int) *Book {
	t.Helper()
	b, err := OpenBookFS(fs, bookPath, first, last)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustPort(t *testing.T, b *Book, addr string) int {
	t.Helper()
	p, err := b.Port(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPortsStepByTenAndStayAcrossReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "addresses.json")
	want := map[string]int{}
	for life := range 3 {
		b, err := OpenBook(path, 20000, 20100)
		if err != nil {
			t.Fatal(err)
		}
		for addr, port := range want {
			if got := mustPort(t, b, addr); got != port {
				t.Fatalf("life %d: port of %s is %d, was %d", life, addr, got, port)
			}
		}
		addr := fmt.Sprintf("10.0.0.%d:10911", life)
		want[addr] = mustPort(t, b, addr)
		if want[addr] != 20000+10*life {
			t.Fatalf("port of broker %d is %d", life, want[addr])
		}
	}
}

func TestBrokersSurviveReopenAndKeepTheirPortWhenTheirRoleChanges(t *testing.T) {
	fs := vfs.NewMem()
	b := openMem(t, fs, 20000, 29990)
	a := upstream.Broker{Name: "a", Cluster: "c", Addr: "10.0.0.1:10911"}
	s := upstream.Broker{Name: "a", Cluster: "c", ID: 1, Addr: "10.0.0.2:10911"}
	if err := b.Learn([]upstream.Broker{a, s}); err != nil {
		t.Fatal(err)
	}
	mustPort(t, b, "10.0.0.3:10911") // nameless: nothing to seed a view with
	s.ID = 0
	if err := b.Learn([]upstream.Broker{s, {Addr: a.Addr}}); err != nil {
		t.Fatal(err)
	}
	b = openMem(t, fs, 20000, 29990)
	if d := cmp.Diff([]upstream.Broker{a, s}, b.Brokers()); d != "" {
		t.Fatal(d)
	}
	if p := mustPort(t, b, s.Addr); p != 20010 {
		t.Fatalf("port %d", p)
	}
}

func TestFullRangeSaysWhatToDoAndKeepsTheRest(t *testing.T) {
	fs := vfs.NewMem()
	b := openMem(t, fs, 20000, 20019)
	err := b.Learn([]upstream.Broker{{Name: "a", Addr: "a:1"}, {Name: "b", Addr: "b:1"}, {Name: "c", Addr: "c:1"}})
	if !errors.Is(err, ErrRangeFull) || !strings.Contains(err.Error(), "widen broker_ports") || !strings.Contains(err.Error(), "c:1") {
		t.Fatalf("error %v", err)
	}
	if _, err := b.Port("d:1"); !errors.Is(err, ErrRangeFull) {
		t.Fatalf("error %v", err)
	}
	if got := len(openMem(t, fs, 20000, 20019).Brokers()); got != 2 {
		t.Fatalf("%d brokers on disk", got)
	}
}

func TestChangedRangeKeepsOldPortsAndAvoidsTheirVIPPorts(t *testing.T) {
	fs := vfs.NewMem()
	b := openMem(t, fs, 20000, 20010)
	mustPort(t, b, "a:1")
	mustPort(t, b, "b:1")
	b = openMem(t, fs, 19998, 20028) // 19998 and 20008 are 2 below the old ports
	if p := mustPort(t, b, "c:1"); p != 20018 {
		t.Fatalf("new port %d", p)
	}
	if p := mustPort(t, b, "a:1"); p != 20000 {
		t.Fatalf("old port %d", p)
	}
	if p := mustPort(t, openMem(t, fs, 20002, 20040), "d:1"); p != 20022 {
		t.Fatalf("new port %d, but 20002 and 20012 are 2 above old ports", p)
	}
}

func TestImpossibleRangesAreRefused(t *testing.T) {
	for _, r := range [][2]int{{2, 100}, {0, 0}, {20000, 19999}, {20000, 65536}} {
		if _, err := OpenBookFS(vfs.NewMem(), bookPath, r[0], r[1]); err == nil || !strings.Contains(err.Error(), "20000-29990") {
			t.Errorf("%v: error %v", r, err)
		}
	}
}

func TestBadBooksAreRefusedWithAHint(t *testing.T) {
	book := func(entries string) string {
		return `{"format":"delaygate-addresses","version":1,"brokers":[` + entries + `]}`
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":         {"", "damaged"},
		"cut off":       {book(`{"addr":"a:1","port":20000}`)[:60], "damaged"},
		"trailing":      {book("") + "x", "damaged"},
		"foreign":       {`{"brokers":[]}`, "not an address book"},
		"array":         {`[]`, "no address book"},
		"future":        {`{"format":"delaygate-addresses","version":2}`, "version 2"},
		"unknown":       {book(`{"addr":"a:1","port":20000,"prot":1}`), "unknown field"},
		"text port":     {book(`{"addr":"a:1","port":"20000"}`), "damaged"},
		"no address":    {book(`{"port":20000}`), "no address"},
		"port 0":        {book(`{"addr":"a:1"}`), "outside"},
		"port 2":        {book(`{"addr":"a:1","port":2}`), "outside"},
		"port 65536":    {book(`{"addr":"a:1","port":65536}`), "outside"},
		"same address":  {book(`{"addr":"a:1","port":20000},{"addr":"a:1","port":20010}`), "twice"},
		"same port":     {book(`{"addr":"a:1","port":20000},{"addr":"b:1","port":20000}`), "both have port 20000"},
		"ports 2 apart": {book(`{"addr":"a:1","port":20002},{"addr":"b:1","port":20000}`), "2 apart"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "addresses.json")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := OpenBook(path, 20000, 29990)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "backup") {
				t.Fatalf("error %v", err)
			}
			if kept, _ := os.ReadFile(path); string(kept) != c.text {
				t.Fatalf("the file was changed to %q", kept)
			}
		})
	}
}

func TestFailedWriteLeavesTheOldBook(t *testing.T) {
	broken := errors.New("disk is broken")
	for name, op := range map[string]vfs.Op{
		"create": vfs.OpCreate, "write": vfs.OpWrite, "sync": vfs.OpSync, "rename": vfs.OpRename, "sync folder": vfs.OpSyncDir,
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			fs := vfs.NewFaulty(mem)
			b := openMem(t, fs, 20000, 29990)
			mustPort(t, b, "a:1")
			fs.Set(func(o vfs.Op, _ string) *vfs.Fault {
				if o == op {
					return &vfs.Fault{Err: broken, Short: true}
				}
				return nil
			})
			if _, err := b.Port("b:1"); !errors.Is(err, broken) {
				t.Fatalf("error %v", err)
			}
			if _, ok := b.Lookup("b:1"); ok {
				t.Fatal("a port that is not on disk is in use")
			}
			after := openMem(t, mem.AfterKill(), 20000, 29990)
			if p, ok := after.Lookup("a:1"); !ok || p != 20000 {
				t.Fatalf("old entry: %d %v", p, ok)
			}
			fs.Set(nil)
			if p := mustPort(t, b, "b:1"); p != 20010 {
				t.Fatalf("port %d after the fault", p)
			}
		})
	}
}

func TestPortsAreOnDiskBeforeTheyAreReturned(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		mem := vfs.NewMem()
		b := openMem(t, mem, 20000, 29990)
		want := map[string]int{}
		for i := range 1 + rng.IntN(5) {
			addr := fmt.Sprintf("broker-%d:10911", i)
			want[addr] = mustPort(t, b, addr)
		}
		after := openMem(t, mem.AfterPowerLoss(rng, rng.Float64()), 20000, 29990)
		for addr, port := range want {
			if got, ok := after.Lookup(addr); !ok || got != port {
				t.Fatalf("%s had port %d, after the power loss %d %v", addr, port, got, ok)
			}
		}
	}
}

func TestManyAtOnceGetDifferentPorts(t *testing.T) {
	b := openMem(t, vfs.NewMem(), 20000, 29990)
	ports := make([]int, 40)
	var wg sync.WaitGroup
	for i := range ports {
		wg.Go(func() { ports[i], _ = b.Port(fmt.Sprintf("b%d:1", i%20)) })
	}
	wg.Wait()
	seen := map[int]int{}
	for i, p := range ports {
		if p == 0 || p != ports[i%20] {
			t.Fatalf("ports %v", ports)
		}
		seen[p]++
	}
	if len(seen) != 20 {
		t.Fatalf("ports %v", ports)
	}
}

func TestPortsInUseArePassedOverButNeverGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.json")
	open := func(inUse int) *Book {
		b, err := OpenBook(path, 20000, 20030)
		if err != nil {
			t.Fatal(err)
		}
		b.Avoid(func(port int) bool { return port != inUse })
		return b
	}
	if port, err := open(20000).Port("10.0.0.1:10911"); port != 20010 || err != nil {
		t.Errorf("a new broker got %d, %v; want 20010", port, err)
	}
	b := open(20010)
	if port, err := b.Port("10.0.0.1:10911"); port != 20010 || err != nil {
		t.Errorf("a known broker got %d, %v; want its own 20010", port, err)
	}
	if port, err := b.Port("10.0.0.2:10911"); port != 20000 || err != nil {
		t.Errorf("another broker got %d, %v; want 20000", port, err)
	}
}
