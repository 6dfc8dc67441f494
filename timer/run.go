package timer

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/delaygate/delaygate/timer/vfs"
)

const (
	runMagic      = "DGRUN01\n"
	footMagic     = "DGRUNEND"
	footBytes     = 144
	pageBytes     = 4096
	pageHead      = 32
	indexBytes    = 32
	pageEntries   = (pageBytes - pageHead) / indexBytes
	tableHead     = 8
	flowHead      = 12
	hourBytes     = 12
	maxFlowBytes  = 1 << 30
	maxRunEntries = 1<<31 - 1
)

// indexEntry is one line of a run's index.
type indexEntry struct {
	due    int64
	lsn    LSN
	flow   uint32 // into the run's flow table
	length uint32 // of the record
	off    int64  // 48 bits
	lane   uint16
}

func (x indexEntry) key() key { return key{x.due, x.lsn} }

// names says whether rec is the sound record of which the line tells.
func (x indexEntry) names(rec []byte, seed uint32) bool {
	got, ok := parseRecord(rec, seed)
	return ok && got.lsn == x.lsn && got.due == x.due && got.length == int(x.length)
}

func (x indexEntry) put(b []byte) {
	le.PutUint64(b, uint64(x.due))
	le.PutUint64(b[8:], uint64(x.lsn))
	le.PutUint32(b[16:], x.flow)
	le.PutUint32(b[20:], x.length)
	le.PutUint64(b[24:], uint64(x.off)&(1<<48-1)|uint64(x.lane)<<48)
}

func getIndexEntry(b []byte) indexEntry {
	place := le.Uint64(b[24:])
	return indexEntry{
		due: int64(le.Uint64(b)), lsn: LSN(le.Uint64(b[8:])), flow: le.Uint32(b[16:]), length: le.Uint32(b[20:]),
		off: int64(place & (1<<48 - 1)), lane: uint16(place >> 48),
	}
}

// run is a sealed run: what its footer says, and its bitmaps. done to unfit are guarded by Store.mu, mend guards itself, the
// rest never changes.
type run struct {
	dataFile
	runFooter
	sources []uint64 // ids of the runs it was merged from
	flows   []Flow   // the names in the flow table
	names   []*flow  // by number in the flow table

	done      []uint64
	cancelled []uint64            // those of done that were cancelled; nil: none
	dirty     map[uint32]struct{} // words of both that MANIFEST does not have
	cancels   int                 // entries that were cancelled
	pending   int
	punched   int     // how many entries were done when it was last punched
	merging   bool    // the merger reads it: it is neither dropped nor punched
	ill       bool    // its index or key table is damaged: it is to be written anew
	unfit     bool    // that failed, it is not merged again
	badKeys   bool    // its key table is damaged, which was reported
	into      *source // it was merged, and is not in Store.runs any more: what is done in it is done in the new run

	holes    holes     // the janitor's
	restDone int       // the janitor's: how many entries were done at restFrom
	restFrom time.Time // the janitor's: since when little was done

	cutOff bool // its index is not where its records end: the file was truncated
	mend   mending
}

// runFooter is the end of a run file.
type runFooter struct {
	entries            int
	indexOff           int64
	pages              int
	flowOff            int64
	flowLen            int64
	flowCRC            uint32
	minLSN, maxLSN     LSN    // of the segments it came from
	firstSeg, lastSeg  uint64 // their ids
	minDue, maxDue     int64
	keysOff, keysBytes int64 // key table; 0: none
}

// runFlow is an entry of the flow table.
type runFlow struct {
	name  Flow
	hours []hourCount // ascending
}

type hourCount struct {
	hour  int64
	count uint32
}

func (r *runFooter) encode(id, epoch uint64) []byte {
	b := make([]byte, footBytes)
	copy(b, footMagic)
	le.PutUint32(b[12:], formatVersion)
	for i, v := range []uint64{
		id, epoch, uint64(r.entries), uint64(r.indexOff), uint64(r.pages), uint64(r.flowOff), uint64(r.flowLen), uint64(r.flowCRC),
		uint64(r.keysOff), uint64(r.keysBytes), uint64(r.minLSN), uint64(r.maxLSN), r.firstSeg, r.lastSeg, uint64(r.minDue), uint64(r.maxDue),
	} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b[8:], checksum(0, b[12:]))
	return b
}

