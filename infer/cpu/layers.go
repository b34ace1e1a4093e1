package cpu

import "github.com/batchmill/batchmill/infer/device"

// The operations with weights. A product is made of float32 or of integers as its weight says, and activations are brought into the
// form, or the two forms, that the weights of an operation want.

// Norm: input = norm(residual). It is computed when the next operation says in what form.
func (r *runner) Norm(n device.Norm) {
	r.norm.task.w, r.norm.task.eps = asVector(n.Weight), float64(n.Eps)
	r.unnormed = true
}

// normInput computes the norm in the forms that are wanted, unless nothing has been normed since.
func (r *runner) normInput(floats, integers bool) {
	if !r.unnormed {
		return
	}
	r.unnormed = false
	if floats {
		r.norm.task.to = nil
		r.dev.pool.run(&r.norm.self, r.input.count)
	}
	if integers {
		r.norm.task.to = &r.inputQ
		r.dev.pool.run(&r.norm.self, r.inputQ.count)
	}
}

// products runs the products of some layers with the same activations; the two kinds of weights one after the other.
func (r *runner) products(a *strips, q *qStrips, width int, logits [][]float32, parts ...gemmPart) {
	f, i := &r.gemm.task, &r.qgemm.task
	f.gate, f.count, f.logits = nil, 0, logits
	i.gate, i.count, i.logits = nil, 0, logits
	for _, p := range parts {
		if p.w.quantised {
			i.parts[i.count] = p
			i.count++
		} else {
			f.parts[f.count] = p
			f.count++
		}
	}
	if f.count > 0 {
		f.start(a, width)
	}
	if i.count > 0 {
		i.start(q)
	}
	f.logits, i.logits = nil, nil
}

// QKV: the three projections, then norm, rotation and the write to the cache.
func (r *runner) QKV(layer int, p *device.QKV) {
	kinds := [3]bool{qLinear(p.Q), qLinear(p.K), qLinear(p.V)}
	r.normInput(!(kinds[0] && kinds[1] && kinds[2]), kinds[0] || kinds[1] || kinds[2])
	r.products(&r.input, &r.inputQ, r.hidden, nil, part(p.Q, r.q, r.qdim, false), part(p.K, r.kx, r.kvdim, false), part(p.V, r.vx, r.kvdim, false))
	r.writeKV(layer, p)
}

// Output: residual += W attention + b.
func (r *runner) Output(l device.Linear) {
	switch inRows := r.dev.activations == ActivationsInt8; {
	case qLinear(l) && inRows:
		r.quantise(&r.attnQ, r.attnRows, r.qdim, nil)
	case qLinear(l):
		r.quantise(&r.attnQ, nil, 0, &r.attn)
	case inRows:
		r.packRows(&r.attn, r.attnRows, r.qdim)
	}
	r.products(&r.attn, &r.attnQ, r.qdim, nil, part(l, r.stream, r.hidden, true))
}

// packRows copies rows into float strips.
func (r *runner) packRows(to *strips, rows []float32, ld int) {
	for token := range to.n {
		strip, row := to.place(token)
		for col := 0; col < to.width; col += lanes {
			copy(to.data[to.at(strip, row, col):][:lanes], rows[token*ld+col:])
		}
	}
}

// GateUp: hidden = silu(gate input) * (up input). A pair of which only one is quantised is multiplied as float32.
func (r *runner) GateUp(gate, up device.Linear) {
	integers := qLinear(gate) && qLinear(up)
	r.normInput(!integers, integers)
	r.gatedInts = integers
	if integers {
		r.qgemm.task.pair(gate, up)
		r.qgemm.task.start(&r.inputQ)
		return
	}
	r.gemm.task.pair(gate, up)
	r.gemm.task.start(&r.input, r.hidden)
}

// Down: residual += W hidden + b.
func (r *runner) Down(l device.Linear) {
	if qLinear(l) && !r.gatedInts {
		r.quantise(&r.mlpQ, nil, 0, &r.mlp)
	}
	r.products(&r.mlp, &r.mlpQ, r.mid, nil, part(l, r.stream, r.hidden, true))
}

// Head: the logits of the rows that Narrow has left.
func (r *runner) Head(n device.Norm, l device.Linear, logits [][]float32) error {
	if len(r.batch.Logits) == 0 {
		return nil
	}
	r.Norm(n)
	r.normInput(!qLinear(l), qLinear(l))
	r.products(&r.input, &r.inputQ, r.hidden, logits, part(l, nil, 0, false))
	return nil
}

// resizeStrips prepares the activations for n tokens.
func (r *runner) resizeStrips(n int) {
	r.input.resize(n)
	r.attn.resize(n)
	r.mlp.resize(n)
	if r.dev.activations != ActivationsF32 {
		r.inputQ.resize(n)
		r.attnQ.resize(n)
		r.mlpQ.resize(n)
	}
}
