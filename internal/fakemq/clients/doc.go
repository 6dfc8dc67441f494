// Package clients holds the tests of fakemq with rocketmq-client-go. They stand apart because that client
// leaves goroutines behind, which the tests of fakemq itself check for.
package clients
