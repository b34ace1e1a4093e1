package cpu

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var kernelsAVX512 = kernels{
	name: "avx512", strip: 14,
	tile: tileAVX512, addRows: addRowsAVX512, sumSquares: sumSquaresAVX512, normRow: normRowAVX512, siluMul: siluMulAVX512,
	softmax: softmaxAVX512, scaleRows: scaleRowsAVX512, rotate: rotateAVX512,
	expand8: expand8AVX512, expand4: expand4AVX512,
	q8: &qVNNI, q8few: &qFew,
}

var kernelsAVX2 = kernels{
	name: "avx2", strip: 6,
	tile: tileAVX2, addRows: addRowsAVX2, sumSquares: sumSquaresAVX2, normRow: normRowAVX2, siluMul: siluMulAVX2,
	softmax: softmaxAVX2, scaleRows: scaleRowsAVX2, rotate: rotateAVX2,
	expand8: expand8AVX2, expand4: expand4AVX2,
	q8: &qAVX2, q8few: &qOne,
}

// kernelsAVX512NoVNNI multiplies integers as AVX2 does.
var kernelsAVX512NoVNNI = func() kernels {
	k := kernelsAVX512
	k.q8, k.q8few = &qAVX2, &qOne
	return k
}()

// hasAVX2 tells whether the AVX2 kernels can run. They convert float16 too: every CPU with AVX2 can, but only some systems say so.
func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }

// available lists what this CPU, and its operating system, can run, best first.
func available() []*kernels {
	var all []*kernels
	if hasAMX() {
		all = append(all, &kernelsAMX)
	}
	if cpu.X86.HasAVX512F && hasAVX2() {
		k := &kernelsAVX512
		if !hasVNNI() {
			k = &kernelsAVX512NoVNNI
		}
		all = append(all, k)
	}
	if hasAVX2() {
		all = append(all, &kernelsAVX2)
	}
	return append(all, &kernelsPortable)
}

//go:noescape
func tileAVX512(rows, blocks int, a, b, c unsafe.Pointer, ldb, ldc, add int, ahead uintptr, step int)

//go:noescape
func tileAVX2(rows, blocks int, a, b, c unsafe.Pointer, ldb, ldc, add int, ahead uintptr, step int)

//go:noescape
func addRowsAVX512(rows int, dst, src unsafe.Pointer, ldd int)

//go:noescape
func addRowsAVX2(rows int, dst, src unsafe.Pointer, ldd int)

//go:noescape
func sumSquaresAVX512(blocks int, x unsafe.Pointer) float32

//go:noescape
func sumSquaresAVX2(blocks int, x unsafe.Pointer) float32

//go:noescape
func normRowAVX512(blocks int, dst, x, w unsafe.Pointer, scale float32, step int)

//go:noescape
func normRowAVX2(blocks int, dst, x, w unsafe.Pointer, scale float32, step int)

//go:noescape
func siluMulAVX512(rows int, gate, up, dst unsafe.Pointer, step int)

//go:noescape
func siluMulAVX2(rows int, gate, up, dst unsafe.Pointer, step int)

//go:noescape
func softmaxAVX512(rows int, s, p, state unsafe.Pointer, scale float32, step int)

//go:noescape
func softmaxAVX2(rows int, s, p, state unsafe.Pointer, scale float32, step int)

//go:noescape
func scaleRowsAVX512(rows, blocks int, x unsafe.Pointer, ldx int, factor unsafe.Pointer)

//go:noescape
func scaleRowsAVX2(rows, blocks int, x unsafe.Pointer, ldx int, factor unsafe.Pointer)

//go:noescape
func rotateAVX512(blocks int, x, y, cos, sin unsafe.Pointer)

//go:noescape
func rotateAVX2(blocks int, x, y, cos, sin unsafe.Pointer)

//go:noescape
func expand8AVX512(blocks, group int, dst, src unsafe.Pointer)

//go:noescape
func expand8AVX2(blocks, group int, dst, src unsafe.Pointer)

//go:noescape
func expand4AVX512(blocks int, dst, src unsafe.Pointer, bias float32)

//go:noescape
func expand4AVX2(blocks int, dst, src unsafe.Pointer, bias float32)
