// Package raw speaks the remoting protocol frame by frame: what a suite needs beyond what client libraries
// let it say. It creates topics, asks routes, floods a broker with pipelined sends, and reads every stored
// message of a topic without a consumer group.
package raw
