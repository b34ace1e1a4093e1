//go:build unix

package jobs

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// peakRSS is the process's peak resident set in bytes; nil where the system does not tell.
func peakRSS() *int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return nil
	}
	n := int64(u.Maxrss)
	if runtime.GOOS != "darwin" && runtime.GOOS != "ios" { // there it is bytes, elsewhere kilobytes
		n *= 1024
	}
	return &n
}
