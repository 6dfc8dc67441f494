package timer

import "slices"

// far holds entries of unsealed segments in key order, by segment: what is sealed leaves all at once. An entry that ends stays in it
// unseen.
type far struct{ parts []*farPart }

type farPart struct {
	seg  *segment
	heap heap[farEntry]
}

// farEntry has the key beside the entry: comparing keys does not fetch the entries.
type farEntry struct {
	key
	*entry
}

func (x *far) push(e *entry) {
	x.part(e.home.seg, e.flow).heap.push(farEntry{e.key(), e})
}

// part returns the part of a segment. A new one is noted there.
func (x *far) part(seg *segment, f *flow) *farPart {
	for _, p := range x.parts {
		if p.seg == seg {
			return p
		}
	}
	p := &farPart{seg: seg}
	p.heap.less = func(a, b farEntry) bool { return a.key.less(b.key) }
	x.parts = append(x.parts, p)
	seg.far = append(seg.far, f)
	return p
}

// first returns the part with the first entry that has not ended, nil when there is none.
func (x *far) first() *farPart {
	var first *farPart
	for _, p := range x.parts {
		for p.heap.len() > 0 && p.heap.min().done {
			p.heap.pop()
		}
		if p.heap.len() > 0 && (first == nil || p.heap.min().key.less(first.heap.min().key)) {
			first = p
		}
	}
	return first
}

// drop forgets all entries of a segment.
func (x *far) drop(seg *segment) {
	x.parts = slices.DeleteFunc(x.parts, func(p *farPart) bool { return p.seg == seg })
}
