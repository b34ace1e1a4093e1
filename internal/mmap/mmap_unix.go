//go:build unix

package mmap

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int64) []byte {
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil { // some network and FUSE file systems cannot
		return nil
	}
	return data
}

func unmapFile(data []byte) error { return unix.Munmap(data) }
