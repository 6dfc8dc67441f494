package timer

// segKeys finds the entries of an unsealed segment by half the hash of a key: whether it is the right key is seen from the record. It
// only grows. Guarded by Store.mu.
type segKeys struct {
	heads []uint32 // by the low bits of the hash: the last line with them, counted from 1
	lines []segKey
}

type segKey struct {
	hash uint32
	at   uint32 // place in segment.entries
	next uint32 // the line before it with the same low bits, counted from 1
}

// bytesPerHead is how many bytes of a segment there are for each list of lines.
const bytesPerHead = 512

func (k *segKeys) add(hash, at uint32, segmentBytes int64) {
	if k.heads == nil {
		n := int64(1)
		for n*bytesPerHead < segmentBytes {
			n *= 2
		}
		k.heads = make([]uint32, n)
	}
	head := &k.heads[int(hash)&(len(k.heads)-1)]
	k.lines = append(k.lines, segKey{hash, at, *head})
	*head = uint32(len(k.lines))
}

// first returns the line that a search for hash begins with, 0 if there is none.
func (k *segKeys) first(hash uint32) (line uint32) {
	if k.heads == nil {
		return 0
	}
	return k.heads[int(hash)&(len(k.heads)-1)]
}

// next looks at n lines, appends the places of the entries with that hash, and returns the line with which to go on, 0 at the end.
func (k *segKeys) next(line, hash uint32, places []uint32, n int) ([]uint32, uint32) {
	for ; line != 0 && n > 0; n-- {
		l := k.lines[line-1]
		if l.hash == hash {
			places = append(places, l.at)
		}
		line = l.next
	}
	return places, line
}
