// Package cluster starts real RocketMQ name servers and brokers on loopback addresses, and stops, kills
// and restarts them one by one on the same folder.
//
// All of a cluster listens on, or at least advertises, one address of its own such as 127.7.7.7, so that
// an upstream address in a reply to a client cannot be mistaken for anything else.
package cluster
