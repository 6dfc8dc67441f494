// Package client drives real RocketMQ client libraries: Java 4.9.7, Java 5.5.0 and rocketmq-client-go, all
// behind the same types. Each library runs in a process of its own (see compat_test/driver).
package client
