// Package toolchain prepares what the compatibility suites run: the class paths of real RocketMQ
// servers and clients, the Java driver compiled against each client version, and the Go binaries.
//
// Everything lands in the ignored folder .cache at the root of the module:
//
//	.cache/lib/<version>/*.jar      servers and clients of RocketMQ <version>
//	.cache/driver/<version>/        the Java driver's classes for that client version
//	.cache/bin/                     the proxy and the Go driver, rebuilt when a source changed
//
// A finished folder carries a stamp of what it was made from, so a second call costs milliseconds.
package toolchain
