package timer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/iotest"
)

// portEntries are some entries with fields of all sorts.
func portEntries() []Entry {
	return []Entry{
		{Flow: Flow{"b", "t"}, Due: -5, Key: "first", Body: []byte("body")},
		{Flow: Flow{"broker-1", "%RETRY%group"}, Lane: 65535, Due: rigNow, Keys: "k1 k2", Body: body(1, 200)},
		{},
		{Flow: Flow{"b", "t"}, Lane: 7, Due: 1 << 62, Key: "last", Keys: "x"},
	}
}

// portStream is the stream of some entries, and where each of its frames begins.
func portStream(identity uint64, entries []Entry) (b []byte, frames []int) {
	b = encodePortHead(identity, 99)
	head := checksum(0, b)
	for i := range entries {
		frames = append(frames, len(b))
		b = appendFrame(b, &entries[i], frameSeed(head, int64(i)))
	}
	frames = append(frames, len(b))
	return appendEndFrame(b, int64(len(entries)), frameSeed(head, int64(len(entries)))), frames
}

// readPort reads a stream to its end or to what is wrong with it.
func readPort(r io.Reader) ([]Entry, error) {
	p, err := newPortReader(r)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for {
		e, err := p.next()
		if err != nil {
			return all, err
		}
		e.Body = slices.Clone(e.Body)
		all = append(all, e)
	}
}

func sameEntries(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(x, y Entry) bool {
		same := bytes.Equal(x.Body, y.Body)
		x.Body, y.Body = nil, nil
		return same && fmt.Sprint(x) == fmt.Sprint(y)
	})
}

func TestPortableStreamKeepsEveryField(t *testing.T) {
	want := portEntries()
	b, _ := portStream(1, want)
	got, err := readPort(bytes.NewReader(b))
	if !errors.Is(err, io.EOF) || errors.Is(err, ErrDamagedExport) || !sameEntries(got, want) {
		t.Fatalf("%v: %+v", err, got)
	}
	empty, _ := portStream(1, nil)
	if got, err := readPort(bytes.NewReader(empty)); len(got) != 0 || err != io.EOF {
		t.Fatalf("an empty stream: %v, %v", got, err)
	}
}

