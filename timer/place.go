package timer

import "cmp"

// oneRead is how many bytes of records are read at once at most.
const oneRead = 1 << 20

// recordPlace is where a record lies.
type recordPlace struct {
	home   *dataFile
	off    int64
	length int32
}

func (p recordPlace) end() int64 { return p.off + int64(p.length) }

func (p recordPlace) compare(o recordPlace) int {
	return cmp.Or(cmp.Compare(p.home.id, o.home.id), cmp.Compare(p.off, o.off))
}

// readRecords reads the records at n places, which are sorted; those that lie side by side together, with up to gap bytes between two
// of them. It calls got with each that is sound, the others are left out. Records lie in what space gave for the read.
func readRecords(n int, place func(i int) recordPlace, gap int64, space func(size int) []byte, got func(i int, r record)) {
	for first := 0; first < n; {
		from, end := place(first), place(first).end()
		next := first + 1
		for ; next < n; next++ {
			p := place(next)
			if p.home != from.home || p.off-end > gap || p.end()-from.off > oneRead {
				break
			}
			end = p.end()
		}
		b := space(int(end - from.off))
		there, _ := from.home.f.ReadAt(b, from.off)
		for ; first < next; first++ {
			p := place(first)
			if p.end()-from.off > int64(there) {
				continue
			}
			if r, ok := parseRecord(b[p.off-from.off:p.end()-from.off], from.home.seed); ok {
				got(first, r)
			}
		}
	}
}
