// Package driver describes the programs that drive real RocketMQ clients for the compatibility suites:
// driver/java (the same source compiled against each Java client) and driver/go (rocketmq-client-go).
// Each is a long-lived process, so that a crash or a data race of a client never takes the tests along.
//
// It reads one JSON object per line on standard input and writes one per line on standard output.
//
// Requests carry "id" and "op"; the answer carries the same "id" and either "ok":true with the result's
// members, or "error" (text), "code" and "remark" (those of the broker's reply when there was one, code
// -1 otherwise).
//
//	producer   name, namesrv, group, timeoutMs, retries
//	send       producer, mode (sync, async, oneway), topic, tags, keys, body (base64), flag,
//	           props {name: value}, level, deliverMs, delayMs, delaySec (0 = not set),
//	           broker and queue (that very queue) or orderKey (a queue chosen by its hash)
//	           -> status, msgId, offsetMsgId, broker, queueId, queueOffset, transactionId, regionId
//	consumer   name, namesrv, group, topic, expr, broadcast, orderly, fail (0 = always succeed,
//	           n > 0 = fail the first n deliveries of each message, -1 = always fail), instance
//	close-producer, close-consumer   name
//
// A delivered message is an event: "event":"msg", "consumer", "at" (wall ms), and the message's fields
// as the client shows them, all properties included. "event":"ready" is the first line of a driver.
package driver
