// Package clients holds the tests of fakemq with rocketmq-client-go. The client runs in a child process:
// it leaves goroutines behind and has data races of its own (seen in v2.1.3-0.20251226070945), neither of which shall
// count against fakemq, which runs in the test process.
package clients
