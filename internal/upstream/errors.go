package upstream

import "errors"

// Errors of calls. They are wrapped with what was tried and why it failed: use errors.Is. Every failed
// call is exactly one of the first two.
var (
	// ErrNotSent: the peer cannot have processed the request.
	ErrNotSent = errors.New("request not sent")
	// ErrUnknownOutcome: the request was written but no reply came: the peer may have processed it.
	ErrUnknownOutcome = errors.New("no reply, outcome unknown")
	// ErrTimeout accompanies one of the above when the time of a call ran out.
	ErrTimeout = errors.New("timed out")
	// ErrQueueFull accompanies ErrNotSent when too much waits for the connection.
	ErrQueueFull = errors.New("too many requests wait for the connection")
	// ErrBadFrame accompanies ErrNotSent when what was to be sent is no frame that a broker would take.
	ErrBadFrame = errors.New("not a whole Binary frame of at most 16 MiB")
	// ErrClosed accompanies one of the above when the client was closed.
	ErrClosed = errors.New("client closed")
)
