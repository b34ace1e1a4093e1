package objstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// errHeld is what lockFile returns when another open file holds the lock.
var errHeld = errors.New("the file is locked")

// newTemp makes a temporary file that is locked for as long as it is open, so that sweep can tell the ones in use from
// those that a killed process left.
func newTemp(name func() string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // less the umask
		if err != nil {
			return nil, err
		}
		// A sweep may come between the two. Where files cannot be locked, it cannot lock this one to remove it, either.
		if err := lockFile(f); !errors.Is(err, errHeld) && stillNamed(f) {
			return f, nil
		}
		_ = f.Close()
	}
}

func stillNamed(f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return true // its first write will tell
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(open, named)
}

// sweep removes the temporary files that killed processes left in the folder, which is ours alone. What is in use stays:
// its writer holds the lock.
func sweep(dir string) {
	left, _ := os.ReadDir(dir) // a folder that cannot be listed keeps what it has
	for _, entry := range left {
		if !strings.HasPrefix(entry.Name(), tmpPrefix) || !strings.HasSuffix(entry.Name(), tmpSuffix) {
			continue
		}
		name := filepath.Join(dir, entry.Name())
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			continue // gone, or another user's
		}
		if lockFile(f) == nil {
			_ = os.Remove(name) // one that stays costs space and nothing else
		}
		_ = f.Close()
	}
}
