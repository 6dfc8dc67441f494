// Package fakemq is an Apache RocketMQ cluster in this process: name servers and brokers on real TCP
// ports that unchanged remoting clients produce to and consume from. It is the embedded upstream of
// `delaygate dev`, and in tests a cluster that misbehaves on demand.
//
// # What it does
//
// A broker answers as a RocketMQ 5.3.3 broker with default settings would, or, with
// BrokerOptions.Version below 413 (5.0.0), as a 4.9.7 one. Each request code has a file of its own
// (req_011_pull.go); a code without a file is answered with REQUEST_CODE_NOT_SUPPORTED (3).
//
//	10 310 320       send, also one-way, delayed, transactional and in batches
//	11 361           pull, with long polling
//	12 33            query by key, view by offset
//	14 15            consumer offsets
//	17 215 351       topics: create, delete, configuration
//	26 28            broker configuration and runtime information
//	29 30 31 32      queue offsets
//	34 35 38 46      clients: heartbeat, leave, members of a group, check
//	36               send back for a retry
//	37               end of a transaction (commit, rollback; no check-back)
//	41 42            queue locks
//	200 201 352      consumer groups
//	105 106 206 ...  on name servers; see nameserver.go
//
// Delay levels, timers (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC) and consumer retries work as in
// a broker, except that a timer fires at its millisecond instead of the next multiple of timerPrecisionMs.
// Never early, as in a broker.
//
// # What it does not
//
// Everything lives in RAM. The log of a broker holds at most BrokerOptions.MaxMessages messages and
// MaxBytes bytes of stored form; beyond that the oldest message is dropped, consumed or not, and the
// minimum offset of its queue rises. Messages that wait for a due time or for the end of their transaction are
// not bounded. There are no slaves, no VIP port (port - 2), no TLS, no ACL, no POP, no
// static topics and no SQL filters. A client that stays silent is not thrown out after 120 s.
//
// # Faults
//
// Cluster.Control installs a hook that sees every request before it is executed and chooses an Action: answer in the
// broker's place, stay silent, answer late, cut the reply in the middle of its frame, and so on.
// Broker.Stop, Kill and Restart take a broker away and bring it back on the same address with its messages.
// While it is away its port is nobody's, and the system may lend it to an outgoing connection; on an address
// such as 127.7.7.7, where no connection starts from, that cannot happen.
//
// # Concurrency
//
// One goroutine reads a connection and one writes it; all state of a broker is behind one mutex, and
// nothing blocks while it is held. A connection whose client does not read its replies is no longer read itself once
// 8 MiB wait for it. All exported methods may be called from any goroutine. Close returns when every
// goroutine has ended.
package fakemq
