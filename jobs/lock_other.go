//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package jobs

import "os"

func lockFile(*os.File) error { return errNoLocks }
