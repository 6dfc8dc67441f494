package timer

import (
	"math/rand/v2"
	"testing"
)

// Whatever is done to a heap, it hands out the least first, and everybody knows its place.
func TestHeapOrderAndPlaces(t *testing.T) {
	type item struct{ v, at int }
	h := heap[*item]{less: func(a, b *item) bool { return a.v < b.v }, moved: func(x *item, at int) { x.at = at }}
	rng := rand.New(rand.NewPCG(1, 2))
	in := map[*item]bool{}
	for step := range 5000 {
		switch n := rng.IntN(20); {
		case n < 9 || h.len() == 0:
			x := &item{v: rng.IntN(300)}
			h.push(x)
			in[x] = true
		case n < 14:
			x := h.a[rng.IntN(h.len())]
			h.remove(x.at)
			delete(in, x)
		default:
			x := h.pop()
			for y := range in {
				if y.v < x.v {
					t.Fatalf("step %d: got %d before %d", step, x.v, y.v)
				}
			}
			delete(in, x)
		}
		if h.len() != len(in) {
			t.Fatalf("step %d: %d in the heap, want %d", step, h.len(), len(in))
		}
		for x := range in {
			if h.a[x.at] != x || x.at > 0 && h.a[(x.at-1)/2].v > x.v {
				t.Fatalf("step %d: %d is at %d, below %d", step, x.v, x.at, h.a[(x.at-1)/2].v)
			}
		}
	}
}
