package timer

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// sealedRun returns the run that n entries with these keys were sealed into.
func sealedRun(t *testing.T, n int, entry func(i int) *Entry) (*rig, *run) {
	t.Helper()
	r := newRig(t)
	r.o.SegmentBytes = 1 << 20
	r.kill(false)
	done := make(chan error, n)
	for i := range n {
		if _, err := r.s.Put(entry(i), func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for r.s.Stats().Seals == 0 {
		r.put(1, 2*3600_000, 60_000)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r, r.s.runs[0]
}

// ordsOf returns what the key table says.
func (r *run) ordsOf(topic, k string) (ords []uint32, err error) {
	err = r.eachOrd(keyHash(topic, k, new([]byte)), make([]byte, pageBytes), func(ord uint32) (bool, error) {
		ords = append(ords, ord)
		return true, nil
	})
	return ords, err
}

func (r *run) lookup(t *testing.T, topic, k string) []int {
	t.Helper()
	ords, err := r.ordsOf(topic, k)
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, ord := range ords {
		page := make([]byte, pageBytes)
		if err := r.readPage(int(ord)/pageEntries, page); err != nil {
			t.Fatal(err)
		}
		x := pageEntry(page, int(ord)%pageEntries)
		rec, err := r.readRecord(x.off, int(x.length))
		if err != nil {
			t.Fatal(err)
		}
		if rec.hasKey([]byte(topic), []byte(k)) {
			found = append(found, int(ord))
		}
	}
	return found
}

func TestKeyTableFindsEveryEntryByEachOfItsKeys(t *testing.T) {
	const n = 3000
	_, r := sealedRun(t, n, func(i int) *Entry {
		return &Entry{
			Flow: Flow{"b", fmt.Sprint("topic", i%2)}, Due: rigNow + int64(time.Hour/time.Millisecond) + int64(i),
			Key: fmt.Sprint("uniq", i), Keys: fmt.Sprintf("order%d  all same%d", i, i%3),
		}
	})
	if pages := r.keyPages(); pages < 4*n/pageKeys {
		t.Fatalf("%d key pages", pages)
	}
	for i := range n {
		topic := fmt.Sprint("topic", i%2)
		for _, k := range []string{fmt.Sprint("uniq", i), fmt.Sprint("order", i)} {
			if got := r.lookup(t, topic, k); !slices.Equal(got, []int{i}) {
				t.Fatalf("%s %s: found %v, want %d", topic, k, got, i)
			}
		}
	}
	for k, want := range map[string]int{"all": n / 2, "same0": n / 6, "none": 0, "": 0, "uniq": 0} {
		if got := r.lookup(t, "topic1", k); len(got) != want || !slices.IsSortedFunc(got, cmp.Compare[int]) {
			t.Errorf("%q: found %d, want %d", k, len(got), want)
		}
	}
	if got := r.lookup(t, "topic0", "uniq1"); len(got) != 0 {
		t.Errorf("a key of another topic found %v", got)
	}
}

func TestDamagedKeyPageIsNoticed(t *testing.T) {
	rig, r := sealedRun(t, 100, func(i int) *Entry {
		return &Entry{Flow: Flow{"b", "t"}, Due: rigNow + 3600_000, Key: fmt.Sprint(i)}
	})
	rig.flip(fileName(runPrefix, r.id), r.keysOff+pageHead+3)
	if _, err := r.ordsOf("t", "7"); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v", err)
	}
}

func TestKeyLinesAreSorted(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, n := range []int{0, 1, 2, 1000} {
		for name, hash := range map[string]func() uint64{
			"even":  rng.Uint64,
			"few":   func() uint64 { return rng.Uint64N(5) << 62 },
			"close": func() uint64 { return rng.Uint64N(100) },
		} {
			var lines []keyLine
			for i := range n {
				lines = append(lines, keyLine{hash(), uint32(i)})
			}
			rng.Shuffle(n, func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
			got := sortedKeyLines(lines)
			slices.SortFunc(lines, keyLine.compare)
			if !slices.Equal(got, lines) {
				t.Errorf("%d lines, hashes %s: not sorted", n, name)
			}
		}
	}
}