func (r *runFooter) decode(b []byte) (id, epoch uint64, ok bool) {
	if string(b[:8]) != footMagic || le.Uint32(b[8:]) != checksum(0, b[12:footBytes]) {
		return 0, 0, false
	}
	v := func(i int) uint64 { return le.Uint64(b[16+8*i:]) }
	r.entries, r.indexOff, r.pages = int(v(2)), int64(v(3)), int(v(4))
	r.flowOff, r.flowLen, r.flowCRC = int64(v(5)), int64(v(6)), uint32(v(7))
	r.keysOff, r.keysBytes = int64(v(8)), int64(v(9))
	r.minLSN, r.maxLSN, r.firstSeg, r.lastSeg = LSN(v(10)), LSN(v(11)), v(12), v(13)
	r.minDue, r.maxDue = int64(v(14)), int64(v(15))
	return v(0), v(1), true
}

// encodeFlows builds the flow table.
func encodeFlows(sources []uint64, flows []runFlow) []byte {
	b := le.AppendUint32(nil, uint32(len(flows)))
	b = le.AppendUint32(b, uint32(len(sources)))
	for _, id := range sources {
		b = le.AppendUint64(b, id)
	}
	for _, f := range flows {
		b = le.AppendUint16(b, uint16(len(f.name.Broker)))
		b = le.AppendUint16(b, uint16(len(f.name.Topic)))
		b = le.AppendUint32(b, uint32(len(f.hours)))
		b = le.AppendUint32(b, 0)
		b = append(b, f.name.Broker...)
		b = append(b, f.name.Topic...)
		for _, h := range f.hours {
			b = le.AppendUint64(b, uint64(h.hour))
			b = le.AppendUint32(b, h.count)
		}
	}
	return b
}

func decodeFlows(b []byte) (sources []uint64, flows []runFlow, err error) {
	if len(b) < tableHead || uint64(len(b)-tableHead)/8 < uint64(le.Uint32(b[4:])) {
		return nil, nil, ErrCorrupt
	}
	n, merged := le.Uint32(b), le.Uint32(b[4:])
	b = b[tableHead:]
	for range merged {
		sources, b = append(sources, le.Uint64(b)), b[8:]
	}
	for range n {
		if len(b) < flowHead {
			return nil, nil, ErrCorrupt
		}
		broker, topic, hours := int(le.Uint16(b)), int(le.Uint16(b[2:])), int(le.Uint32(b[4:]))
		b = b[flowHead:]
		if len(b) < broker+topic || (len(b)-broker-topic)/hourBytes < hours {
			return nil, nil, ErrCorrupt
		}
		f := runFlow{name: Flow{string(b[:broker]), string(b[broker : broker+topic])}}
		b = b[broker+topic:]
		for range hours {
			f.hours = append(f.hours, hourCount{int64(le.Uint64(b)), le.Uint32(b[8:])})
			b = b[hourBytes:]
		}
		flows = append(flows, f)
	}
	return sources, flows, nil
}

