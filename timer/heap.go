package timer

// heap is a binary heap with the least element first. If moved is set it is told each element's place, -1 when it leaves.
type heap[T any] struct {
	a     []T
	less  func(x, y T) bool
	moved func(x T, at int)
}

func (h *heap[T]) len() int { return len(h.a) }

func (h *heap[T]) min() T { return h.a[0] }

func (h *heap[T]) set(at int, x T) {
	h.a[at] = x
	if h.moved != nil {
		h.moved(x, at)
	}
}

func (h *heap[T]) push(x T) {
	h.a = append(h.a, x)
	h.up(len(h.a) - 1)
}

func (h *heap[T]) pop() T { return h.remove(0) }

func (h *heap[T]) remove(at int) T {
	x, last := h.a[at], len(h.a)-1
	end := h.a[last]
	var zero T
	h.a[last] = zero
	h.a = h.a[:last]
	if at < last {
		h.a[at] = end
		h.fix(at)
	}
	if h.moved != nil {
		h.moved(x, -1)
	}
	return x
}

// next restores the order after the least element has moved on, or takes it out: more says whether there is more to come of it.
func (h *heap[T]) next(more bool) {
	if more {
		h.fix(0)
	} else {
		h.pop()
	}
}

// fix restores the order after the element at at changed.
func (h *heap[T]) fix(at int) {
	if !h.down(at) {
		h.up(at)
	}
}

func (h *heap[T]) up(at int) {
	x := h.a[at]
	for at > 0 {
		parent := (at - 1) / 2
		if !h.less(x, h.a[parent]) {
			break
		}
		h.set(at, h.a[parent])
		at = parent
	}
	h.set(at, x)
}

func (h *heap[T]) down(at int) bool {
	x, start := h.a[at], at
	for {
		child := 2*at + 1
		if child >= len(h.a) {
			break
		}
		if child+1 < len(h.a) && h.less(h.a[child+1], h.a[child]) {
			child++
		}
		if !h.less(h.a[child], x) {
			break
		}
		h.set(at, h.a[child])
		at = child
	}
	h.set(at, x)
	return at > start
}
