package cpu

import "golang.org/x/sys/unix"

// askForTiles asks Linux for the right to use tile registers, for all threads of the process. Without it their first use is a
// fault. Source: Documentation/arch/x86/xstate.rst of the kernel.
func askForTiles() bool {
	const (
		archReqXcompPerm = 0x1023
		xfeatureTileData = 18
	)
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archReqXcompPerm, xfeatureTileData, 0)
	return errno == 0
}
