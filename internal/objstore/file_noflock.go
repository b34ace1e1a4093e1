//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package objstore

import (
	"errors"
	"os"
)

// lockFile cannot lock: what a killed process left stays.
func lockFile(*os.File) error { return errors.ErrUnsupported }
