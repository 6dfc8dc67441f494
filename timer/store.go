package timer

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

// Store is the durable timer store. All methods may be called from any goroutine.
type Store struct {
	o      Options
	unlock vfs.Unlocker
	tool   *tool                   // nil: this is no offline tool
	aside  map[uint64][]manifestOp // bitmaps of damaged runs that Open had no room to copy
	log    intake
	man    *manifest // the janitor's

	identity uint64

	mu                          sync.Mutex // never held while the disk is read or written
	wheel                       *wheel
	segs                        []*segment // not sealed, oldest first; the last is the writer's
	runs                        []*run
	trash                       []*dataFile // named by no MANIFEST, waiting for their last reader
	free                        []string    // blank segments on disk; changed by the janitor only
	generation                  uint64      // counts installed runs
	installing                  bool        // a run is taking the place of others, or of its segment
	arriving                    *run        // the run whose segment is still there; nil: none
	unnamed                     bool        // MANIFEST does not have the last merged run yet
	cut                         *cutRequest
	logEnd                      *cutRequest // left by the writer at the end
	seals                       int64
	loadsFromLog, loadsFromRuns int64
	punchedBytes                int64
	merges, mergedBytes         int64
	sealedBytes                 int64 // of runs, those that Open found included
	manifestSize                int64
	admitted                    LSN   // of the last put that became durable
	latest                      int64 // the latest time at which firing looked for due entries
	cancels                     int64
	closed                      bool

	lost        int64 // guarded by mu
	newEvidence bool  // a file became evidence, and MANIFEST does not know it; guarded by mu
	damaged     atomic.Int64
	clockJumps  atomic.Int64
	lastJump    atomic.Int64            // ms
	settling    atomic.Int64            // settles that are not synced
	refusal     atomic.Pointer[refusal] // nil: Put takes everything
	reserved    atomic.Int64            // bytes that RESERVE has; changed by the janitor only
	filling     atomic.Bool             // the janitor is making a segment or RESERVE
	freeBytes   atomic.Int64            // at the last look

	spaceUnknown bool          // watchSpace's
	left         leftovers     // the janitor's: what is done once MANIFEST, for which Open had no room, is there
	nextReserve  time.Duration // the janitor's: when it may try again to make RESERVE
	pauseNow     time.Duration // the janitor's
	sealFails    bool          // the janitor's: the last seal failed, intake does not wait for the next
	noPunch      bool          // the janitor's: the file system cannot
	looks        bool          // the janitor's: it is time to see whether something pays that is not urgent

	merging    *mergeJob // these are the janitor's: what the merger works on, nil: nothing
	mergePause time.Duration
	mergeAfter time.Time
	mergeJobs  chan *mergeJob // capacity 1
	merged     chan *mergeJob // capacity 1

	spares      chan *segment // the next segment, made ahead; capacity 1
	troubles    chan error    // the janitor's last failure; capacity 1
	janitorWake chan struct{}
	loaderWake  chan struct{}
	spaceWake   chan struct{}
	firingWake  chan struct{}
	closing     chan struct{} // Close has begun: the writer finishes
	stop        chan struct{} // the writer has finished: everybody stops
	written     sync.WaitGroup
	wg          sync.WaitGroup
}

// Open recovers the store in Options.Dir and locks the folder. Put may be called at once; nothing fires before Start.
//
// Errors: ErrLocked, ErrVersion, or what the file system said. Damaged files and records are no error: they are
// logged, counted in Stats.Corrupt, and kept with the suffix .broken.
func Open(o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := newStore(o)
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("timer: make data folder: %w", err)
	}
	if s.unlock, err = o.FS.Lock(s.path(lockName)); err != nil {
		return nil, fmt.Errorf("timer: data folder %s: %w", o.Dir, err)
	}
	first, err := s.recover()
	if err != nil {
		s.closeFiles()
		return nil, fmt.Errorf("timer: open %s: %w", o.Dir, err)
	}
	s.wheel.horizon = o.Now() + o.Horizon.Milliseconds()
	w := newWriter(s)
	if first != nil {
		w.use(first)
	}
	s.lookAtSpace()
	s.wg.Add(6)
	s.written.Add(1)
	go w.run()
	go w.syncer()
	go s.janitor()
	go s.loader()
	go s.merger()
	go s.watchSpace()
	s.wakeLoader()
	return s, nil
}

