// Package levels is the table of delay levels: how long a message with DELAY=n waits, and which level a
// consumer's retry takes.
//
// A table is written as brokers write messageDelayLevel: items separated by blanks, each a whole number and
// one of the units s, m, h, d.
//
//	1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
//
// The first item is level 1. Levels above the last are the last (RocketMQ HookUtils, 4.x and 5.x); level 0
// and below means no delay. Item texts are not kept: 60s reads back as 1m, and both tables are Equal.
//
// A Table never changes after Parse; all functions may be called from any goroutine.
package levels
