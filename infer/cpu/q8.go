package cpu

import (
	"unsafe"

	"github.com/batchmill/batchmill/infer/quant"
)

// # Products of quantised weights
//
// With int8 or int16 activations a quantised weight is never made float32. For each block of 32 k:
//
//   - A row of activations becomes integers a with one scale, sa = max|x|/127 (or 32767), rounded half to even.
//   - The dot product of a and the codes q (with the bias taken away) is exact in int32.
//   - The element's chain goes on by acc = fma(float32(dot)*sw, sa, acc), with the weight's scale sw; where scales belong to 16 k,
//     twice. A minimum m adds acc = fma(m, sa*sum(a), acc).
//
// Integer sums have one value in whatever order they are made, so tiles (AMX), VNNI, AVX2 and Go agree to the bit, and so do
// all batch sizes and thread counts.
//
// A stored panel of 32 outputs keeps the codes packed, in their 4, 5, 6 or 8 bits, and scales as the file has them (qLayout). It is
// expanded into the second-level cache when it is used: bytes [blocks][8][32][4], that is, quads of four k for each output, and
// float32 scales and minima [blocks][32].

// qBlock is the number of k with one activation scale.
const qBlock = 32

// codesPerBlock is the number of codes of a block of a panel.
const codesPerBlock = qBlock * panelCols

// maxStrip8 is the highest strip of integers of any instruction set.
const maxStrip8 = 16

// qKernels is one instruction set's implementation for quantised weights.
type qKernels struct {
	name  string
	strip int // rows of a strip of activations
	// Bytes of a block of a strip of 8-bit and of 16-bit activations, and from row to row in it. Where words is set, there is a
	// second form with as many bytes a block, and rows are 4 bytes apart in both: 16-bit activations come in it alone, 8-bit
	// ones in both.
	block8, block16, rowStep, words int

	expandCodes4, expandCodes5, expandCodes6 func(blocks int, dst, low, high unsafe.Pointer, bias int8)
	halves, brains                           func(vectors int, dst, src unsafe.Pointer) // float16, bfloat16
	subScales, subScalesSigned, subMins      func(supers, groups int, dst, sub, scale unsafe.Pointer)
	codeSums                                 func(groups, quads int, dst, src unsafe.Pointer, start int32) // nil: sums start at 0
	widen                                    func(quads int, dst, src unsafe.Pointer)                      // nil: codes stay bytes

	quant8, quant16 func(args *quantArgs)

	gemm8, gemm8Min, gemm8Sub    func(args *qArgs)
	gemm16, gemm16Min, gemm16Sub func(args *qArgs)
	nibbles, nibblesMin          func(args *qArgs) // for 4-bit codes with 8-bit activations; nil: gemm8 takes them

	// direct multiplies a stored panel, without expanding it, with all the tokens of a step, which are one strip at most (see
	// kernels.integers); nil: panels are expanded.
	direct func(f quant.Form) func(args *fewArgs)
}

// qArgs are the arguments of a product, C[rows][32] = activations x panel. Kernels change them while they go on from strip to strip.
// The generator knows the offsets. Addresses are numbers: after the last strip some point beyond what they belong to, which the
// garbage collector must not see. What they point into is held by the runner, and lies on the heap.
type qArgs struct {
	blocks   int     // k/32
	a        uintptr // strips of activations
	aStrip   int     // bytes from strip to strip
	b        uintptr // codes
	sw       uintptr // scales, [blocks][32], or [blocks][2][32] where they belong to 16 k
	min      uintptr // minima, [blocks][32]
	sa       uintptr // activation scales, [strip][blocks][rows of a strip]
	s1       uintptr // those times the sums of activations
	sStrip   int     // bytes from strip to strip of both
	c        uintptr // results
	ldc      int     // bytes from row to row
	rows     int     // tokens
	sums     uintptr // VNNI: where integer sums start, [groups][32]; AVX2 nibbles: sums of activations, as sa
	scratch  uintptr // qScratch bytes
	ahead    uintptr // what to fetch into the caches on the way, up to aheadEnd or a little further; 0: nothing
	aheadEnd uintptr
}

// fewArgs are the arguments of a product straight from a stored panel; see qLayout. The generator knows the offsets.
type fewArgs struct {
	blocks      int     // k/32
	a           uintptr // activations, [blocks][8][4][4] signed bytes
	low, high   uintptr // codes
	scale, min  uintptr // float16
	sub, subMin uintptr
	sa, s1      uintptr // [blocks][4]
	sums        uintptr // int32 [blocks][4]: sums of activations
	c           uintptr
	ldc         int // bytes from row to row
	rows        int // 1 to 4
}

// qScratch is the memory that kernels want for sums on their way: four slots of up to four tiles of 16 x 16 int32.
const qScratch = 16384

// quantArgs are the arguments of quant8 and quant16; see the generator.
type quantArgs struct {
	count     int
	src       unsafe.Pointer // 16 float32, and 16 more half bytes on
	stride    int            // bytes to the next source
	half      int
	dst       unsafe.Pointer // integers in the instruction set's layout
	step      int            // bytes to the next
	scale     unsafe.Pointer // float32
	s1        unsafe.Pointer // float32: scale times sum
	sums      unsafe.Pointer // int32: the sum
	scaleStep int            // bytes to the next of these three
	words     unsafe.Pointer // AVX2: 16-bit integers
	wordsStep int
}

// product picks the kernel for a weight's form.
func (k *qKernels) product(f quant.Form, wide bool) func(args *qArgs) {
	switch {
	case wide && f.Min:
		return k.gemm16Min
	case wide && f.Group == 16:
		return k.gemm16Sub
	case wide:
		return k.gemm16
	case k.nibblesFor(f, wide) && f.Min:
		return k.nibblesMin
	case k.nibblesFor(f, wide):
		return k.nibbles
	case f.Min:
		return k.gemm8Min
	case f.Group == 16:
		return k.gemm8Sub
	}
	return k.gemm8
}

// nibblesFor tells whether codes are multiplied as unsigned nibbles.
func (k *qKernels) nibblesFor(f quant.Form, wide bool) bool {
	return k.nibbles != nil && f.Bits == 4 && !wide
}
