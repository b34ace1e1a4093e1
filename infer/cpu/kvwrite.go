package cpu

import (
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

// queryCodes are a step's queries as codes.
type queryCodes struct {
	q  []float32 // [rows][heads][ldq] codes, zero from the head's size on
	of []quantised
}

// grow makes room for so many heads of so many values.
func (c *queryCodes) grow(heads, dim int) {
	c.q = aligned(heads * roundUp(dim, queryUnit) / 4)
	c.of = make([]quantised, heads)
}

// writeCodes quantises a span's queries, keys and values and scatters the latter two to their page.
func (w *writeTask) writeCodes(ws *scratch, s *span) {
	const page = device.PageTokens
	r := w.r
	d, dim := r.shape.HeadDim, r.cache.vdim
	ldq := roundUp(d, queryUnit)
	for i := range s.n {
		for h := range r.shape.Heads {
			at := (s.token+i)*r.shape.Heads + h
			w.quantise(ws, ptr(r.codes.q, at*ldq/4), r.q[(s.token+i)*r.qdim+h*d:][:d], &r.codes.of[at])
		}
	}
	head := unsafe.Pointer(&ws.int8.head[0])
	code := codes(head, 0, d)
	for h := range r.shape.KVHeads {
		to := r.cache.page8(w.layer, s.page, h)
		keys, values := codes(to, 0, valuesAt(dim)), codes(to, valuesAt(dim), valuesAt(dim))
		scales := at(to, scalesAt(dim), 2*page)
		for i := range s.n {
			slot := s.slot + i
			var k, v quantised
			w.quantise(ws, head, r.kx[(s.token+i)*r.kvdim+h*d:][:d], &k)
			for j, c := range code {
				keys[(j/quadWidth*page+slot)*quadWidth+j%quadWidth] = c
			}
			w.quantise(ws, head, r.vx[(s.token+i)*r.kvdim+h*d:][:d], &v)
			for j, c := range code {
				values[(slot/quadWidth*dim+j)*quadWidth+slot%quadWidth] = c
			}
			scales[slot], scales[page+slot] = k.scale, v.scale
		}
	}
}

// quantise rounds a head to codes. One whose size is no multiple of a block goes through a padded copy.
func (w *writeTask) quantise(ws *scratch, dst unsafe.Pointer, x []float32, out *quantised) {
	if len(x)%lanes != 0 {
		copy(ws.head, x)
		clear(ws.head[len(x):])
		x = ws.head[:roundUp(len(x), lanes)]
	}
	w.r.k8.quantise(len(x)/lanes, dst, ptr(x, 0), out)
}
