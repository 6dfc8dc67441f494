package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports hands out blocks of loopback ports below the range of outgoing connections. A block is given once
// per Ports; that it is free on the machine is tried on all addresses.
type Ports struct {
	mu    sync.Mutex
	taken map[int]bool
}

const (
	firstPort = 11000
	lastPort  = 32000
)

// Block returns the first of n consecutive free ports.
func (p *Ports) Block(n int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == nil {
		p.taken = map[int]bool{}
	}
	for range 1000 {
		first := firstPort + rand.IntN(lastPort-firstPort-n)
		if !p.free(first, n) {
			continue
		}
		for port := first; port < first+n; port++ {
			p.taken[port] = true
		}
		return first, nil
	}
	return 0, fmt.Errorf("no block of %d free ports between %d and %d", n, firstPort, lastPort)
}

func (p *Ports) free(first, n int) bool {
	for port := first; port < first+n; port++ {
		if p.taken[port] {
			return false
		}
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
