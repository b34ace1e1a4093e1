//go:build !amd64

package cpu

// available lists what this CPU can run, best first.
func available() []*kernels { return []*kernels{&kernelsPortable} }
