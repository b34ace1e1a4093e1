package cpu

import "golang.org/x/sys/unix"

// adviseHuge asks for large pages; a kernel without them says no, and nothing is lost.
func adviseHuge(m []byte) { _ = unix.Madvise(m, unix.MADV_HUGEPAGE) }
