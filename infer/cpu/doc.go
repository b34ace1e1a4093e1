// Package cpu computes models on CPUs: float32 matrix tiles over packed weights, attention over KV pages, and a small
// pool of threads. It implements package device.
//
// # Arithmetic
//
// Three instruction sets (AVX-512, AVX2, portable Go) give the same bits, and so do all batch sizes and thread counts,
// because the arithmetic belongs to the operation and not to the machine:
//
//   - Every element of a matrix product is one chain of fused multiply-adds over k, ascending, from +0. Threads split
//     outputs and tokens, never k. A strip with few tokens runs the same chains as a full one.
//   - k is padded to a multiple of 32 with zeros on both sides, on every instruction set.
//   - Sums for norms and softmax run in 16 virtual lanes that are folded by one tree (i with i+8, i+4, i+2, i+1).
//   - There is one exponential: the polynomial of expf32, in vectors and in Go.
//   - Where kernels do not fuse, Go code writes float32(x*y)+z, since Go may fuse x*y+z; where they do, it uses fma32.
//   - Attention folds whole pages of 32 keys in page order. A masked key has probability exactly 0, and a page that is
//     masked for a row leaves that row as it was.
//
// # Layouts
//
// A weight [out][in] is packed into panels of 32 outputs, [out/32][in][32], so that a row of a panel is two AVX-512 or
// four AVX2 registers. A quantised weight is kept as compact panels of codes and scales, which are expanded to such a panel in
// the cache when they are used; the values are the bits of quant.Dequantize. Activations in front of a product are packed in strips of as many tokens as a tile has rows (14,
// 6): [strip][k/16][rows][16]; a tile walks a strip with constant offsets from one pointer, and filling a strip is copies of
// 16 values. Keys are stored transposed per page, [headDim][32], values as [32][headDim]: both are panels already.
package cpu

//go:generate go run ./internal/gen
