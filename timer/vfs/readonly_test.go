package vfs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestReadOnlyChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a", []byte("hello"), 0o400); err != nil {
		t.Fatal(err)
	}
	var fs ReadOnly
	if got := content(t, fs, dir+"/a"); got != "hello" {
		t.Fatalf("%q", got)
	}
	f, err := fs.Open(dir + "/a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("written")
	}
	if err := errors.Join(f.Sync(true), fs.SyncDir(dir)); err != nil {
		t.Error(err)
	}
	_, create := fs.Create(dir + "/b")
	for what, err := range map[string]error{
		"create": create, "rename": fs.Rename(dir+"/a", dir+"/b"), "remove": fs.Remove(dir + "/a"), "mkdir": fs.MkdirAll(dir + "/c"),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if l, err := fs.Lock(dir + "/LOCK"); err != nil || l.Unlock() != nil {
		t.Errorf("lock of nothing: %v", err)
	}
	if names, _ := fs.ReadDir(dir); len(names) != 1 || content(t, fs, dir+"/a") != "hello" {
		t.Error(names)
	}
}

func TestLockNamesItsHolder(t *testing.T) {
	path := t.TempDir() + "/LOCK"
	held, err := OS{}.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, fs := range map[string]FS{"writer": OS{}, "reader": ReadOnly{}} {
		_, err := fs.Lock(path)
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
			t.Errorf("%s: %v", name, err)
		}
	}
	held.Unlock()
	first, err := ReadOnly{}.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ReadOnly{}.Lock(path)
	if err != nil {
		t.Fatal("readers do not share it:", err)
	}
	if _, err := (OS{}).Lock(path); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
	if err := errors.Join(first.Unlock(), second.Unlock()); err != nil {
		t.Fatal(err)
	}
}
