package vfs

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
)

func writeAt(t *testing.T, f File, s string, off int64) {
	t.Helper()
	if _, err := f.WriteAt([]byte(s), off); err != nil {
		t.Fatal(err)
	}
}

// content returns a file's bytes, or "absent".
func content(t *testing.T, fs FS, path string) string {
	t.Helper()
	f, err := fs.Open(path)
	if IsNotExist(err) {
		return "absent"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, _ := f.Size()
	b := make([]byte, size)
	f.ReadAt(b, 0)
	return string(b)
}

func TestAllFileSystemsBehaveAlike(t *testing.T) {
	for name, fs := range map[string]FS{"os": OS{}, "mem": NewMem(), "faulty": NewFaulty(NewMem())} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir() + "/d"
			if err := fs.MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
			a, err := fs.Create(dir + "/a")
			if err != nil {
				t.Fatal(err)
			}
			writeAt(t, a, "hello", 3)
			if err := errors.Join(a.Sync(true), a.Sync(false), a.Truncate(6), fs.Rename(dir+"/a", dir+"/b"), fs.SyncDir(dir)); err != nil {
				t.Fatal(err)
			}
			if got := content(t, fs, dir+"/b"); got != "\x00\x00\x00hel" {
				t.Fatalf("%q", got)
			}
			l, err := fs.Lock(dir + "/LOCK")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fs.Lock(dir + "/LOCK"); !errors.Is(err, ErrLocked) {
				t.Fatalf("second lock: %v", err)
			}
			if err := l.Unlock(); err != nil {
				t.Fatal(err)
			}
			if l, err = fs.Lock(dir + "/LOCK"); err != nil {
				t.Fatal(err)
			}
			l.Unlock()
			if names, err := fs.ReadDir(dir); err != nil || !strings.Contains(strings.Join(names, " "), "b") {
				t.Fatalf("%v %v", names, err)
			}
			if err := fs.Remove(dir + "/b"); err != nil {
				t.Fatal(err)
			}
			if n, err := a.ReadAt(make([]byte, 6), 0); n != 6 {
				t.Fatalf("a removed file must stay readable: %d %v", n, err)
			}
			for _, err := range []error{fs.Remove(dir + "/b"), fs.Rename(dir+"/b", dir+"/c")} {
				if !IsNotExist(err) {
					t.Fatalf("absent: %v", err)
				}
			}
			a.Close()
		})
	}
}

func TestPowerLossKeepsWhatWasSynced(t *testing.T) {
	m := NewMem()
	f, _ := m.Create("d/f")
	writeAt(t, f, "synced", 0)
	f.Sync(true)
	if got := content(t, m.AfterPowerLoss(nil, 0), "d/f"); got != "absent" {
		t.Fatalf("without SyncDir: %q", got)
	}
	m.SyncDir("d")
	writeAt(t, f, "unsync", 0)
	if got := content(t, m.AfterPowerLoss(nil, 0), "d/f"); got != "synced" {
		t.Fatalf("%q", got)
	}
	if got := content(t, m.AfterKill(), "d/f"); got != "unsync" {
		t.Fatalf("%q", got)
	}
	m.Rename("d/f", "d/g")
	m.Remove("d/g")
	if got := content(t, m.AfterPowerLoss(nil, 0), "d/f"); got != "synced" {
		t.Fatalf("rename and removal were not synced: %q", got)
	}
	m.SyncDir("d")
	if got := content(t, m.AfterPowerLoss(nil, 0), "d/f") + content(t, m.AfterPowerLoss(nil, 0), "d/g"); got != "absentabsent" {
		t.Fatalf("%q", got)
	}
}

func TestPowerLossTearsWritesAtSectors(t *testing.T) {
	m := NewMem()
	f, _ := m.Create("d/f")
	writeAt(t, f, strings.Repeat("a", 2048), 0)
	f.Sync(true)
	m.SyncDir("d")
	writeAt(t, f, strings.Repeat("b", 2000), 24)
	torn := map[string]bool{}
	for seed := range uint64(40) {
		got := content(t, m.AfterPowerLoss(rand.New(rand.NewPCG(seed, 0)), 0.5), "d/f")
		if got[:24] != strings.Repeat("a", 24) {
			t.Fatal("bytes outside the write changed")
		}
		for s := 0; s < 2048; s += sector {
			part := got[max(s, 24):min(s+sector, 2024)]
			if strings.Count(part, part[:1]) != len(part) {
				t.Fatal("torn within a sector")
			}
		}
		torn[got] = true
	}
	if len(torn) < 8 {
		t.Fatalf("only %d outcomes", len(torn))
	}
}

