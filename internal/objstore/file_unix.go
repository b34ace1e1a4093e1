//go:build unix

package objstore

import (
	"errors"
	"syscall"
)

// closeBeforePlacing: an open file can be linked and renamed here, and stays locked until it has its final name.
const closeBeforePlacing = false

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
func isInvalid(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP)
}

func linkUnsupported(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) ||
		errors.Is(err, syscall.EMLINK)
}
