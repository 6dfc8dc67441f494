// Package gate decides what happens to a request: it is relayed, held, answered or refused. Each request code
// that is not simply relayed has its file, req_NNN_name.go.
//
// # Sends
//
// A send (10, 310) is held when a delay applies to it. The rules are those of a 5.x broker (HookUtils), for
// every version of the broker behind the proxy:
//
//   - DELAY above 0 is a level of the broker's table, clamped to its end, and TIMER_DELIVER_MS, TIMER_DELAY_MS and
//     TIMER_DELAY_SEC are erased, unread. A DELAY that Java's Integer.parseInt refuses: code 1 with the text of
//     its NumberFormatException, as a broker answers.
//   - Else, without a TIMER_OUT_MS, the first present of TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS
//     counts, the first two from the moment at which the proxy got the request. A time that has come is no delay: the message is
//     relayed as it is. What Java's Long.parseLong refuses, what overflows (a broker delivers that at once) and what lies further
//     ahead than Options.MaxDelay is refused with 13 and the broker's remark.
//   - TIMER_DEL_UNIQKEY beside a timer asks for the removal of another message. With a time that has come it is refused with 13, as
//     by a broker. With a later one it is refused with 13 and a remark that says why: a broker would answer 0 and
//     remove nothing, since the message it means is not there but here.
//
// Never held, but relayed: batches, half messages (TRAN_MSG, unless it is a retry by a client before 4.6.1,
// which a broker recognizes by reconsumeTimes > 0 and DELAY > 0; or transaction bits in sysFlag),
// sends to %DLQ% and to system topics, sends to %RETRY% that are at their maxReconsumeTimes or do not name one
// (the broker knows the group's), and sends to a broker that is no master. Anything for rmq_sys_wheel_timer
// with a delay property is refused with 16: it stops the timer of a 5.x broker for good.
//
// What a broker checks at a send is checked here from the cached view of it, with its codes and remarks: that
// the topic's name is legal and the topic exists, or is created now where the broker would create it, the queue id, and the sizes. Where
// broker or topic may not be written the send is refused with 16. While the upstream cannot be asked, the last
// known answers serve; 14 where there are none.
//
// A held message is one SEND_MESSAGE_V2 (310) frame, encoded when it is accepted, and is acknowledged when
// the store says that it is durable. The frame differs from the request in this:
//
//	serialization  Binary, opaque and flag 0
//	c              the name of a topic that does not exist, so that a delivery never creates one
//	e              the queue, chosen here when the request said "any"
//	m, n           not a batch; the broker's name
//	extFields      all others as they came, without AccessKey, Signature, SecurityToken
//	i              without DELAY, TIMER_ROLL_TIMES, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, REAL_TOPIC and REAL_QID;
//	               a level message without TIMER_DELIVER_MS, TIMER_DELAY_MS and TIMER_DELAY_SEC, a timer message with
//	               TIMER_OUT_MS, by which a 5.x broker sees that it is due; UNIQ_KEY made if there was none;
//	               __BORNHOST = the client's IP
//
// The reply carries what clients insist on. msgId is an offset id that leads back to this listener: the local
// address, the listener's port, and as offset the message's number in the store with bit 62 set. queueOffset
// is that number. recallHandle is the native one with a sixth item: the number and the identity of the store.
//
// # Recalls
//
// A recall (370) whose handle has the sixth item takes the message back: by its number if the handle is of this store, else by its
// UNIQ_KEY, since it may have been moved here. All copies that are due within a minute of it go: a client that got no
// answer in time has sent the message again with the same key. 0: nothing of it will be delivered, and that is durable; again 0 if it was recalled before. 604: it, or a copy, is being delivered or
// was. 2 and 14: the store could not note it. What is not here, and every handle without the item, is relayed.
//
// # Name-server requests
//
// They are answered by the face (internal/route) on every listener. On the name-server port nothing else is
// served.
//
// # Threads
//
// Handle runs on event loops and never blocks: what the caches can answer is answered there. What needs the
// upstream goes to a bounded set of workers; when too much waits for them, the answer is 2 (SYSTEM_BUSY).
package gate
