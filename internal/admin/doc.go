// Package admin is the HTTP server for operators: health, readiness and metrics.
//
//	GET /healthz   200 while the process works
//	GET /readyz    200 once every check passes, else 503 and one line per failing check
//	GET /metrics   Prometheus text
//
// It listens on loopback by default and changes nothing.
package admin
