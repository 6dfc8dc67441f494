package timer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// LSN is the log sequence number of a record. It rises with every record and is never used twice:
// each Open skips 2^20 numbers past the highest one it finds.
type LSN uint64

// FS is the file system a Store runs on.
type FS = vfs.FS

// Flow names one stream of entries with its own window and its own order: a broker and a topic.
type Flow struct {
	Broker string // at most 65535 bytes
	Topic  string // at most 65535 bytes
}

// Entry is what Put takes.
type Entry struct {
	Flow Flow
	Lane uint16 // the queue id
	Due  int64  // wall clock, Unix ms; entries that are due already fire at once
	Key  string // the message's unique key; at most 65535 bytes
	Keys string // business keys, separated by blanks; at most 65535 bytes
	Body []byte // opaque to the store; copied before Put returns
}

// Item is an entry that became due. It stays valid until it is settled or the store is closed.
type Item struct {
	Due  int64 // Unix ms
	LSN  LSN
	Flow Flow
	Lane uint16
	Len  int32 // bytes of its record: the body, the keys, the flow's names and 40 more

	entry *entry
}

// SyncMode says what an acknowledged Put means.
type SyncMode int

const (
	// SyncAlways acknowledges a Put when it is on the disk (SYNC_FLUSH).
	SyncAlways SyncMode = iota
	// SyncInterval acknowledges a Put when it is written and syncs every Options.SyncEvery: it
	// survives a killed process, and a power loss may take what the last interval brought (ASYNC_FLUSH).
	SyncInterval
)

// Options configure a Store. Start from DefaultOptions; a zero field takes its default.
type Options struct {
	Dir            string               // the data folder; made if it does not exist
	FS             FS                   // default: the operating system's
	Now            func() int64         // wall clock in Unix ms; default: the operating system's
	Monotonic      func() time.Duration // a clock that nobody sets, to notice when somebody sets the other; default: the operating system's
	Log            *slog.Logger         // default: nothing is logged
	Sync           SyncMode             // default: SyncAlways
	SyncEvery      time.Duration        // SyncInterval only: longest time that a Put stays unsynced; default 500 ms
	SegmentBytes   int64                // size of an intake segment, 16 KiB to 1 GiB; default 64 MiB. Bounds the size of an entry
	GroupBytes     int                  // most bytes that wait for the writer before Put answers ErrBusy; default 8 MiB
	Horizon        time.Duration        // how far ahead entries are loaded into RAM; default 60 s
	ReadAheadBytes int64                // bodies of sealed entries that are read into RAM up to 5 s before they are due; default 32 MiB
	Window         int                  // entries of one flow in RAM, fired and unsettled ones included; default 8192

	// Put refuses entries due further ahead than FarAfter (default 1 h) while less than a far mark is free on the data disk, and all
	// entries below a lower mark. The marks follow from what sealing needs; FarFree and MinFree, in bytes, raise them.
	FarAfter time.Duration
	FarFree  int64
	MinFree  int64

	MaxRuns          int   // sealed runs, and so open files, beyond which the smallest are merged; default 128
	MergeBytesPerSec int64 // what merging runs may write in a second, and a quarter of it while puts wait or firing lags; default 32 MiB

	poll          time.Duration // longest sleep between two looks at the wall clock
	backoff       time.Duration // first pause after an I/O error; doubles up to 50 times this
	manifestBytes int64         // MANIFEST size below which it is not rewritten
	loadBatch     int           // index entries that the loader applies per hold of the lock
	punchBytes    int64         // the smallest stretch of done records that is punched out of a run
	lookEvery     time.Duration // how often the janitor looks whether punching or merging pays
	mergeBytes    int64         // the largest run that a merge makes: bytes that are alive in its sources,
	mergeEntries  int           // and entries
	mergeRest     time.Duration // a run in which much is being done is not merged for its dead bytes before it rested that long
	scanBatch     int           // entries that a scan looks at per hold of the lock
	scanLines     int           // index lines that one page of a scan reads
	spacePoll     time.Duration // between two looks at the free space
	importWindow  int           // pending entries that an import compares with at a time, but for those due in one millisecond
}

// DefaultOptions returns every default but Dir, which has none.
func DefaultOptions() Options {
	return Options{
		FS:             vfs.OS{},
		Now:            osWallClock,
		Monotonic:      osMonotonicClock(),
		Log:            slog.New(slog.DiscardHandler),
		Sync:           SyncAlways,
		SyncEvery:      500 * time.Millisecond,
		SegmentBytes:   64 << 20,
		GroupBytes:     8 << 20,
		Horizon:        time.Minute,
		Window:         8192,
		ReadAheadBytes: 32 << 20,
		FarAfter:       time.Hour,

		MaxRuns:          128,
		MergeBytesPerSec: 32 << 20,

		poll:          100 * time.Millisecond,
		backoff:       100 * time.Millisecond,
		manifestBytes: 1 << 20,
		loadBatch:     1024,
		punchBytes:    256 << 10,
		lookEvery:     2 * time.Second,
		mergeBytes:    1 << 30,
		mergeEntries:  4 << 20,
		mergeRest:     30 * time.Second,
		scanBatch:     1024,
		scanLines:     64 << 10,
		spacePoll:     200 * time.Millisecond,
		importWindow:  64 << 10,
	}
}

