package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	bookFormat  = "delaygate address book"
	bookVersion = 1
)

// bookFile is the file as a whole.
type bookFile struct {
	Format  string  `json:"format"`
	Version int     `json:"version"`
	Brokers []entry `json:"brokers"`
}

// load reads a book, empty when there is no file. It refuses what is no sound book.
func load(fs vfs.FS, path string) ([]entry, error) {
	text, err := readFile(fs, path)
	if vfs.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("address book %s: %w", path, err)
	}
	entries, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("address book %s: %w. Clients rely on its ports: put back the file from a backup; only when no client "+
			"is running any more, move it away to begin a new one", path, err)
	}
	return entries, nil
}

func parse(text []byte) ([]entry, error) {
	var f bookFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if f.Format != bookFormat {
		return nil, fmt.Errorf("its format is %q, not %q: another program's file", f.Format, bookFormat)
	}
	if f.Version != bookVersion {
		return nil, fmt.Errorf("its version is %d, this program knows version %d", f.Version, bookVersion)
	}
	for i, e := range f.Brokers {
		if e.Addr == "" || e.Port <= vipOffset || e.Port > 65535 {
			return nil, fmt.Errorf("it is damaged: broker %d has address %q and port %d", i+1, e.Addr, e.Port)
		}
		if find(f.Brokers[:i], e.Addr) >= 0 {
			return nil, fmt.Errorf("it is damaged: %s stands there twice", e.Addr)
		}
		if j := clash(f.Brokers[:i], e.Port); j >= 0 {
			return nil, fmt.Errorf("it is damaged: the ports %d of %s and %d of %s are in each other's way (a broker has its port and the one %d below)",
				f.Brokers[j].Port, f.Brokers[j].Addr, e.Port, e.Addr, vipOffset)
		}
	}
	return f.Brokers, nil
}

// store replaces the book. When it returns nil, the next process finds the new one whatever happens;
// when not, it finds the old one or the new one.
func store(fs vfs.FS, path string, entries []entry) error {
	text, err := json.MarshalIndent(bookFile{bookFormat, bookVersion, entries}, "", "  ")
	if err != nil {
		return fmt.Errorf("address book %s: %w", path, err)
	}
	tmp, dir := path+".tmp", filepath.Dir(path)
	if err := fs.MkdirAll(dir); err != nil {
		return fmt.Errorf("address book: make folder %s: %w", dir, err)
	}
	if err := writeFile(fs, tmp, append(text, '\n')); err != nil {
		return fmt.Errorf("address book: write %s: %w", tmp, err)
	}
	if err := fs.Rename(tmp, path); err != nil {
		return fmt.Errorf("address book: rename %s to %s: %w", tmp, path, err)
	}
	if err := fs.SyncDir(dir); err != nil {
		return fmt.Errorf("address book: sync folder %s: %w", dir, err)
	}
	return nil
}

func writeFile(fs vfs.FS, path string, text []byte) error {
	f, err := fs.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync(false)
	}
	return errors.Join(err, f.Close())
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	text := make([]byte, size)
	n, err := f.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return text[:n], nil
}
