// Package timer is the durable timer store.
package timer
