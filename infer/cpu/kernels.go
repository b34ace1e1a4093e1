package cpu

import (
	"fmt"
	"unsafe"
)

const (
	panelCols = 32 // outputs of a weight panel
	lanes     = 16 // virtual lanes of sums; values in a block of packed activations
	maxStrip  = 14 // the largest strip of float activations of any instruction set
)

// state is a row's online softmax, the layout of the softmax kernel.
type state struct{ max, sum, alpha, _ float32 }

// kernels is one instruction set's implementation. Pointers are to float32; strides are in bytes; counts are at least 1.
// The comments in internal/gen and in portable.go say what each computes.
type kernels struct {
	name       string
	strip      int // token rows of a tile
	tile       func(rows, blocks int, a, b, c unsafe.Pointer, ldb, ldc, add int, ahead uintptr, step int)
	addRows    func(rows int, dst, src unsafe.Pointer, ldd int)
	sumSquares func(blocks int, x unsafe.Pointer) float32
	normRow    func(blocks int, dst, x, w unsafe.Pointer, scale float32, step int)
	siluMul    func(rows int, gate, up, dst unsafe.Pointer, step int)
	softmax    func(rows int, s, p, state unsafe.Pointer, scale float32, step int)
	scaleRows  func(rows, blocks int, x unsafe.Pointer, ldx int, factor unsafe.Pointer)
	rotate     func(blocks int, x, y, cos, sin unsafe.Pointer)
	expand8    func(blocks, group int, dst, src unsafe.Pointer)
	expand4    func(blocks int, dst, src unsafe.Pointer, bias float32)

	q8    *qKernels // products of quantised weights
	q8few *qKernels // those of a strip of few tokens with 8-bit activations, whose weights take longer to read than to multiply; nil: q8
}

// integers picks the kernels of quantised weights for a number of tokens.
func (k *kernels) integers(tokens int, wide bool) *qKernels {
	if k.q8few != nil && tokens <= k.q8few.strip && !wide {
		return k.q8few
	}
	return k.q8
}

// stripBytes is the distance of blocks of 16 in packed activations.
func (k *kernels) stripBytes() int { return k.strip * lanes * 4 }

// ISAs lists the instruction sets that this machine can run, best first; names for Config.ISA.
func ISAs() []string {
	var names []string
	for _, k := range available() {
		names = append(names, k.name)
	}
	return names
}

// pick finds an instruction set by name; "" is the best.
func pick(name string) (*kernels, error) {
	all := available()
	if name == "" {
		return all[0], nil
	}
	for _, k := range all {
		if k.name == name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("choose instruction set %q: this machine has %v", name, ISAs())
}

// ptr is the address of the i-th value.
func ptr(s []float32, i int) unsafe.Pointer { return unsafe.Pointer(&s[i]) }

// address is ptr as a number, for what is only fetched ahead, and for arguments that kernels change: it may be beyond the end of
// s, where no pointer may point. What it points into has to be held elsewhere, on the heap.
func address(s []float32, i int) uintptr { return uintptr(unsafe.Pointer(&s[0])) + uintptr(4*i) }

// roundUp rounds n up to a multiple of m.
func roundUp(n, m int) int { return (n + m - 1) / m * m }

// cacheLine is the alignment of buffers in bytes: a vector load that crosses lines costs two.
const cacheLine = 64

// aligned makes n zeroed values that start at a cache line.
func aligned(n int) []float32 {
	const extra = cacheLine / 4
	s := make([]float32, n+extra)
	off := int(-uintptr(unsafe.Pointer(&s[0])) % cacheLine / 4)
	return s[off : off+n : off+n]
}