func TestPortableStreamOnTheWire(t *testing.T) {
	b, _ := portStream(0x0102030405060708, []Entry{{Flow: Flow{"br", "top"}, Lane: 0x1122, Due: 0x3344, Key: "k", Keys: "ab c", Body: []byte("!")}})
	want := []byte("DGEXPOR\n" + "????" + "\x01\x00\x00\x00" + "\x08\x07\x06\x05\x04\x03\x02\x01" + "\x63\x00\x00\x00\x00\x00\x00\x00" +
		"????" + "\x2b\x00\x00\x00" + "\x01\x00" + "\x22\x11" + "\x02\x00" + "\x03\x00" + "\x44\x33\x00\x00\x00\x00\x00\x00" +
		"\x01\x00" + "\x04\x00" + "????" + "brtopkab c!" +
		"????" + "\x20\x00\x00\x00" + "\x02\x00" + "\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "????")
	if len(b) != len(want) {
		t.Fatalf("%d bytes, want %d", len(b), len(want))
	}
	for i := range b {
		if want[i] != '?' && b[i] != want[i] {
			t.Errorf("byte %d is %x, want %x", i, b[i], want[i])
		}
	}
}

// Wherever a stream is cut, what came before is good and the cut is noticed.
func TestPortableStreamThatIsCut(t *testing.T) {
	want := portEntries()
	b, frames := portStream(1, want)
	for n := range b {
		got, err := readPort(bytes.NewReader(b[:n]))
		whole := 0
		for whole < len(want) && frames[whole+1] <= n {
			whole++
		}
		if !errors.Is(err, ErrDamagedExport) || !sameEntries(got, want[:whole]) {
			t.Fatalf("cut at %d: %d entries, %v", n, len(got), err)
		}
	}
}

// A flipped bit anywhere is noticed, and what came before its frame is good.
func TestPortableStreamWithAFlippedBit(t *testing.T) {
	want := portEntries()
	b, frames := portStream(1, want)
	for bit := range 8 * len(b) {
		c := slices.Clone(b)
		c[bit/8] ^= 1 << (bit % 8)
		r := bytes.NewReader(c)
		got, err := readPort(iotest.OneByteReader(r))
		before := 0
		for before < len(want) && frames[before+1] <= bit/8 {
			before++
		}
		if at := frames[before]; bit/8 >= at+4 && bit/8 < at+frameHead && len(c)-r.Len() > at+frameHead {
			t.Fatalf("bit %d of byte %d: the length of the frame at %d was believed", bit%8, bit/8, at)
		}
		if !errors.Is(err, ErrDamagedExport) || !sameEntries(got, want[:before]) {
			t.Fatalf("bit %d of byte %d: %d entries, %v", bit%8, bit/8, len(got), err)
		}
	}
}

func TestPortableStreamWithFramesOutOfPlace(t *testing.T) {
	entries := portEntries()
	b, at := portStream(1, entries)
	other, otherAt := portStream(2, entries)
	frame := func(i int) []byte { return b[at[i]:at[i+1]] }
	end := b[at[len(entries)]:]
	join := func(parts ...[]byte) []byte { return bytes.Join(append([][]byte{b[:portHead]}, parts...), nil) }
	newer := slices.Clone(b)
	newer[12]++
	le.PutUint32(newer[8:], checksum(0, newer[12:portHead]))
	odd := func(i, off int, v byte) []byte { // right by its checksums
		c := slices.Clone(b)
		c[at[i]+off] = v
		resign(c)
		return c
	}
	for name, tc := range map[string]struct {
		stream []byte
		good   int
		err    error
	}{
		"sound":             {join(frame(0), frame(1), frame(2), frame(3), end), 4, io.EOF},
		"swapped":           {join(frame(1), frame(0), frame(2), frame(3), end), 0, ErrDamagedExport},
		"twice":             {join(frame(0), frame(0), frame(1), frame(2), frame(3), end), 1, ErrDamagedExport},
		"missing":           {join(frame(0), frame(2), frame(3), end), 1, ErrDamagedExport},
		"last missing":      {join(frame(0), frame(1), frame(2), end), 3, ErrDamagedExport},
		"of another stream": {join(frame(0), other[otherAt[1]:otherAt[2]], frame(2), frame(3), end), 1, ErrDamagedExport},
		"no end":            {join(frame(0), frame(1), frame(2), frame(3)), 4, ErrDamagedExport},
		"more behind":       {append(slices.Clone(b), 0), 4, ErrDamagedExport},
		"no head":           {b[portHead:], 0, ErrDamagedExport},
		"a text":            {[]byte("hello, world"), 0, ErrDamagedExport},
		"nothing":           {nil, 0, ErrDamagedExport},
		"a newer version":   {newer, 0, ErrExportVersion},
		"a version 0":       {odd(0, 12-portHead, 0), 0, ErrDamagedExport},
		"not zero":          {odd(1, 9, 1), 1, ErrDamagedExport},
		"of no known kind":  {odd(1, 8, 3), 1, ErrExportVersion},
		"names too long":    {odd(0, 13, 1), 0, ErrDamagedExport},
		"an end with more":  {odd(1, 8, frameEnd), 1, ErrDamagedExport},
		"an end with lane":  {odd(4, 10, 1), 4, ErrDamagedExport},
		"wrong count":       {appendEndFrame(join(frame(0)), 2, frameSeed(checksum(0, b[:portHead]), 1)), 1, ErrDamagedExport},
	} {
		got, err := readPort(bytes.NewReader(tc.stream))
		if !errors.Is(err, tc.err) || !sameEntries(got, entries[:tc.good]) {
			t.Errorf("%s: %d entries, %v; want %d, %v", name, len(got), err, tc.good, tc.err)
		}
	}
}

func TestPortableStreamFromAReaderThatFails(t *testing.T) {
	b, frames := portStream(1, portEntries())
	bad := errors.New("no line")
	for _, n := range []int{0, 5, portHead, portHead + 3, frames[1], frames[2] - 1, len(b)} {
		_, err := readPort(io.MultiReader(bytes.NewReader(b[:n]), failingReader{bad}))
		if !errors.Is(err, bad) || errors.Is(err, ErrDamagedExport) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// A stream that claims a huge frame takes RAM only as its bytes come.
func TestPortableStreamIsNotBelievedItsLengths(t *testing.T) {
	b := encodePortHead(1, 1)
	h := make([]byte, frameHead)
	h[8] = frameEntry
	le.PutUint32(h[4:], 1<<32-1)
	le.PutUint32(h[28:], checksum(frameSeed(checksum(0, b), 0), h[4:28]))
	p, err := newPortReader(bytes.NewReader(append(b, h...)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.next(); !errors.Is(err, ErrDamagedExport) {
		t.Fatal(err)
	}
	if cap(p.buf) > 4*frameChunk {
		t.Fatalf("a buffer of %d bytes for %d that came", cap(p.buf), p.at)
	}
}

// resign makes all checksums of what may be a stream right, so that what is behind them is reached.
func resign(b []byte) {
	if len(b) < portHead {
		return
	}
	copy(b, portMagic)
	le.PutUint32(b[8:], checksum(0, b[12:portHead]))
	head := checksum(0, b[:portHead])
	at := portHead
	for n := int64(0); at+frameHead <= len(b); n++ {
		length := int(le.Uint32(b[at+4:]))
		if length < frameHead || length > len(b)-at {
			return
		}
		signFrame(b[at:at+length], frameSeed(head, n))
		at += length
	}
}

// Whatever comes in: no panic, and what is read to a good end is exactly what would be written.
func FuzzPortableStream(f *testing.F) {
	b, frames := portStream(1, portEntries())
	f.Add(b, false)
	f.Add(b[:frames[2]], false)
	f.Add(b, true)
	f.Add(append(slices.Clone(b[:frames[1]]), b[frames[len(frames)-1]:]...), true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, b []byte, sign bool) {
		if sign {
			b = slices.Clone(b)
			resign(b)
		}
		got, err := readPort(bytes.NewReader(b))
		if err == nil {
			t.Fatal("it has no end")
		}
		if err != io.EOF {
			if !errors.Is(err, ErrDamagedExport) && !errors.Is(err, ErrExportVersion) {
				t.Fatalf("%v", err)
			}
			return
		}
		again := slices.Clone(b[:portHead])
		head := checksum(0, again)
		for i := range got {
			again = appendFrame(again, &got[i], frameSeed(head, int64(i)))
		}
		again = appendEndFrame(again, int64(len(got)), frameSeed(head, int64(len(got))))
		if !bytes.Equal(again, b) {
			t.Fatalf("%d entries are written as other bytes than they were read from", len(got))
		}
	})
}
