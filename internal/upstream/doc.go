// Package upstream is the proxy's own remoting client: to the name servers and to the brokers of the
// RocketMQ cluster that the proxy stands in front of.
//
// [Client] pipelines requests over a small pool of connections per address. It promises:
//
//   - Every call ends exactly once: with a reply, or with an error that is [ErrNotSent] (the peer cannot
//     have seen the whole request, so sending it again cannot repeat it) or [ErrUnknownOutcome] (the peer
//     may have processed it).
//   - A request that met a dead connection before its last byte was written is sent again over a new
//     connection, within its own timeout. Brokers close connections that were idle for 120 s
//     (serverChannelMaxIdleTimeSeconds, 4.x and 5.x); the client closes its own idle ones earlier.
//   - A reply is matched by opaque alone, in either serialize type whatever the type of the request.
//   - GO_AWAY (1500, 5.2.0 and later) takes the connection out of use; the request is repeated once on
//     a new one.
//   - No heartbeats are sent, so a proxy-owned connection never appears in a group.
//   - Timeouts run on the monotonic clock.
//
// [NameServers] asks several name servers: reads stick to one and fail over in less than 3 s in all
// (a Java client waits 3 s for a route); writes go to every one, since name servers do not replicate.
//
// [View] is what the proxy knows about the cluster: its brokers, topics and broker settings. Answers are
// cached, and the last known ones serve while the upstream cannot be asked.
package upstream
