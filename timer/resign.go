package timer

// resigner gives intact records of one file the checks of another without reading them. CRCs are linear: what another
// seed changes in the check of a record depends on its length alone. So the checksum of a record, once made, goes
// with it from file to file, and damage on the way shows.
type resigner struct {
	from, to uint32
	head     uint16               // what changes in the check of the fixed part
	changes  map[int]uint32       // in the check of the whole, by length
	blank    [resignMaxBytes]byte // zeros, but for the change in the fixed part
}

// resignMaxBytes bounds what the changes of all lengths cost; longer records are signed anew.
const resignMaxBytes = 4096

func newResigner(from, to uint32) *resigner {
	x := &resigner{from: from, to: to, changes: map[int]uint32{}}
	x.head = uint16(checksum(from, x.blank[4:38]) ^ checksum(to, x.blank[4:38]))
	le.PutUint16(x.blank[38:], x.head)
	return x
}

// sign does what signRecord would do with the record rec and the seed of the other file.
func (x *resigner) sign(rec []byte) {
	if len(rec) > len(x.blank) {
		signRecord(rec, x.to)
		return
	}
	change, known := x.changes[len(rec)]
	if !known {
		change = checksum(x.to, x.blank[4:len(rec)])
		le.PutUint16(x.blank[38:], 0)
		change ^= checksum(x.from, x.blank[4:len(rec)])
		le.PutUint16(x.blank[38:], x.head)
		x.changes[len(rec)] = change
	}
	le.PutUint16(rec[38:], le.Uint16(rec[38:])^x.head)
	le.PutUint32(rec, le.Uint32(rec)^change)
}
