//go:build !race

package compat_test

// raceFlags builds the proxy as the tests are built.
var raceFlags []string
