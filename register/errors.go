package register

import (
	"errors"
	"fmt"
)

// ErrNotSaved is the result of a write that could not be saved here (a full
// disk) and that nobody was told of: nothing changed.
var ErrNotSaved = errors.New("the write could not be saved here: nothing changed")

// ErrTimestamps is the result of a write of a key whose timestamps are used
// up: some voter's clock or a forged message carried one near 2^63.
var ErrTimestamps = errors.New("the key's timestamps are used up: it cannot be written any more")

// InvalidError says what is wrong with a configuration, a tag or a peer's
// message. It is final: the same input fails again.
type InvalidError struct{ reason string }

func (e *InvalidError) Error() string { return e.reason }

func invalid(format string, args ...any) error {
	return &InvalidError{fmt.Sprintf(format, args...)}
}
