package timer

import (
	"errors"
	"fmt"
)

// damageError says what is damaged and where.
type damageError struct {
	what string
	off  int64 // in the file
}

func damagedAt(what string, off int64) error { return &damageError{what, off} }

func (e *damageError) Error() string { return fmt.Sprintf("%v: %s at %d", ErrCorrupt, e.what, e.off) }
func (e *damageError) Unwrap() error { return ErrCorrupt }

// damageOffset returns where the damage is that err tells of, 0 if it does not say.
func damageOffset(err error) int64 {
	if e := (*damageError)(nil); errors.As(err, &e) {
		return e.off
	}
	return 0
}
