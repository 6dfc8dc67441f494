package timer

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestResignedRecordsAreAsIfSigned(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	from, to := rng.Uint32(), rng.Uint32()
	x := newResigner(from, to)
	for _, size := range []int{0, 1, 7, 8, 300, 300, 4000, resignMaxBytes, 20_000, 0, 300} {
		e := &Entry{Flow: Flow{"b", "topic"}, Lane: 3, Due: rng.Int64(), Key: "key", Body: body(size, size)}
		rec := putRecord(e, LSN(rng.Uint64()), from)
		want := bytes.Clone(rec)
		length := int(le.Uint32(rec[4:]))
		signRecord(want[:length], to)
		x.sign(rec[:length])
		if !bytes.Equal(rec, want) {
			t.Errorf("%d bytes of body: %x, want %x", size, rec[:headBytes], want[:headBytes])
		}
	}
}

// Damage that nobody looked for stays visible.
func TestResigningKeepsDamageVisible(t *testing.T) {
	rec := putRecord(&Entry{Flow: Flow{"b", "t"}, Body: body(1, 100)}, 7, 11)
	length := int(le.Uint32(rec[4:]))
	for at := range length {
		damaged := bytes.Clone(rec)
		damaged[at] ^= 0x10
		newResigner(11, 12).sign(damaged[:length])
		if _, ok := parseRecord(damaged, 12); ok {
			t.Errorf("byte %d", at)
		}
	}
}
