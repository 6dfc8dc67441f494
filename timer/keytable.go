package timer

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
)

const (
	keyBytes = 12
	pageKeys = (pageBytes - pageHead) / keyBytes
	keyPage  = 1 << 31 // marks the page numbers of a key table
)

// keyLine is a line of a key table: an entry can be found by each of its keys.
type keyLine struct {
	hash uint64
	ord  uint32
}

func (l keyLine) put(b []byte) {
	le.PutUint64(b, l.hash)
	le.PutUint32(b[8:], l.ord)
}

func (l keyLine) compare(o keyLine) int {
	return cmp.Or(cmp.Compare(l.hash, o.hash), cmp.Compare(l.ord, o.ord))
}

func getKeyLine(b []byte) keyLine { return keyLine{le.Uint64(b), le.Uint32(b[8:])} }

// sortedKeyLines returns lines sorted by hash and number. Hashes are spread evenly: after one pass over their
// first bits next to nothing is left to compare.
func sortedKeyLines(lines []keyLine) []keyLine {
	first := bits.Len(uint(len(lines)))
	ends := make([]int, 1<<first+1) // of the lines with lower first bits, later of those with these
	for _, l := range lines {
		ends[l.hash>>(64-first)+1]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	sorted := make([]keyLine, len(lines))
	for _, l := range lines {
		at := &ends[l.hash>>(64-first)]
		sorted[*at] = l
		*at++
	}
	start := 0
	for _, end := range ends {
		slices.SortFunc(sorted[start:end], keyLine.compare)
		start = end
	}
	return sorted
}

// keyHashes returns the low halves of the hashes of an entry's keys, the unique one first.
func keyHashes(e *Entry) []uint32 {
	if e.Key == "" && e.Keys == "" {
		return nil
	}
	var on [256]byte
	space := on[:0]
	hashes := make([]uint32, 0, 2)
	if e.Key != "" {
		hashes = append(hashes, uint32(keyHash(e.Flow.Topic, e.Key, &space)))
	}
	for k := range strings.FieldsSeq(e.Keys) {
		hashes = append(hashes, uint32(keyHash(e.Flow.Topic, k, &space)))
	}
	return hashes
}

// keyHash is what a key of a topic is found by: xxHash64 of the topic, a zero and the key. space is reused.
func keyHash[T string | []byte](topic, key T, space *[]byte) uint64 {
	b := append((*space)[:0], topic...)
	b = append(b, 0)
	b = append(b, key...)
	*space = b
	return xxhash.Sum64(b)
}

// appendKeyLines appends a line for the unique key and one for each business key of a put record.
func appendKeyLines(lines []keyLine, rec []byte, ord uint32, space *[]byte) []keyLine {
	r := putFields(rec)
	if len(r.key) > 0 {
		lines = append(lines, keyLine{keyHash(r.topic, r.key, space), ord})
	}
	for k := range bytes.FieldsSeq(r.keys) {
		lines = append(lines, keyLine{keyHash(r.topic, k, space), ord})
	}
	return lines
}

// putFields splits an intact put record without checking it.
func putFields(rec []byte) record {
	var r record
	r.split(rec)
	return r
}

// hasKey says whether a put record is of that topic and has that key, be it the unique one or a business key.
func (r *record) hasKey(topic, key []byte) bool {
	if !bytes.Equal(r.topic, topic) {
		return false
	}
	if bytes.Equal(r.key, key) {
		return true
	}
	for k := range bytes.FieldsSeq(r.keys) {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}

// keyPages returns the number of pages of the key table.
func (r *runFooter) keyPages() int { return int(r.keysBytes / pageBytes) }

// readKeyPage reads page number page of the key table into b and returns how many lines it has.
func (r *run) readKeyPage(page int, b []byte) (int, error) {
	off := r.keysOff + int64(page)*pageBytes
	if n, err := r.f.ReadAt(b[:pageBytes], off); n < pageBytes {
		return 0, fmt.Errorf("read key page at %d of %s: %w", off, r.path, err)
	}
	n, ok := r.keyPageOK(page, b)
	if !ok {
		return 0, fmt.Errorf("%s: %w", r.path, damagedAt("a key page", off))
	}
	return n, nil
}

// keyPageOK checks a page of the key table and returns how many lines it has.
func (r *run) keyPageOK(page int, b []byte) (int, bool) {
	n := int(le.Uint32(b[8:]))
	return n, le.Uint32(b) == checksum(r.seed, b[4:pageBytes]) && le.Uint32(b[4:]) == uint32(page|keyPage) && n >= 1 && n <= pageKeys
}

func keyAt(b []byte, i int) keyLine { return getKeyLine(b[pageHead+i*keyBytes:]) }

// eachOrd calls visit with the numbers of the entries with that key hash, ascending, until it returns false or an error. It needs one or two
// reads: hashes are spread evenly, so the place of one is nearly known. b has room for a page.
func (r *run) eachOrd(hash uint64, b []byte, visit func(ord uint32) (more bool, err error)) error {
	at, n, err := r.firstKeyPage(hash, b)
	for ; err == nil && at < r.keyPages(); at, n = at+1, 0 {
		if n == 0 {
			if n, err = r.readKeyPage(at, b); err != nil {
				return err
			}
		}
		i := sort.Search(n, func(i int) bool { return keyAt(b, i).hash >= hash })
		for ; i < n; i++ {
			l := keyAt(b, i)
			if l.hash != hash {
				return nil
			}
			if more, err := visit(l.ord); err != nil || !more {
				return err
			}
		}
	}
	return err
}

// firstKeyPage returns the first page that ends at or past hash, and how many lines it has if it is in b, else 0.
func (r *run) firstKeyPage(hash uint64, b []byte) (page, lines int, err error) {
	lo, hi := 0, r.keyPages() // the page is in [lo, hi]
	loHash, hiHash := uint64(0), uint64(math.MaxUint64)
	for try := 0; lo < hi; try++ {
		mid := (lo + hi) / 2
		if try < interpolations && loHash <= hash && hash < hiHash {
			mid = lo + int(float64(hi-lo)*(float64(hash-loHash)/float64(hiHash-loHash)))
			mid = min(mid, hi-1)
		}
		n, err := r.readKeyPage(mid, b)
		if err != nil {
			return 0, 0, err
		}
		first, last := keyAt(b, 0).hash, keyAt(b, n-1).hash
		switch {
		case last < hash:
			lo, loHash = mid+1, last
		case first < hash || mid == lo:
			return mid, n, nil
		default:
			hi, hiHash = mid, first
		}
	}
	return lo, 0, nil
}