// Errors that Put returns or hands to its callback. All may be wrapped: use errors.Is.
var (
	ErrBusy     = errors.New("timer: too much is waiting to be written, try again shortly")
	ErrFull     = errors.New("timer: no space left on the data disk")
	ErrFailed   = errors.New("timer: the data disk failed, the store is trying to reopen")
	ErrClosed   = errors.New("timer: the store is closed")
	ErrTooLarge = errors.New("timer: the entry is larger than a segment can hold")
)

// Errors of Load and Open.
var (
	// ErrCorrupt is what Load returns for a record whose checksum does not match.
	ErrCorrupt = errors.New("timer: damaged on disk")
	// ErrSettled is what Load returns for an item that was settled already.
	ErrSettled = errors.New("timer: the item was settled")
	// ErrLocked is what Open returns when another process (or Store) uses the folder.
	ErrLocked = vfs.ErrLocked
	// ErrVersion is what Open returns for a folder that a newer version wrote.
	ErrVersion = errors.New("timer: the data folder was written by a newer version; use that version or a new folder")
)

const (
	minSegmentBytes = 16 << 10
	maxSegmentBytes = 1 << 30
)

func (o Options) withDefaults() (Options, error) {
	d := DefaultOptions()
	if o.Dir == "" {
		return o, errors.New("timer: no data folder given")
	}
	if o.FS == nil {
		o.FS = d.FS
	}
	if o.Now == nil {
		o.Now = d.Now
	}
	if o.Monotonic == nil {
		o.Monotonic = d.Monotonic
	}
	if o.Log == nil {
		o.Log = d.Log
	}
	o.SyncEvery = orDefault(o.SyncEvery, d.SyncEvery)
	o.SegmentBytes = orDefault(o.SegmentBytes, d.SegmentBytes)
	o.GroupBytes = orDefault(o.GroupBytes, d.GroupBytes)
	o.Horizon = orDefault(o.Horizon, d.Horizon)
	o.ReadAheadBytes = orDefault(o.ReadAheadBytes, d.ReadAheadBytes)
	o.Window = orDefault(o.Window, d.Window)
	o.FarAfter = orDefault(o.FarAfter, d.FarAfter)
	o.poll = orDefault(o.poll, d.poll)
	o.backoff = orDefault(o.backoff, d.backoff)
	o.manifestBytes = orDefault(o.manifestBytes, d.manifestBytes)
	o.loadBatch = orDefault(o.loadBatch, d.loadBatch)
	o.MaxRuns = orDefault(o.MaxRuns, d.MaxRuns)
	o.MergeBytesPerSec = orDefault(o.MergeBytesPerSec, d.MergeBytesPerSec)
	o.mergeBytes = orDefault(o.mergeBytes, d.mergeBytes)
	o.mergeEntries = orDefault(o.mergeEntries, d.mergeEntries)
	o.mergeRest = orDefault(o.mergeRest, d.mergeRest)
	o.punchBytes = orDefault(o.punchBytes, d.punchBytes)
	o.lookEvery = orDefault(o.lookEvery, d.lookEvery)
	o.scanBatch = orDefault(o.scanBatch, d.scanBatch)
	o.scanLines = orDefault(o.scanLines, d.scanLines)
	o.spacePoll = orDefault(o.spacePoll, d.spacePoll)
	o.importWindow = orDefault(o.importWindow, d.importWindow)
	if o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes {
		return o, fmt.Errorf("timer: segment size %d is outside %d..%d bytes", o.SegmentBytes, minSegmentBytes, maxSegmentBytes)
	}
	if o.MaxRuns < 2 || o.MergeBytesPerSec < 1 {
		return o, fmt.Errorf("timer: at most %d runs and %d merged bytes a second: they must be at least 2 and 1", o.MaxRuns, o.MergeBytesPerSec)
	}
	if o.Window < 1 || o.Horizon < time.Millisecond || o.GroupBytes < 1 {
		return o, fmt.Errorf("timer: window %d, horizon %v and group size %d must be positive", o.Window, o.Horizon, o.GroupBytes)
	}
	if o.FarAfter < 0 || o.FarFree < 0 || o.MinFree < 0 {
		return o, fmt.Errorf("timer: far after %v, far free %d and min free %d must not be negative", o.FarAfter, o.FarFree, o.MinFree)
	}
	o.SegmentBytes &^= 4095
	return o, nil
}

func orDefault[T int | int64 | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}
