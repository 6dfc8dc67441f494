package timer

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/delaygate/delaygate/timer/vfs"
)

// formatVersion is written into every file. A folder with a higher one is refused.
const formatVersion = 1

// Names of files in the data folder; the number is the file's id in hex.
const (
	manifestName = "MANIFEST"
	manifestTmp  = "MANIFEST.tmp"
	lockName     = "LOCK"
	reserveName  = "RESERVE"
	segPrefix    = "seg-"
	runPrefix    = "run-"
	freePrefix   = "free-" // a segment that is waiting to be recycled
	brokenSuffix = ".broken"
)

func fileName(prefix string, id uint64) string { return fmt.Sprintf("%s%016x", prefix, id) }

func parseName(name, prefix string) (uint64, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok || len(rest) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(rest, 16, 64)
	return id, err == nil
}

// newEpoch returns a number that no file had before and that nobody can guess: a body cannot be made
// to look like a record.
func newEpoch() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return le.Uint64(b[:])
}

// dataFile is a segment or a run on disk. Its counters are guarded by Store.mu.
type dataFile struct {
	id    uint64
	epoch uint64
	seed  uint32
	size  int64
	path  string
	f     vfs.File

	seg *segment // one of the two
	run *run

	occupied int64 // bytes on the disk: less than size once it was punched

	refs   int  // readers
	doomed bool // no MANIFEST names it any more: recycle or unlink it once refs is 0
	rotten bool // something in it is damaged: keep it as evidence
	noted  bool // and MANIFEST says so
}

func newDataFile(id, epoch uint64, path string, f vfs.File, size int64) dataFile {
	return dataFile{id: id, epoch: epoch, seed: seedOf(id, epoch), path: path, f: f, size: size, occupied: size}
}

// readRecord reads and checks the record of length bytes at off.
func (d *dataFile) readRecord(off int64, length int) (record, error) {
	b := make([]byte, length)
	if n, err := d.f.ReadAt(b, off); n < length {
		return record{}, fmt.Errorf("read %d bytes at %d of %s: %w", length, off, d.path, err)
	}
	r, ok := parseRecord(b, d.seed)
	if !ok {
		return record{}, fmt.Errorf("%s: %w", d.path, damagedAt("a record", off))
	}
	return r, nil
}

// release gives a reader's reference back. Store.mu is held.
func (s *Store) release(d *dataFile) {
	d.refs--
	if d.refs == 0 && d.doomed {
		s.wakeJanitor()
	}
}
