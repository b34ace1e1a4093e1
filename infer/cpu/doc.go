// Package cpu computes models on CPUs: matrix tiles over packed weights, attention over KV pages, and a small pool of
// threads. It implements package device.
//
// # Arithmetic
//
// All instruction sets (tiles and vectors of AVX-512, AVX2, portable Go) give the same bits, and so do all batch sizes and
// thread counts, because the arithmetic belongs to the operation and to the weight's type, and not to the machine:
//
//   - Every element of a float32 product is one chain of fused multiply-adds over k, ascending, from +0. Threads split
//     outputs and tokens, never k. A strip with few tokens runs the same chains as a full one.
//   - k is padded to a multiple of 32 with zeros on both sides, on every instruction set.
//   - With Activations other than f32, quantised weights are multiplied in exact integers, block by block of 32 k; q8.go says
//     how. With int8, keys, values and probabilities are integers too; attend8.go says how.
//   - Sums for norms and softmax run in 16 virtual lanes that are folded by one tree (i with i+8, i+4, i+2, i+1).
//   - There is one exponential in float32, the polynomial of expf32, and one of integer attention, that of exp2f32, in vectors
//     and in Go.
//   - Where kernels do not fuse, Go code writes float32(x*y)+z, since Go may fuse x*y+z; where they do, it uses fma32.
//   - Attention folds whole pages of 32 keys in page order (spans of four pages where they are integers). A masked key has
//     probability exactly 0, and what is masked for a row leaves that row as it was.
//
// # Layouts
//
// A float weight [out][in] is packed into panels of 32 outputs, [out/32][in][32], so that a row of a panel is two AVX-512
// or four AVX2 registers. A quantised weight is kept as codes with their scales: with f32 as compact panels that are expanded
// to float32 ones in the cache when they are used, with the bits of quant.Dequantize; with integers as stored panels (qLayout) of
// about the file's size, expanded to bytes. Float activations in front of a product are packed in strips of as many tokens as a tile
// has rows (14, 6): [strip][k/16][rows][16]; a tile walks a strip with constant offsets from one pointer, and filling a strip is copies
// of 16 values. Integers lie in strips as each kernel wants them (qStrips). Keys are stored transposed per page, [headDim][32],
// values as [32][headDim]: both are panels already. As codes, they lie in fours: what integer products take at once (kernels8).
package cpu

//go:generate go run ./internal/gen
