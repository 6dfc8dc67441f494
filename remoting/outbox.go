package remoting

import (
	"sync"
	"sync/atomic"

	"github.com/valyala/bytebufferpool"
)

const chunkSize = 16 << 10

// memory is what all sessions of a server buffer together, and the pools it comes from.
type memory struct {
	budget  int64
	used    atomic.Int64
	chunks  sync.Pool           // of *chunk
	gathers bytebufferpool.Pool // frames, or their beginnings, that are gathered
}

func (m *memory) over() bool { return m.used.Load() > m.budget }

type chunk struct {
	next *chunk
	r, w int
	b    [chunkSize]byte
}

func (m *memory) chunk() *chunk {
	m.used.Add(chunkSize)
	c, ok := m.chunks.Get().(*chunk)
	if !ok {
		return new(chunk)
	}
	c.next, c.r, c.w = nil, 0, 0
	return c
}

func (m *memory) free(c *chunk) {
	m.used.Add(-chunkSize)
	m.chunks.Put(c)
}

// outbox is a queue of bytes in pooled chunks. It has no lock of its own.
type outbox struct {
	mem        *memory
	head, tail *chunk
	n          int // bytes
}

// push copies p to the end.
func (o *outbox) push(p []byte) {
	o.n += len(p)
	for len(p) > 0 {
		if o.tail == nil || o.tail.w == chunkSize {
			o.grow()
		}
		k := copy(o.tail.b[o.tail.w:], p)
		o.tail.w += k
		p = p[k:]
	}
}

func (o *outbox) grow() {
	c := o.mem.chunk()
	if o.tail == nil {
		o.head = c
	} else {
		o.tail.next = c
	}
	o.tail = c
}

// front is the first stretch of bytes; nil when empty.
func (o *outbox) front() []byte {
	if o.head == nil {
		return nil
	}
	return o.head.b[o.head.r:o.head.w]
}

// drop takes n bytes of front away.
func (o *outbox) drop(n int) {
	o.n -= n
	c := o.head
	c.r += n
	if c.r < c.w {
		return
	}
	o.head = c.next
	if o.head == nil {
		o.tail = nil
	}
	o.mem.free(c)
}

// take moves all of from to the end.
func (o *outbox) take(from *outbox) {
	if from.n == 0 {
		return
	}
	if o.tail == nil {
		o.head = from.head
	} else {
		o.tail.next = from.head
	}
	o.tail = from.tail
	o.n += from.n
	from.head, from.tail, from.n = nil, nil, 0
}

func (o *outbox) clear() {
	for o.head != nil {
		o.drop(len(o.front()))
	}
}
