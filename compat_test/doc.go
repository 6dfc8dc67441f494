// Package compat holds the compatibility suites: real RocketMQ name servers and brokers, 4.9.7 and 5.5.0,
// behind the real delaygate binary, used by the real client libraries Java 4.9.7, Java 5.5.0 and
// rocketmq-client-go.
//
// All of it runs on loopback. The clusters are started once, on first use, and shared by all tests; each
// test has topics and groups of its own. Brokers advertise 127.7.7.7, so a client that was led around the
// proxy shows. Every cluster has two brokers: broker-a with default settings, and broker-b with a level
// table of seconds, which the tests of broken brokers stop and start.
//
// What a test asserts about time is "never early"; lateness is reported, and bounded so widely that only
// a stuck message exceeds it.
//
//	toolchain, setup   fetch and compile what is needed
//	process            children that never outlive the run
//	cluster, proxy     servers
//	driver, client     client libraries
//	raw                single frames, floods, and reading a topic without a consumer
//
// With DELAYGATE_COMPAT_TARGET=direct the client suites address the brokers themselves; that tells a
// broker's or a client's own habit from the proxy's. Tests of the proxy alone fail in that mode.
package compat
