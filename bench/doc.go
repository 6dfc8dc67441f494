// Package bench is the room for benchmarks that drive a native cluster and delaygate side by side. What measures
// one package alone stands beside its code: go test -bench . in codec, remoting, timer, internal/gate and
// internal/delivery.
package bench
