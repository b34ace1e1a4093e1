package objstore

import (
	"errors"
	"syscall"
)

// closeBeforePlacing: an open file cannot be renamed here.
const closeBeforePlacing = true

func isNotDir(err error) bool  { return errors.Is(err, syscall.ENOTDIR) }
func isInvalid(err error) bool { return false }

func linkUnsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EWINDOWS) || errors.Is(err, syscall.Errno(1)) // ERROR_INVALID_FUNCTION
}