// openRun opens a run file and reads its footer and flow table. Its error wraps ErrCorrupt when the file is damaged.
func openRun(fs vfs.FS, path string, id uint64) (*run, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := readRun(f, path, id)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func readRun(f vfs.File, path string, id uint64) (*run, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size < segHeadBytes+footBytes {
		return nil, damagedAt("its end, which is missing,", size)
	}
	head, err := readAt(f, 0, segHeadBytes)
	if err != nil {
		return nil, err
	}
	headID, epoch, err := decodeHead(head, runMagic)
	if err != nil {
		return nil, err
	}
	foot, err := readAt(f, size-footBytes, footBytes)
	if err != nil {
		return nil, err
	}
	r := &run{dataFile: newDataFile(headID, epoch, path, f, size)}
	r.dataFile.run = r
	footID, footEpoch, ok := r.decode(foot)
	if headID != id {
		return nil, fmt.Errorf("%w: it is number %x", ErrCorrupt, headID)
	}
	if !ok || footID != id || footEpoch != epoch || !r.plausible(size) {
		return nil, damagedAt("its footer", size-footBytes)
	}
	sources, table, err := r.flowTable()
	if err != nil {
		return nil, err
	}
	r.sources = sources
	for _, f := range table {
		r.flows = append(r.flows, f.name)
	}
	if r.occupied, err = f.Occupied(); err != nil {
		return nil, err
	}
	r.prepare()
	return r, nil
}

// flowTable reads the flow table. It has a line for every hour of every flow: too much to be kept in RAM.
func (r *run) flowTable() (sources []uint64, table []runFlow, err error) {
	b, err := readAt(r.f, r.flowOff, int(r.flowLen))
	if err != nil {
		return nil, nil, err
	}
	if checksum(r.seed, b) != r.flowCRC {
		return nil, nil, damagedAt("its flow table", r.flowOff)
	}
	if sources, table, err = decodeFlows(b); err != nil {
		return nil, nil, damagedAt("its flow table", r.flowOff)
	}
	return sources, table, nil
}

func (r *run) prepare() {
	r.done = make([]uint64, (r.entries+63)/64)
	r.dirty = map[uint32]struct{}{}
	r.pending = r.entries
}

func (r *runFooter) plausible(size int64) bool {
	return r.entries > 0 && r.entries <= maxRunEntries && r.pages == (r.entries+pageEntries-1)/pageEntries && r.flowLen >= tableHead && r.flowLen <= maxFlowBytes &&
		r.indexOff >= segHeadBytes && r.keysOff == r.indexOff+int64(r.pages)*pageBytes && r.keysBytes >= 0 && r.keysBytes%pageBytes == 0 && r.flowOff == r.keysOff+r.keysBytes && r.flowOff+r.flowLen+footBytes <= size
}

func readAt(f vfs.File, off int64, n int) ([]byte, error) {
	b := make([]byte, n)
	if got, err := f.ReadAt(b, off); got < n {
		return nil, fmt.Errorf("read %d bytes at %d: %w", n, off, err)
	}
	return b, nil
}

// signPage fills in the head of index page number at, which holds n entries.
func signPage(b []byte, at, n int, seed uint32) {
	le.PutUint32(b[4:], uint32(at))
	le.PutUint32(b[8:], uint32(n))
	le.PutUint32(b, checksum(seed, b[4:pageBytes]))
}

// pageLen returns how many entries the page has.
func (r *run) pageLen(page int) int { return min(pageEntries, r.entries-page*pageEntries) }

func (r *run) pageOffset(page int) int64 { return r.indexOff + int64(page)*pageBytes }

// readRawPage reads index page number page into b as it is on the disk.
func (r *run) readRawPage(page int, b []byte) error {
	off := r.pageOffset(page)
	if n, err := r.f.ReadAt(b[:pageBytes], off); n < pageBytes {
		return fmt.Errorf("read index page at %d of %s: %w", off, r.path, err)
	}
	if !r.pageOK(page, b) {
		return fmt.Errorf("%s: %w", r.path, damagedAt("an index page", off))
	}
	return nil
}

func (r *run) pageOK(page int, b []byte) bool {
	return le.Uint32(b) == checksum(r.seed, b[4:pageBytes]) && int(le.Uint32(b[4:])) == page && int(le.Uint32(b[8:])) == r.pageLen(page)
}

func pageEntry(b []byte, i int) indexEntry { return getIndexEntry(b[pageHead+i*indexBytes:]) }

// seek returns the page that an entry with key k would be on.
func (r *run) seek(k key, b []byte) (int, error) {
	page, _, err := r.locate(k, b)
	return page, err
}

// interpolations is how many times locate guesses where a key is from the due times around it before it bisects.
const interpolations = 4

// locate is seek, and says whether b holds that page.
func (r *run) locate(k key, b []byte) (page int, read bool, err error) {
	lo, hi := 0, r.pages // the page is in [lo, hi)
	loDue, hiDue := r.minDue, r.maxDue
	at := -1 // the page in b
	for try := 0; hi-lo > 1; try++ {
		mid := (lo + hi) / 2
		if try < interpolations && loDue <= k.due && k.due < hiDue {
			mid = lo + int(float64(hi-lo)*(float64(k.due-loDue)/float64(hiDue-loDue)))
			mid = min(max(mid, lo+1), hi-1)
		}
		if err := r.readPage(mid, b); err != nil {
			return 0, false, err
		}
		at = mid
		first, last := pageEntry(b, 0), pageEntry(b, r.pageLen(mid)-1)
		switch {
		case k.less(first.key()):
			hi, hiDue = mid, first.due
		case !last.key().less(k):
			return mid, true, nil
		default:
			lo, loDue = mid, last.due
		}
	}
	return lo, at == lo, nil
}

// errLost: the entry may be one of those that damage has taken.
var errLost = fmt.Errorf("%w: with the index page that named its entry", ErrCorrupt)

// find returns the number and index line of the entry with key k. errLost: it is not there, but was perhaps.
func (r *run) find(k key) (ord int, x indexEntry, ok bool, err error) {
	b := make([]byte, pageBytes)
	page, read, err := r.locate(k, b)
	if err == nil && !read {
		err = r.readPage(page, b)
	}
	if err != nil {
		return 0, x, false, err
	}
	n := r.pageLen(page)
	at := sort.Search(n, func(i int) bool { return !pageEntry(b, i).key().less(k) })
	for i := at; i < n && pageEntry(b, i).key() == k; i++ {
		if x := pageEntry(b, i); !x.lost() {
			return page*pageEntries + i, x, true, nil
		}
	}
	for i := range n {
		if pageEntry(b, i).lost() {
			return 0, x, false, fmt.Errorf("%s: %w", r.path, errLost)
		}
	}
	return 0, x, false, nil
}

func (r *run) isDone(ord int) bool { return r.done[ord/64]&(1<<(ord%64)) != 0 }

// setDone marks an entry as done and says whether it was not before.
func (r *run) setDone(ord int) bool {
	if r.isDone(ord) {
		return false
	}
	r.done[ord/64] |= 1 << (ord % 64)
	r.dirty[uint32(ord/64)] = struct{}{}
	r.pending--
	return true
}

// clearDone takes setDone back and says whether there was anything to take back. MANIFEST goes on saying that the entry is done until it
// is rewritten.
func (r *run) clearDone(ord int) bool {
	if !r.isDone(ord) {
		return false
	}
	r.done[ord/64] &^= 1 << (ord % 64)
	if r.isCancelled(ord) {
		r.cancelled[ord/64] &^= 1 << (ord % 64)
		r.cancels--
	}
	r.pending++
	return true
}

func (r *run) isCancelled(ord int) bool {
	return r.cancelled != nil && r.cancelled[ord/64]&(1<<(ord%64)) != 0
}

// setCancelled marks an entry as done because it was cancelled and says whether it was not done before.
func (r *run) setCancelled(ord int) bool {
	if !r.setDone(ord) {
		return false
	}
	if r.cancelled == nil {
		r.cancelled = make([]uint64, len(r.done))
	}
	r.cancelled[ord/64] |= 1 << (ord % 64)
	r.cancels++
	return true
}

// end is setDone or setCancelled.
func (r *run) end(ord int, cancelled bool) bool {
	if cancelled {
		return r.setCancelled(ord)
	}
	return r.setDone(ord)
}

// load sets the bitmaps from MANIFEST.
func (r *run) load(done, cancelled map[uint32]uint64) {
	loadWords(r.done, done, r.entries)
	if len(cancelled) > 0 {
		r.cancelled = make([]uint64, len(r.done))
		loadWords(r.cancelled, cancelled, r.entries)
	}
	r.pending = r.entries - r.doneIn(0, r.entries)
	for _, w := range r.cancelled {
		r.cancels += bits.OnesCount64(w)
	}
}

func loadWords(to []uint64, words map[uint32]uint64, entries int) {
	for at, w := range words {
		if int(at) < len(to) {
			to[at] |= w
		}
	}
	if rest := entries % 64; rest > 0 {
		to[len(to)-1] &= 1<<rest - 1
	}
}

// doneIn counts the done entries in [from, to).
func (r *run) doneIn(from, to int) int {
	n := 0
	for from < to {
		w := r.done[from/64] >> (from % 64)
		if width := min(64-from%64, to-from); width < 64 {
			w &= 1<<width - 1
		}
		n += bits.OnesCount64(w)
		from += 64 - from%64
	}
	return n
}

// bits returns both bitmaps for a whole MANIFEST.
func (r *run) bits() []manifestOp {
	all := make([]uint32, len(r.done))
	for at := range all {
		all[at] = uint32(at)
	}
	return r.bitOps(all)
}

// takeDirty returns what MANIFEST does not have and takes it for granted from now on.
func (r *run) takeDirty() []manifestOp {
	at := slices.Sorted(maps.Keys(r.dirty))
	clear(r.dirty)
	return r.bitOps(at)
}

// bitOps returns the operations for the words with these numbers.
func (r *run) bitOps(at []uint32) []manifestOp {
	var ops []manifestOp
	add := func(op byte, bitmap []uint64) {
		var words []word
		for _, i := range at {
			if int(i) < len(bitmap) && bitmap[i] != 0 {
				words = append(words, word{i, bitmap[i]})
			}
		}
		if len(words) > 0 {
			ops = append(ops, manifestOp{op: op, id: r.id, bits: words})
		}
	}
	add(opDone, r.done)
	add(opCancelled, r.cancelled)
	return ops
}
