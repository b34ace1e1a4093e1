package cpu

import (
	"github.com/batchmill/batchmill/infer/device"
)

// ropeTable holds cosines and sines for the tokens of a batch, computed in float64 and rounded once.
type ropeTable struct {
	rope     *device.Rope
	cos, sin []float32 // [tokens][half]
}

func (t *ropeTable) half() int { return len(t.rope.InvFreq) }

func (t *ropeTable) grow(tokens int) {
	t.cos, t.sin = aligned(tokens*t.half()), aligned(tokens*t.half())
}

// anglesTask fills the tables; an item is a span.
type anglesTask struct{ r *runner }

func (a *anglesTask) do(_, item int) {
	s := a.r.spans[item]
	for i := range a.r.ropes {
		t := &a.r.ropes[i]
		h := t.half()
		for tok := s.token; tok < s.token+s.n; tok++ {
			pos := float64(a.r.batch.Positions[tok])
			for j, f := range t.rope.InvFreq {
				sin, cos := sincos(float64(pos * f))
				t.cos[tok*h+j] = float32(cos * t.rope.Scale)
				t.sin[tok*h+j] = float32(sin * t.rope.Scale)
			}
		}
	}
}

// writeTask norms and rotates the queries and keys of a span and writes keys and values to the cache; an item is a span, so
// that one thread alone writes a page.
type writeTask struct {
	r     *runner
	layer int
	qkv   *device.QKV
	rope  *ropeTable
}

// writeKV norms, rotates and stores what the projections have made.
func (r *runner) writeKV(layer int, p *device.QKV) {
	w := &r.write.task
	w.layer, w.qkv, w.rope = layer, p, nil
	for i := range r.ropes {
		if p.Rope != nil && r.ropes[i].rope == p.Rope {
			w.rope = &r.ropes[i]
		}
	}
	r.dev.pool.run(&r.write.self, len(r.spans))
}

func (w *writeTask) do(worker, item int) {
	r := w.r
	s := r.spans[item]
	ws := &r.work[worker]
	d := r.shape.HeadDim
	if r.cache.codes {
		w.touch(&s)
	}
	for i := range s.n {
		for h := range r.shape.KVHeads {
			w.prepare(r.kx[(s.token+i)*r.kvdim+h*d:][:d], s.token+i, w.qkv.KNorm, ws.head)
		}
		for h := range r.shape.Heads {
			w.prepare(r.q[(s.token+i)*r.qdim+h*d:][:d], s.token+i, w.qkv.QNorm, ws.head)
		}
	}
	if r.cache.codes {
		w.writeCodes(ws, &s)
		return
	}
	for h := range r.shape.KVHeads {
		keys, values := r.cache.page(w.layer, s.page, h)
		if s.slot == 0 {
			clear(values)
		}
		for i := range s.n {
			at, slot := (s.token+i)*r.kvdim+h*d, s.slot+i
			for j, v := range r.kx[at:][:d] {
				keys[j*device.PageTokens+slot] = v
			}
			copy(values[slot*r.cache.vdim:][:d], r.vx[at:][:d])
		}
	}
}

// prepare norms and rotates one head in place; tmp has room for a padded head.
func (w *writeTask) prepare(x []float32, token int, norm *device.Norm, tmp []float32) {
	if norm != nil {
		w.headNorm(x, norm, tmp)
	}
	if w.rope == nil {
		return
	}
	h := w.rope.half()
	cos, sin := w.rope.cos[token*h:][:h], w.rope.sin[token*h:][:h]
	if h%lanes == 0 {
		w.r.k.rotate(h/lanes, ptr(x, 0), ptr(x, h), ptr(cos, 0), ptr(sin, 0))
		return
	}
	rotateSlices(x[:h], x[h:2*h], cos, sin)
}

// headNorm norms one head through the padded copy tmp, whose tail holds zeros.
func (w *writeTask) headNorm(x []float32, norm *device.Norm, tmp []float32) {
	k := w.r.k
	copy(tmp, x)
	clear(tmp[len(x):])
	blocks := roundUp(len(x), lanes) / lanes
	scale := inverse(k.sumSquares(blocks, ptr(tmp, 0)), len(x), float64(norm.Eps))
	k.normRow(blocks, ptr(tmp, 0), ptr(tmp, 0), ptr(asVector(norm.Weight).v, 0), scale, lanes*4)
	copy(x, tmp)
}
