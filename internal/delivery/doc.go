// Package delivery hands due messages to the brokers that the clients had addressed.
//
// [Delivery.Fire] is the sink of the timer store. Each entry goes into its lane: (broker, topic, queue).
// What the package promises:
//
//   - A lane has at most one request unanswered and is served in (due, LSN) order, through retries and
//     reconnects: a 5.5.0 broker stores about 30 % of one queue's messages out of order when many are
//     unanswered. Lanes run side by side.
//   - Nothing is sent early: the wall clock is read once more just before each send.
//   - A lane goes on when its last delivery is written down in the store (or after a second, when the disk is held
//     up): a process that is killed repeats at most one request of each lane.
//   - An entry is settled when the broker says that it stored the message (0 SUCCESS, 10
//     FLUSH_DISK_TIMEOUT, 11 SLAVE_NOT_AVAILABLE, 12 FLUSH_SLAVE_TIMEOUT), and by nothing else. Nothing is
//     discarded. Only a record that is damaged on disk cannot be sent: the store logs, counts and settles it itself.
//   - 2 SYSTEM_BUSY, 14 SERVICE_NOT_AVAILABLE, 1500 GO_AWAY, a broken connection and a timeout are
//     retried for ever, with back-off and jitter; the lane waits, others do not.
//   - A broker that cannot be reached is tried with one request at a time. Its lanes wait, and go on all
//     together with its first answer. Other brokers do not notice.
//   - A queue that is gone (29, or 1 with that remark on 4.x) is replaced by one that exists.
//   - Any other refusal (13, 16, 17, ...) takes the entry out of its lane: those behind it go on. It comes
//     back to be tried again, slowly. The same holds for an entry whose body cannot be read or sent.
//   - The unanswered requests of one broker are limited; the limit halves on 2 and 14 and grows again
//     with each success. Topics of a broker take turns.
//
// A timeout or a connection that broke after the request was written leaves open whether the broker stored
// the message. It is sent again, with the same UNIQ_KEY: at least once.
//
// No goroutine belongs to a lane: a few load bodies and send, everything else happens in callbacks.
package delivery
