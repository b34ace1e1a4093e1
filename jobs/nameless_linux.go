package jobs

import (
	"os"

	"golang.org/x/sys/unix"
)

// nameless makes a file that never has a name, so that no kill can leave it behind. Not every file system can.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), ""), nil
}
