// Package remoting is the proxy's side towards RocketMQ clients: listeners, sessions, and the relay of
// bytes between a client connection and its upstream connection. It needs Linux (epoll).
//
// A listener stands for one real broker (on port p, and p-2 for the VIP rule of Java clients up to 4.4) or
// for the name server. Each accepted connection becomes a session. A [Handler] is asked about every
// request; what it does not want goes to the session's upstream connection, which is dialled when the
// first frame has to be relayed.
//
// # What it promises
//
//   - Relayed frames arrive byte for byte and in order, in both directions, requests of the broker and
//     their replies included. A frame of any size is passed on as its bytes arrive.
//   - Of a frame only this is read: the length word (4 bytes, big endian, not counting itself; 4 to
//     [codec.MaxFrame]-4), the header word (serialize type 0 or 1, then the header length in 24 bits) and
//     the header. A frame that breaks these rules closes the connection, as in every RocketMQ server;
//     its length is checked before anything is kept.
//   - Frames of the proxy's own (Peer.Reply, Peer.Relay, errors) stand between two frames, never inside one.
//   - A client whose upstream cannot be dialled gets error 14 for the waiting requests and stays
//     connected. A client whose upstream dies gets 14 for each request without a reply, then the
//     connection ends: rocketmq-client-go v2 does not fail its pending calls by itself. One-way requests
//     are never answered. No remark names an upstream address.
//   - An upstream connection belongs to one client connection. It is told at once when the client ends,
//     and never replaced under a live client: brokers know consumers and producers by their connection.
//   - What waits for a slow side is bounded: the other side is not read meanwhile.
//   - A panic in the Handler closes that connection only.
//
// # Goroutines
//
//	event loop (Options.Loops)   gnet: reads, frames, Handler calls, writes of its sessions
//	accept loop, per listener    accepts and enrols; outlives every error but the closing of the listener
//	watcher (1)                  waits until sockets that did not take all become writable, or paused ones fail
//	dial, enrolment              while one is under way; at most one per socket
//	any                          Peer.Reply, Peer.Relay, Server methods
//
// None is bound to a connection. A session and its two sockets live on one loop; what other goroutines
// leave for it is guarded by the session's mutex and picked up by one scheduled task, or by the end of the
// loop's current turn.
//
// # Invariants
//
//   - Each turn of the loop (a gnet callback or a task) ends in session.leave: it moves what is pending,
//     draws the consequences of what has failed or ended, and only then closes, pauses or resumes sockets.
//   - Only wire touches a gnet.Conn, and only while it is open: the descriptor number of a closed one may
//     already be a stranger's. wire.fd is -1 from OnClose on, before gnet gives the number back.
//   - Nothing is left in gnet's buffers. Inbound ones have no limit, so every byte is taken at once;
//     outbound ones would be lost on a pause, so wire writes to the socket itself and keeps the rest.
//   - gnet cannot stop reading. A pause takes a duplicate of the descriptor and has gnet close its own;
//     enrolling the duplicate resumes. A paused socket can still be written to.
//   - A pause never waits for something that only the paused side can bring: replies that wait for a frame
//     boundary of the upstream do not pause the upstream.
//   - Every call that wakes a loop is made under the session's mutex while it is not closed, and the
//     loops outlive all sessions: gnet writes to its wake-up descriptor even after closing it.
package remoting
