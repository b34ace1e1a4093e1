//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package objstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks an open file without waiting; errHeld if another open file has the lock. The lock ends when the file is
// closed, also by a kill.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errHeld
	}
	return err
}
