package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaygate/delaygate/codec"
)

const (
	// nameServerBudget bounds a request to the name servers, fail-over included: a Java client waits
	// 3 s for a route (mqClientApiTimeout).
	nameServerBudget = 2500 * time.Millisecond
	// nameServerPatience is how long one name server may be silent before the next one is asked as well.
	nameServerPatience = 800 * time.Millisecond
)

// NameServers asks the name servers of one cluster. All methods may be called from any goroutine.
type NameServers struct {
	c       *Client
	addrs   []string
	current atomic.Int32
}

// NewNameServers returns an asker of the name servers at addrs (host:port), at least one.
func NewNameServers(c *Client, addrs []string) *NameServers {
	return &NameServers{c: c, addrs: append([]string(nil), addrs...)}
}

// Addrs returns the addresses in the order they were given. The caller must not change them.
func (n *NameServers) Addrs() []string { return n.addrs }

type answer struct {
	from  int
	reply *codec.Command
	err   error
}

// Call sends a read request to the name server that answered last and returns the first reply, whatever
// its code. The next name server is asked when one fails, and when one is silent. It ends within 2.5 s.
// Requests that change something belong into CallAll.
func (n *NameServers) Call(ctx context.Context, c *codec.Command) (*codec.Command, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nameServerBudget, ErrTimeout)
	defer cancel()
	total := len(n.addrs)
	answers := make(chan answer, total)
	first, asked := int(n.current.Load()), 0
	ask := func() {
		i := (first + asked) % total
		asked++
		go func() { answers <- n.ask(ctx, i, c) }()
	}
	ask()
	patience := time.NewTicker(min(nameServerPatience, nameServerBudget/time.Duration(total)))
	defer patience.Stop()
	var failed []error
	for len(failed) < total {
		select {
		case a := <-answers:
			if a.err == nil {
				n.current.Store(int32(a.from))
				return a.reply, nil
			}
			failed = append(failed, a.err)
		case <-patience.C:
		}
		if asked < total && ctx.Err() == nil {
			ask()
		}
		if len(failed) == asked {
			break
		}
	}
	return nil, fmt.Errorf("no name server answers: %w", errors.Join(failed...))
}

func (n *NameServers) ask(ctx context.Context, i int, c *codec.Command) answer {
	r, err := n.c.repeatable(ctx, n.addrs[i], c)
	return answer{from: i, reply: r, err: err}
}

// CallAll sends c to every name server side by side, since they do not replicate, and waits at most 2.5 s.
// replies[i] is the reply of Addrs()[i], whatever its code, nil where there was none; the error joins what
// went wrong on the way and is nil when every one replied. The request may reach a name server twice.
func (n *NameServers) CallAll(ctx context.Context, c *codec.Command) (replies []*codec.Command, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nameServerBudget, ErrTimeout)
	defer cancel()
	replies = make([]*codec.Command, len(n.addrs))
	errs := make([]error, len(n.addrs))
	var wg sync.WaitGroup
	for i := range n.addrs {
		wg.Go(func() {
			a := n.ask(ctx, i, c)
			replies[i], errs[i] = a.reply, a.err
		})
	}
	wg.Wait()
	return replies, errors.Join(errs...)
}
