//go:build !amd64

package cpu

// attention is integer attention's kernels.
func (k *kernels) attention() *kernels8 { return &kernels8Portable }
