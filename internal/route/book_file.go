package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	bookFormat  = "delaygate-addresses"
	bookVersion = 1
	// maxBook bounds what is read: about 6500 brokers fit into all ports.
	maxBook = 16 << 20
)

type bookFile struct {
	Format  string  `json:"format"`
	Version int     `json:"version"`
	Brokers []entry `json:"brokers"`
}

func loadBook(fs vfs.FS, path string) ([]entry, error) {
	raw, err := readAll(fs, path)
	if vfs.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("address book: read %s: %w", path, err)
	}
	entries, err := parseBook(raw)
	if err != nil {
		return nil, fmt.Errorf("address book %s: %w; put a backup back or correct it by hand: without it clients "+
			"that run may reach the wrong broker. When no client runs, it may be removed and is built anew", path, err)
	}
	return entries, nil
}

func parseBook(raw []byte) ([]entry, error) {
	var head struct {
		Format  *string `json:"format"`
		Version int     `json:"version"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("damaged, or no address book: %w", err)
	}
	if head.Format == nil || *head.Format != bookFormat {
		return nil, fmt.Errorf(`not an address book: its "format" is not %q`, bookFormat)
	}
	if head.Version != bookVersion {
		return nil, fmt.Errorf("written in version %d, this program reads version %d", head.Version, bookVersion)
	}
	var f bookFile
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	return f.Brokers, checkEntries(f.Brokers)
}

func checkEntries(entries []entry) error {
	ports := make(map[int]string, len(entries))
	addrs := make(map[string]bool, len(entries))
	for _, e := range entries {
		if e.Addr == "" {
			return fmt.Errorf("the broker at port %d has no address", e.Port)
		}
		if e.Port < minPort || e.Port > maxPort {
			return fmt.Errorf("port %d of %s is outside %d-%d", e.Port, e.Addr, minPort, maxPort)
		}
		if addrs[e.Addr] {
			return fmt.Errorf("%s is entered twice", e.Addr)
		}
		if other, twice := ports[e.Port]; twice {
			return fmt.Errorf("%s and %s both have port %d", other, e.Addr, e.Port)
		}
		addrs[e.Addr], ports[e.Port] = true, e.Addr
	}
	for _, e := range entries {
		if other, near := ports[e.Port-vipDistance]; near {
			return fmt.Errorf("the ports of %s and %s are %d apart (%d), but a broker needs both its port and the one %d below",
				other, e.Addr, vipDistance, e.Port, vipDistance)
		}
	}
	return nil
}

func readAll(fs vfs.FS, path string) (_ []byte, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxBook {
		return nil, fmt.Errorf("%d bytes are too many for an address book", size)
	}
	raw := make([]byte, size)
	if n, err := f.ReadAt(raw, 0); err != nil && (!errors.Is(err, io.EOF) || n < len(raw)) {
		return nil, err
	}
	return raw, nil
}

// saveBook replaces the file as a whole: after a crash it is the old one or the new one.
func saveBook(fs vfs.FS, path string, entries []entry) error {
	raw, err := json.MarshalIndent(bookFile{Format: bookFormat, Version: bookVersion, Brokers: entries}, "", "  ")
	if err != nil {
		return fmt.Errorf("address book: encode: %w", err)
	}
	tmp := path + ".tmp"
	if err := writeSynced(fs, tmp, append(raw, '\n')); err != nil {
		return fmt.Errorf("address book: write %s: %w; the old book is kept, no new broker gets a port", tmp, err)
	}
	if err := fs.Rename(tmp, path); err != nil {
		return fmt.Errorf("address book: rename %s to %s: %w; the old book is kept, no new broker gets a port", tmp, path, err)
	}
	if err := fs.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("address book: sync the folder of %s: %w; no new broker gets a port", path, err)
	}
	return nil
}

func writeSynced(fs vfs.FS, path string, raw []byte) (err error) {
	f, err := fs.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(raw, 0); err != nil {
		return err
	}
	return f.Sync(false)
}
