package codec

import (
	"net/netip"
	"sync"
	"time"
)

// UniqueIDs makes UNIQ_KEY values in the layout of Java clients (RocketMQ MessageClientIDSetter, 4.x and
// 5.x), all numbers big endian, as 32 (IPv4) or 56 (IPv6) upper-case hex digits:
//
//	size     meaning
//	4 or 16  IP address of the maker
//	2        process id, low bits
//	4        seed: tells makers of one process apart
//	4        ms since the month began, low 32 bits
//	2        counter
//
// No id is made twice within a month, also when the clock steps back or more than 65 536 are made in a
// millisecond: the time inside then runs ahead of the clock.
type UniqueIDs struct {
	prefix string

	mu      sync.Mutex
	month   int64 // first ms of the month that ids count from, wall clock
	next    int64 // first ms of the month after it
	at      int64 // ms of the latest id
	counter uint16
	left    int // ids that at can still take
}

const idsPerMs = 1 << 16

// NewUniqueIDs returns a maker. Makers with the same address and pid need different seeds.
func NewUniqueIDs(addr netip.Addr, pid int, seed uint32) *UniqueIDs {
	prefix := appendHexAddr(nil, addr)
	prefix = appendHex(prefix, uint64(pid), 2)
	prefix = appendHex(prefix, uint64(seed), 4)
	return &UniqueIDs{prefix: string(prefix)}
}

// Next returns a new id for the time now; the month begins at midnight in now's time zone. It may be called
// from any goroutine.
func (u *UniqueIDs) Next(now time.Time) string {
	u.mu.Lock()
	ms, counter := u.take(now)
	u.mu.Unlock()

	id := make([]byte, 0, offsetIDLen6)
	id = append(id, u.prefix...)
	id = appendHex(id, uint64(ms), 4)
	id = appendHex(id, uint64(counter), 2)
	return string(id)
}

// take returns the ms since the month began and the counter. The caller holds mu.
func (u *UniqueIDs) take(now time.Time) (int64, uint16) {
	switch ms := now.UnixMilli(); {
	case ms > u.at || u.next == 0:
		u.at, u.left = ms, idsPerMs
	case u.left == 0:
		u.at, u.left = u.at+1, idsPerMs
	}
	if u.at >= u.next {
		u.turn(time.UnixMilli(u.at).In(now.Location()))
	}
	u.left--
	u.counter++
	return u.at - u.month, u.counter - 1
}

// turn sets the month that holds t.
func (u *UniqueIDs) turn(t time.Time) {
	year, month, _ := t.Date()
	u.month = time.Date(year, month, 1, 0, 0, 0, 0, t.Location()).UnixMilli()
	u.next = time.Date(year, month+1, 1, 0, 0, 0, 0, t.Location()).UnixMilli()
}
