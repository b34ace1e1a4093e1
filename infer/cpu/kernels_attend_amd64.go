package cpu

import (
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

var kernels8AMX = kernels8{
	name: "amx", quantise: quantise8AVX512, place: place8AVX512, touch: touch8AVX512,
	fold: foldTiles, steps8: kernels8AVX512.steps8, finish: finish8AVX512,
}

var kernels8AVX512 = kernels8{
	name: "avx512", quantise: quantise8AVX512, place: place8AVX512, touch: touch8AVX512,
	steps8: steps8{scores: scores8AVX512, softmax: softmax8AVX512, values: values8AVX512, add: add8AVX512},
	finish: finish8AVX512,
}

var kernels8AVX2 = kernels8{
	name: "avx2", quantise: quantise8AVX2, place: place8AVX2, touch: touch8AVX2,
	steps8: steps8{scores: scores8AVX2, softmax: softmax8AVX2, values: values8AVX2, add: add8AVX2},
	finish: finish8AVX2,
}

// attention is the best of integer attention's kernels that go with an instruction set: not every CPU with AVX-512 has its
// integer products, and those of AVX2 give the same bits.
func (k *kernels) attention() *kernels8 {
	switch {
	case k.name == "amx":
		return &kernels8AMX
	case k.name == "avx512" && hasVNNI():
		return &kernels8AVX512
	case k.name == "avx512", k.name == "avx2":
		return &kernels8AVX2
	}
	return &kernels8Portable
}

// tileShape is a configuration of the matrix tiles as the processor reads it (palette 1): bytes of a row and rows of each.
type tileShape struct {
	palette  uint8
	_        [15]uint8 // the row to start with, which is 0, and reserved bytes
	rowBytes [16]uint16
	rows     [16]uint8
}

// attendShapes are the tiles of the generator's attend_amx.go for each number of query rows.
var attendShapes = func() (shapes [stripRows8 + 1]tileShape) {
	for rows := range shapes {
		s := &shapes[rows]
		s.palette = 1
		for t := range 8 {
			s.rowBytes[t], s.rows[t] = 64, uint8(rows)
		}
		s.rows[1] = 16                    // keys
		s.rowBytes[2] = device.PageTokens // probabilities
		s.rows[3] = device.PageTokens / quadWidth
	}
	return shapes
}()

// vectorRows is how many rows are better multiplied by vectors: configuring tiles and filling them takes as long.
const vectorRows = 4

func foldTiles(strips []strip8, dim, ldq int, span *span8, pad *pad8) {
	if len(strips) == 1 && strips[0].rows <= vectorRows {
		kernels8AVX512.span(strips, dim, ldq, span, pad)
		return
	}
	fold8AMX(&strips[0], len(strips), dim, ldq, scalesAt(dim), span, pad.scores, pad.probs, pad.out, &attendShapes[strips[0].rows])
}

//go:noescape
func fold8AMX(strips *strip8, count, dim, ldq, scales int, span *span8, s, p, o unsafe.Pointer, shape *tileShape)

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

//go:noescape
func finish8AVX512(rows, blocks, lda int, acc unsafe.Pointer, st *rows8, dst *unsafe.Pointer)

//go:noescape
func finish8AVX2(rows, blocks, lda int, acc unsafe.Pointer, st *rows8, dst *unsafe.Pointer)

//go:noescape
func place8AVX512(dim int, k, v, keys, values unsafe.Pointer, at int)

//go:noescape
func touch8AVX512(dim int, keys, values, scales unsafe.Pointer)

//go:noescape
func place8AVX2(dim int, k, v, keys, values unsafe.Pointer, at int)

//go:noescape
func touch8AVX2(dim int, keys, values, scales unsafe.Pointer)