func newStore(o Options) *Store {
	s := &Store{
		aside:       map[uint64][]manifestOp{},
		o:           o,
		wheel:       newWheel(o.Window),
		spares:      make(chan *segment, 1),
		troubles:    make(chan error, 1),
		janitorWake: make(chan struct{}, 1),
		loaderWake:  make(chan struct{}, 1),
		spaceWake:   make(chan struct{}, 1),
		firingWake:  make(chan struct{}, 1),
		mergeJobs:   make(chan *mergeJob, 1),
		merged:      make(chan *mergeJob, 1),
		closing:     make(chan struct{}),
		stop:        make(chan struct{}),
	}
	s.log.open = newGroup()
	s.log.wake = make(chan struct{}, 1)
	return s
}

// Close stops firing and intake, answers every open Put, syncs, and unlocks the folder. Fired entries that are not settled fire
// again after the next Open.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()

	s.log.mu.Lock()
	s.log.closing = true
	s.log.mu.Unlock()
	close(s.closing)
	s.log.poke()
	s.written.Wait()
	close(s.stop)
	s.wg.Wait()
	s.noteEnd()

	s.log.mu.Lock()
	failed := s.log.err
	s.log.mu.Unlock()
	return errors.Join(failed, s.closeFiles())
}

// noteEnd tells MANIFEST where the open segment ends, all of it being synced: damage before that is no torn tail. Everybody else has
// stopped. If that fails, which is logged, the next Open judges by the groups that it finds.
func (s *Store) noteEnd() {
	if s.logEnd != nil {
		_ = s.commit([]manifestOp{cutSeg(s.logEnd)})
	}
}

func (s *Store) closeFiles() error {
	var errs []error
	for _, g := range s.segs {
		errs = append(errs, g.f.Close())
	}
	for _, r := range s.runs {
		errs = append(errs, r.f.Close())
	}
	for _, d := range s.trash {
		errs = append(errs, d.f.Close())
		if d.rotten { // nothing tells the next Open that it is evidence
			errs = append(errs, s.o.FS.Rename(d.path, d.path+brokenSuffix))
		}
	}
	select {
	case g := <-s.spares:
		errs = append(errs, g.f.Close())
	default:
	}
	select {
	case j := <-s.merged:
		if j.out != nil {
			errs = append(errs, j.out.f.Close())
		}
	default:
	}
	if s.man != nil {
		s.man.close()
	}
	return errors.Join(append(errs, s.unlock.Unlock())...)
}

// Identity returns the random number that this data folder got when it was made: LSNs mean something together with it only. It
// changes when MANIFEST was lost.
func (s *Store) Identity() uint64 { return s.identity }

// corrupt counts and reports damage on the disk.
func (s *Store) corrupt(what, path string, args ...any) {
	s.damaged.Add(1)
	if s.tool != nil {
		s.tool.problem(what, path, args)
		return
	}
	s.o.Log.Error("timer: "+what, append([]any{"path", path}, args...)...)
}

