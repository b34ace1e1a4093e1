package cpu

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var kernels8AMX = kernels8{
	name: "amx", quantise: quantise8AVX512, scores: scores8Tiles, softmax: softmax8AVX512, values: values8Tiles, add: add8AVX512,
}

var kernels8AVX512 = kernels8{
	name: "avx512", quantise: quantise8AVX512, scores: scores8AVX512, softmax: softmax8AVX512, values: values8AVX512, add: add8AVX512,
}

var kernels8AVX2 = kernels8{
	name: "avx2", quantise: quantise8AVX2, scores: scores8AVX2, softmax: softmax8AVX2, values: values8AVX2, add: add8AVX2,
}

// attention is the best of integer attention's kernels that go with an instruction set: not every CPU with AVX-512 has its
// integer products, and those of AVX2 give the same bits.
func (k *kernels) attention() *kernels8 {
	switch {
	case k.name == "amx":
		return &kernels8AMX
	case k.name == "avx512" && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VNNI:
		return &kernels8AVX512
	case k.name == "avx512" && cpu.X86.HasAVX2 && cpu.X86.HasFMA, k.name == "avx2":
		return &kernels8AVX2
	}
	return &kernels8Portable
}

// tileShape is a configuration of the matrix tiles as the processor reads it (palette 1): bytes of a row and rows of each.
type tileShape struct {
	palette, startRow uint8
	_                 [14]uint8
	rowBytes          [16]uint16
	rows              [16]uint8
}

// The tiles of the generator's attend_amx.go for each number of query rows.
var scoreShapes, valueShapes = tileShapes(64), tileShapes(32)

// tileShapes gives the shapes with so many codes in a row of A.
func tileShapes(codes int) (shapes [stripRows8 + 1]tileShape) {
	for rows := range shapes {
		s := &shapes[rows]
		s.palette = 1
		for t := range 7 {
			s.rowBytes[t], s.rows[t] = 64, uint8(rows)
		}
		s.rowBytes[0] = uint16(codes)
		s.rows[1], s.rows[2] = uint8(codes/quadWidth), uint8(codes/quadWidth)
	}
	return shapes
}

func scores8Tiles(rows, pages, dim, ldq int, q unsafe.Pointer, span *span8, s unsafe.Pointer, _ *rows8) {
	scores8AMX(rows, pages, dim, ldq, q, span, s, unsafe.Pointer(&scoreShapes[rows]))
}

func values8Tiles(rows, pages, dim int, p unsafe.Pointer, span *span8, o unsafe.Pointer) {
	values8AMX(rows, pages, dim, p, span, o, unsafe.Pointer(&valueShapes[rows]))
}

//go:noescape
func scores8AMX(rows, pages, dim, ldq int, q unsafe.Pointer, span *span8, s, shapes unsafe.Pointer)

//go:noescape
func values8AMX(rows, pages, dim int, p unsafe.Pointer, span *span8, o, shapes unsafe.Pointer)

//go:noescape
func quantise8AVX512(blocks int, dst, x unsafe.Pointer, out *quantised)

//go:noescape
func scores8AVX512(rows, pages, dim, ldq int, q unsafe.Pointer, span *span8, s unsafe.Pointer, st *rows8)

//go:noescape
func softmax8AVX512(rows, pages, scales int, s, p unsafe.Pointer, span *span8, st *rows8, masked int)

//go:noescape
func values8AVX512(rows, pages, dim int, p unsafe.Pointer, span *span8, o unsafe.Pointer)

//go:noescape
func add8AVX512(rows, dim int, o, acc unsafe.Pointer, st *rows8)

//go:noescape
func quantise8AVX2(blocks int, dst, x unsafe.Pointer, out *quantised)

//go:noescape
func scores8AVX2(rows, pages, dim, ldq int, q unsafe.Pointer, span *span8, s unsafe.Pointer, st *rows8)

//go:noescape
func softmax8AVX2(rows, pages, scales int, s, p unsafe.Pointer, span *span8, st *rows8, masked int)

//go:noescape
func values8AVX2(rows, pages, dim int, p unsafe.Pointer, span *span8, o unsafe.Pointer)

//go:noescape
func add8AVX2(rows, dim int, o, acc unsafe.Pointer, st *rows8)
