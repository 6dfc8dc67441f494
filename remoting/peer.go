package remoting

import (
	"net/netip"

	"github.com/delaygate/delaygate/codec"
)

// Peer is a client connection as a Handler sees it. All methods may be called from any goroutine, and
// after the connection has gone.
type Peer interface {
	// Broker is the real address of the broker that this connection's listener stands for; "" on the
	// name-server port.
	Broker() string
	// Port is the port of that listener: p also for a client that came by p-2.
	Port() int
	// Local is the address on which the client reached the proxy, Remote the client's own. IPv4
	// addresses are in their 4-byte form.
	Local() netip.AddrPort
	Remote() netip.AddrPort
	// Reply sends whole frames to the client. The bytes are copied before it returns. Replies between
	// two turns of the event loop leave in one write, and never inside a frame that is being relayed.
	// A reply to a connection that has gone is dropped.
	Reply(frame []byte)
	// Relay sends on to the upstream whole frames that Handle took, as if it had answered Pass, between
	// two relayed frames. The bytes are copied before it returns.
	Relay(frame []byte)
}

// Verdict is what Handle decided about a frame.
type Verdict int

const (
	// Pass relays the frame to the upstream.
	Pass Verdict = iota
	// Taken keeps the frame from the upstream: the handler answers by Peer.Reply, or sends it on by
	// Peer.Relay, now or later. A one-way request gets neither reply nor error.
	Taken
	// Close closes the connection and its upstream.
	Close
)

// Handler decides about the requests of clients. It is called on an event loop, one call at a time for
// one connection, and must not block: a call that waits stops every connection of that loop. A panic is
// logged and closes that one connection.
type Handler interface {
	// Wants reports whether the handler must see the whole frame of a request; header holds its bytes
	// up to codec.HeaderEnd. Frames it does not want are relayed as their bytes arrive. It is not asked
	// about frames with the response flag, which are always relayed. On the name-server port, where
	// there is no upstream, it must be true.
	Wants(p Peer, h codec.Head, header []byte) bool
	// Handle gets a whole frame that Wants asked for; frame is valid during the call only. On the
	// name-server port it must not return Pass.
	Handle(p Peer, h codec.Head, frame []byte) Verdict
}
