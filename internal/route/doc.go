// Package route is the proxy's name-server face: it answers name-server requests from the real name
// servers, with every broker address replaced by one of the proxy's own listeners, and it keeps the
// address book that says which listener stands for which broker.
//
// Most released clients do not name the broker in their requests, so the port they dial is what
// identifies it. Hence the promises:
//
//   - A port stands for one real broker address for ever, across restarts. It is on disk before a
//     listener is opened on it or a client hears of it.
//   - A reply leaves only when every broker address in it has an open listener. Otherwise the client
//     gets SYSTEM_ERROR, upon which it keeps the route it has.
//   - No reply carries an upstream broker address. Configuration texts (319) and values that operators
//     stored (101, 219) are relayed as they are.
//   - While every name server is down, the last good reply to the same question (105, 106) serves for
//     a bounded time. TOPIC_NOT_EXIST (17) is passed on, and a route without brokers never is.
//   - Listeners of brokers that vanished stay open.
//
// The address book is one JSON file, replaced as a whole (written aside, fsync, rename, fsync of the
// folder):
//
//	{
//	  "format": "delaygate-addresses",
//	  "version": 1,
//	  "brokers": [
//	    {"addr": "10.0.0.5:10911", "port": 20000, "name": "broker-a", "cluster": "DefaultCluster", "id": 0}
//	  ]
//	}
//
// Ports come from a range, one every ten. For each port p the proxy listens on p-2 as well, which old
// Java clients derive from a broker's port (VIP channel), so no two ports of a book are 2 apart. An
// operator may edit the file while the proxy is stopped, for example to give up the ports of brokers that
// are gone for good.
package route