// Stats is a snapshot of a Store.
type Stats struct {
	Pending         int64 // entries accepted and not settled; exact
	Overdue         int64 // pending entries whose due time has passed, fired or not; estimated within the present hour for a flow with more of them than its window
	OldestOverdueMs int64 // age of the oldest of them in ms, 0 when there is none
	Segments        int   // intake segments that are not sealed
	Runs            int   // sealed runs
	DiskBytes       int64 // what all files of the store occupy on the disk
	LastLSN         LSN   // the highest number given out
	Cancelled       int64 // entries cancelled since Open
	Settling        int64 // settled entries of which that is not durable yet; they would fire again after a crash
	FreeBytes       int64 // free on the data disk at the last look, without RESERVE and with what blank segments would give back
	FarRefused      bool  // Put refuses entries due further ahead than Options.FarAfter
	PutsRefused     bool  // Put refuses every entry, for want of space or because the disk failed
	Reserve         bool  // RESERVE is there and whole
	ClockJumps      int64 // steps of the wall clock of a second or more since Start
	LastClockJumpMs int64 // the last of them, negative when the clock went back
	Corrupt         int64 // damaged records, pages and files met since Open
	Lost            int64 // entries that damage has taken since Open: they do not fire
	Seals           int64 // segments sealed since Open
	PunchedBytes    int64 // given back since Open by punching delivered messages out of runs
	Merges          int64 // merges of runs since Open
	MergedBytes     int64 // bytes that they wrote
	LoadsFromLog    int64 // bodies read from unsealed segments since Open
	LoadsFromRuns   int64 // bodies read from sealed runs since Open
}

// Stats returns a snapshot. It costs a look at every flow and file, none at the disk.
func (s *Store) Stats() Stats {
	now := s.o.Now()
	s.log.mu.Lock()
	last, refused := s.log.next-1, s.log.err != nil
	s.log.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Pending:   s.wheel.pending,
		Segments:  len(s.segs),
		Runs:      len(s.runs),
		DiskBytes: s.manifestSize + int64(len(s.free)+len(s.spares))*s.o.SegmentBytes,
		LastLSN:   last,
		Cancelled: s.cancels,
		Corrupt:   s.damaged.Load(),
		Lost:      s.lost,
		Seals:     s.seals,

		PunchedBytes: s.punchedBytes,
		Merges:       s.merges,
		MergedBytes:  s.mergedBytes,

		LoadsFromLog: s.loadsFromLog, LoadsFromRuns: s.loadsFromRuns,

		ClockJumps: s.clockJumps.Load(), LastClockJumpMs: s.lastJump.Load(),
		Settling:  s.settling.Load(),
		FreeBytes: s.freeBytes.Load(), Reserve: s.reserved.Load() == s.reserveBytes(),
	}
	r := s.refusal.Load()
	st.PutsRefused = refused || r != nil && r.all
	st.FarRefused = st.PutsRefused || r != nil
	st.DiskBytes += s.reserved.Load()
	for _, g := range s.segs {
		st.DiskBytes += g.size
	}
	for _, r := range s.runs {
		st.DiskBytes += r.occupied
	}
	for _, d := range s.trash {
		st.DiskBytes += d.occupied
	}
	oldest := int64(math.MaxInt64)
	for _, f := range s.wheel.flows {
		n, due := f.overdue(now)
		st.Overdue += n
		oldest = min(oldest, due)
	}
	if st.Overdue > 0 && oldest < now {
		st.OldestOverdueMs = now - oldest
	}
	return st
}

// overdue returns how many entries of a flow are overdue and the due time of the oldest.
func (f *flow) overdue(now int64) (n, oldest int64) {
	oldest = math.MaxInt64
	for _, e := range f.fired {
		oldest = min(oldest, e.due)
	}
	inRAM := int64(len(f.fired) + f.armed.before(key{due: now + 1}))
	if f.armed.len() > 0 {
		oldest = min(oldest, f.armed.min().due)
	}
	if f.resume.due > now {
		return inRAM, oldest
	}
	share := float64(now-hourOf(now)*hourMs) / hourMs
	for h, count := range f.hours.all() {
		switch {
		case h < hourOf(now):
			n += count
		case h == hourOf(now):
			n += int64(float64(count) * share)
		default:
			continue
		}
		oldest = min(oldest, max(h*hourMs, f.resume.due)) // what is not in RAM is not before the resume point
	}
	return max(n, inRAM), oldest
}
