//go:build !unix

package cpu

// allocate gives n zeroed values for weights and caches.
func allocate(n int) (s []float32, free func(), err error) { return aligned(n), func() {}, nil }
