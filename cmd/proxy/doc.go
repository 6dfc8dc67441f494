// Command delaygate stands between Apache RocketMQ clients and their cluster and holds delayed and
// timed messages until their millisecond has come.
//
//	delaygate serve    in front of a real cluster
//	delaygate dev      with an embedded one, for trying it
//	delaygate version
//
// Exit code 0 after a clean shutdown (SIGINT, SIGTERM), 1 when it could not start or go on, 2 for a
// bad command line.
package main
