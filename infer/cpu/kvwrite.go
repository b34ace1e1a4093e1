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

// pageSlot is where a token's codes go in a page.
type pageSlot struct{ keys, values, scales unsafe.Pointer }

func (w *writeTask) slot(s *span, i, head int) pageSlot {
	dim, slot := w.r.cache.vdim, s.slot+i
	p := w.r.cache.page8(w.layer, s.page, head)
	return pageSlot{
		keys:   unsafe.Add(p, slot*quadWidth),
		values: unsafe.Add(p, valuesAt(dim)+slot/quadWidth*dim*quadWidth),
		scales: unsafe.Add(p, scalesAt(dim)+4*slot),
	}
}

// touch has the memory fetched that a span of one token will write: in decoding it is far away, and every key's quad is in a line of
// its own.
func (w *writeTask) touch(s *span) {
	if w.r.k8.touch == nil || s.n > 1 {
		return
	}
	for h := range w.r.shape.KVHeads {
		to := w.slot(s, 0, h)
		w.r.k8.touch(w.r.cache.vdim, to.keys, to.values, to.scales)
	}
}

// writeCodes quantises a span's queries, keys and values and scatters the latter two to their page.
func (w *writeTask) writeCodes(ws *scratch, s *span) {
	r := w.r
	d, dim := r.shape.HeadDim, r.cache.vdim
	ldq := roundUp(d, queryUnit)
	for i := range s.n {
		for h := range r.shape.Heads {
			at := (s.token+i)*r.shape.Heads + h
			w.quantise(ws, ptr(r.codes.q, at*ldq/4), r.q[(s.token+i)*r.qdim+h*d:][:d], &r.codes.of[at])
		}
	}
	k, v := ptr(ws.int8.key, 0), ptr(ws.int8.value, 0)
	of := &ws.int8.of
	for h := range r.shape.KVHeads {
		for i := range s.n {
			w.quantise(ws, k, r.kx[(s.token+i)*r.kvdim+h*d:][:d], &of[0])
			w.quantise(ws, v, r.vx[(s.token+i)*r.kvdim+h*d:][:d], &of[1])
			to := w.slot(s, i, h)
			r.k8.place(dim, k, v, to.keys, to.values, (s.slot+i)%quadWidth)
			*(*float32)(to.scales) = of[0].scale
			*(*float32)(unsafe.Add(to.scales, 4*device.PageTokens)) = of[1].scale
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
