package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
)

func TestPunchGivesBlocksBack(t *testing.T) {
	for name, fs := range map[string]FS{"os": OS{}, "mem": NewMem(), "faulty": NewFaulty(NewMem())} {
		t.Run(name, func(t *testing.T) {
			f, err := fs.Create(t.TempDir() + "/f")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			want := bytes.Repeat([]byte("x"), 16*block)
			writeAt(t, f, string(want), 0)
			if err := f.Sync(false); err != nil {
				t.Fatal(err)
			}
			full, err := f.Occupied()
			if err != nil || full != 16*block {
				t.Fatalf("%d bytes occupied, %v", full, err)
			}
			if err := f.Punch(2*block, 8*block); err != nil {
				t.Fatal(err)
			}
			clear(want[2*block : 10*block])
			got := make([]byte, 16*block)
			if n, err := f.ReadAt(got, 0); n != len(got) || !bytes.Equal(got, want) {
				t.Fatalf("read %d bytes, %v; as expected: %v", n, err, bytes.Equal(got, want))
			}
			if n, err := f.Occupied(); n != 8*block || err != nil {
				t.Fatalf("%d bytes occupied, %v", n, err)
			}
			if size, err := f.Size(); size != 16*block || err != nil {
				t.Fatalf("size %d, %v", size, err)
			}
			if got := stretches(t, f); !slices.Equal(got, []int64{0, 2 * block, 10 * block, 16 * block}) {
				t.Fatalf("data in %v", got)
			}
			writeAt(t, f, "y", 4*block+1)
			if got := stretches(t, f); !slices.Equal(got, []int64{0, 2 * block, 4 * block, 5 * block, 10 * block, 16 * block}) {
				t.Fatalf("after a write data in %v", got)
			}
			if err := f.Punch(0, 16*block); err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.Data(0); !errors.Is(err, io.EOF) {
				t.Fatalf("data in an empty file: %v", err)
			}
		})
	}
}

func stretches(t *testing.T, f File) (all []int64) {
	t.Helper()
	for off := int64(0); ; {
		from, to, err := f.Data(off)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, from, to)
		off = to
	}
}

// Less than a block is zeroed and stays.
func TestPunchOfPartsOfBlocks(t *testing.T) {
	m := NewMem()
	f, _ := m.Create("d/f")
	writeAt(t, f, string(bytes.Repeat([]byte("x"), 3*block)), 0)
	if err := f.Punch(10, 2*block); err != nil {
		t.Fatal(err)
	}
	if n, _ := f.Occupied(); n != 2*block {
		t.Fatalf("%d bytes occupied", n)
	}
	b := make([]byte, 3*block)
	f.ReadAt(b, 0)
	if bytes.Count(b, []byte{0}) != 2*block || b[9] != 'x' || b[10+2*block] != 'x' {
		t.Fatal("other bytes than those asked for are zero")
	}
}

func TestPunchIsDurableAfterSyncOnly(t *testing.T) {
	m := NewMem()
	f, _ := m.Create("d/f")
	writeAt(t, f, string(bytes.Repeat([]byte("x"), 4*block)), 0)
	f.Sync(false)
	m.SyncDir("d")
	f.Punch(0, 2*block)
	occupied := func(m *Mem) int64 {
		f, err := m.Open("d/f")
		if err != nil {
			t.Fatal(err)
		}
		n, _ := f.Occupied()
		return n
	}
	if a, b := occupied(m.AfterKill()), occupied(m.AfterPowerLoss(nil, 0)); a != 2*block || b != 4*block {
		t.Fatalf("%d bytes after a kill, %d after a power loss", a, b)
	}
	half := 0
	for seed := range uint64(20) {
		lost := m.AfterPowerLoss(rand.New(rand.NewPCG(seed, 0)), 0.5)
		if zeros := bytes.Count([]byte(content(t, lost, "d/f")), []byte{0}); zeros%sector == 0 && zeros > 0 && zeros < 2*block {
			half++
		}
	}
	if half < 15 {
		t.Fatalf("only %d of 20 power losses left a part of the hole", half)
	}
	f.Sync(true)
	if n := occupied(m.AfterPowerLoss(nil, 0)); n != 2*block {
		t.Fatalf("%d bytes after the sync", n)
	}
}

func TestFaultyPunch(t *testing.T) {
	m := NewMem()
	fs := NewFaulty(m)
	f, _ := fs.Create("d/f")
	writeAt(t, f, string(bytes.Repeat([]byte("x"), block)), 0)
	fs.Set(func(op Op, path string) *Fault {
		if op == OpPunch && path == "d/f" {
			return &Fault{Err: syscall.ENOTSUP}
		}
		return nil
	})
	if err := f.Punch(0, block); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if n, _ := f.Occupied(); n != block {
		t.Fatal("punched all the same")
	}
}

func TestPunchMakesRoomOnAFullDisk(t *testing.T) {
	m := NewMem()
	m.SetCapacity(8 * block)
	f, _ := m.Create("d/f")
	writeAt(t, f, string(bytes.Repeat([]byte("x"), 8*block)), 0)
	g, _ := m.Create("d/g")
	if _, err := g.WriteAt([]byte("y"), 0); !IsFull(err) {
		t.Fatal(err)
	}
	f.Punch(0, 3*block)
	if n, _, _ := m.Free("d"); n != 3*block {
		t.Fatalf("%d bytes free", n)
	}
	writeAt(t, g, "y", 0)
}
