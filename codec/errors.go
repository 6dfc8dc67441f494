package codec

import "fmt"

// FrameError tells where and why bytes are not what they should be.
type FrameError struct {
	// Offset counts bytes from the start of what was given to the decoder.
	Offset int
	Reason string
}

func (e *FrameError) Error() string { return fmt.Sprintf("codec: at byte %d: %s", e.Offset, e.Reason) }

func frameErr(offset int, format string, args ...any) error {
	return &FrameError{Offset: offset, Reason: fmt.Sprintf(format, args...)}
}
