//go:build unix

package cpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a large page on the machines that have them; smaller requests come from Go's heap.
const hugePage = 2 << 20

// allocate gives n zeroed values for weights and caches, outside Go's heap: hundreds of megabytes that never change hands
// would only make the garbage collector wait for as much garbage. Linux is asked for large pages, which make reading weights
// about a quarter faster. Memory is taken when it is first written.
func allocate(n int) (s []float32, free func(), err error) {
	if n*4 < hugePage {
		return aligned(n), func() {}, nil
	}
	m, err := unix.Mmap(-1, 0, n*4+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, fmt.Errorf("get %d bytes: %w", n*4, err)
	}
	adviseHuge(m)
	off := int(-uintptr(unsafe.Pointer(&m[0])) % hugePage)
	return unsafe.Slice((*float32)(unsafe.Pointer(&m[off])), n), func() { _ = unix.Munmap(m) }, nil
}