func TestFailedSyncLosesWhatItShouldHaveSynced(t *testing.T) {
	m := NewMem()
	fs := NewFaulty(m)
	f, _ := fs.Create("d/f")
	fs.SyncDir("d")
	writeAt(t, f, "lost", 0)
	fault := errors.New("fault")
	fs.Set(func(op Op, _ string) *Fault {
		if op == OpSync {
			return &Fault{Err: fault}
		}
		return nil
	})
	if err := f.Sync(true); !errors.Is(err, fault) {
		t.Fatal(err)
	}
	fs.Set(nil)
	if err := f.Sync(true); err != nil {
		t.Fatal(err)
	}
	if got := content(t, m, "d/f") + "," + content(t, m.AfterPowerLoss(nil, 0), "d/f"); got != "lost," {
		t.Fatalf("%q", got)
	}
}

func TestShortWriteAndKill(t *testing.T) {
	m := NewMem()
	fs := NewFaulty(m)
	f, _ := fs.Create("d/f")
	fs.Set(func(op Op, _ string) *Fault {
		if op == OpWrite {
			return &Fault{Err: os.ErrInvalid, Short: true}
		}
		return nil
	})
	if n, err := f.WriteAt([]byte("12345678"), 0); n != 4 || !errors.Is(err, os.ErrInvalid) {
		t.Fatal(n, err)
	}
	m.Kill()
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	if got := content(t, m.AfterKill(), "d/f"); got != "1234" {
		t.Fatalf("%q", got)
	}
}

func TestAllocateTakesSpaceAndKeepsBytes(t *testing.T) {
	mem := NewMem()
	mem.SetCapacity(1 << 20)
	for name, fs := range map[string]FS{"os": OS{}, "mem": mem, "faulty": NewFaulty(mem)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir() + "/d"
			fs.MkdirAll(dir)
			avail, total, err := fs.Free(dir)
			if err != nil || avail <= 0 || total < avail {
				t.Fatal(avail, total, err)
			}
			f, err := fs.Create(dir + "/a")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			writeAt(t, f, "hello", 0)
			if err := errors.Join(f.Allocate(8), f.Allocate(3)); err != nil {
				t.Fatal(err)
			}
			if got := content(t, fs, dir+"/a"); got != "hello\x00\x00\x00" {
				t.Fatalf("%q", got)
			}
			f.Truncate(0)
			if err := errors.Join(f.Allocate(64<<10), f.Punch(4096, 8192)); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Fatal(err)
			}
			if err := f.Allocate(1); err != nil {
				t.Fatal(err)
			}
			if err := f.Allocate(64 << 10); err != nil {
				t.Fatal(err)
			}
			if n, err := f.Occupied(); n < 64<<10 || err != nil {
				t.Fatalf("the hole was not filled: %d, %v", n, err)
			}
			if err := f.Allocate(1 << 50); !IsFull(err) && !errors.Is(err, syscall.EFBIG) {
				t.Fatalf("more than there is: %v", err)
			}
		})
	}
}

func TestCapacityOfMem(t *testing.T) {
	m := NewMem()
	m.SetCapacity(1000)
	free := func(want int64) {
		t.Helper()
		if avail, total, err := m.Free("d"); avail != want || total != 1000 || err != nil {
			t.Fatal(avail, total, err, "want", want)
		}
	}
	a, _ := m.Create("d/a")
	writeAt(t, a, strings.Repeat("a", 900), 0)
	b, _ := m.Create("d/b")
	if n, err := b.WriteAt(make([]byte, 300), 0); n != 100 || !IsFull(err) {
		t.Fatalf("%d bytes of 100, %v", n, err)
	}
	if err := b.Allocate(101); !IsFull(err) {
		t.Fatal(err)
	}
	free(0)
	writeAt(t, a, "over what is there", 20)
	m.Rename("d/a", "d/c")
	m.Remove("d/c")
	free(0) // it is open
	a.Close()
	free(900)
	if err := a.Close(); err == nil {
		t.Fatal("closed twice")
	}
	if err := b.Allocate(1000); err != nil {
		t.Fatal(err)
	}
	if c := m.AfterKill(); c.Used() != 1000 {
		t.Fatal(c.Used())
	} else if f, _ := c.Open("d/b"); f.Allocate(1001) == nil {
		t.Fatal("the capacity was lost with the process")
	}
	b.Truncate(10)
	free(990)
	m.SetCapacity(5)
	if n, err := b.WriteAt([]byte("0123456789"), 5); n != 5 || !IsFull(err) {
		t.Fatal(n, err)
	}
}
