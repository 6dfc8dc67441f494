// Command delaygate stands between Apache RocketMQ clients and their cluster and holds delayed and
// timed messages until their millisecond has come.
//
//	delaygate serve    in front of a real cluster
//	delaygate dev      with an embedded one, for trying it
//	delaygate store    look into the data folder of one that does not run: verify, dump, repair, export, import
//	delaygate version
//
// Exit code 0 after a clean shutdown (SIGINT, SIGTERM), 1 when it could not start or go on, 2 for a
// bad command line. Of store: 0 when everything is sound, 1 when damage was found (verify, dump, export, import) or messages are lost (repair), 2 when
// it could not work: no such folder, a delaygate runs on it, a newer format, a bad command line.
package main
