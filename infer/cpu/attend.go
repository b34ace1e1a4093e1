package cpu

import (
	"math"
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

// attendTask computes attention; an item is one strip of queries for one KV head.
type attendTask struct {
	r      *runner
	layer  int
	p      *device.Attention
	strips []queryStrip
}

// maskedMax is the running maximum before any key: finite, so that a page masked for a whole row gives exp(0) = 1 as its
// correction and leaves the row alone.
const maskedMax = -math.MaxFloat32

// Attend runs over the strips: those of shared pages first.
func (r *runner) Attend(layer int, p *device.Attention) {
	a := &r.attend.task
	a.layer, a.p = layer, p
	for _, strips := range [][]queryStrip{r.attention.shared, r.attention.own} {
		a.strips = strips
		r.dev.pool.run(&r.attend.self, len(strips)*r.shape.KVHeads)
	}
}

// do takes one head after the other, so that threads find each other's keys and values in a shared cache, and the last strips,
// which see most, first.
func (a *attendTask) do(worker, item int) {
	n := len(a.strips)
	head, t := item/n, &a.strips[n-1-item%n]
	if a.r.cache.codes {
		a.codes(&a.r.work[worker], t, head)
		return
	}
	a.floats(&a.r.work[worker], t, head)
}

// floats computes a strip in float32.
func (a *attendTask) floats(w *scratch, t *queryStrip, head int) {
	r, c := a.r, a.r.cache
	rows := r.attention.rows[t.first:][:t.rows]
	a.packQueries(w, rows, head)
	a.begin(w, t, rows, head)
	const page = device.PageTokens
	step := r.k.stripBytes()
	end := min(t.to, t.newest/page+1)
	for p := max(t.from, a.oldest(t.oldest)/page); p < end; p++ {
		keys, values := c.page(a.layer, t.pages[p], head)
		next := keys // fetched while the values are used, as the values are while the keys are used
		if p+1 < end {
			next, _ = c.page(a.layer, t.pages[p+1], head)
		}
		r.k.tile(t.rows, c.kdim/lanes, ptr(w.q, 0), ptr(keys, 0), ptr(w.scores, 0), page*4, page*4, 0, address(values, 0), cacheLine)
		if (p+1)*page > t.oldest+1 || p*page < a.oldest(t.newest) {
			a.mask(w, rows, p*page)
		}
		r.k.softmax(t.rows, ptr(w.scores, 0), ptr(w.probs, 0), unsafe.Pointer(&w.state), a.p.Scale, step)
		r.k.scaleRows(t.rows, c.vdim/lanes, ptr(w.acc, 0), c.vdim*4, unsafe.Pointer(&w.state[0].alpha))
		for col := 0; col < c.vdim; col += panelCols {
			r.k.tile(t.rows, page/lanes, ptr(w.probs, 0), ptr(values, col), ptr(w.acc, col), c.vdim*4, c.vdim*4, 1, address(next, col*page), cacheLine)
		}
	}
	if t.keep {
		for i := range rows {
			at := int(rows[i].carry)*r.shape.KVHeads + head
			r.attention.carry.max[at], r.attention.carry.sum[at] = w.state[i].max, w.state[i].sum
			copy(r.attention.carry.acc[at*c.vdim:][:c.vdim], w.acc[i*c.vdim:])
		}
		return
	}
	a.store(w, rows, head)
}

// begin readies the states of a strip.
func (a *attendTask) begin(w *scratch, t *queryStrip, rows []queryRow, head int) {
	if !t.resume {
		clear(w.acc)
		for i := range rows {
			w.state[i] = state{max: maskedMax}
		}
		return
	}
	carry, vdim := &a.r.attention.carry, a.r.cache.vdim
	for i := range rows {
		at := int(rows[i].carry)*a.r.shape.KVHeads + head
		w.state[i] = state{max: carry.max[at], sum: carry.sum[at]}
		copy(w.acc[i*vdim:][:vdim], carry.acc[at*vdim:])
	}
}

// oldest is the first position that a query at pos sees.
func (a *attendTask) oldest(pos int) int {
	if a.p.Window > 0 {
		return max(0, pos-a.p.Window+1)
	}
	return 0
}

// packQueries copies the strip's queries to scratch.
func (a *attendTask) packQueries(w *scratch, rows []queryRow, head int) {
	r := a.r
	d, group := r.shape.HeadDim, r.shape.Heads/r.shape.KVHeads
	for i := range rows {
		q := r.q[int(rows[i].token)*r.qdim+(head*group+int(rows[i].head))*d:][:d]
		for j := 0; j < d; j += lanes {
			copy(w.q[j*r.k.strip+i*lanes:][:lanes], q[j:])
		}
	}
}

// mask sets the scores of keys that a row does not see to minus infinity. first is the position of the page's first key.
func (a *attendTask) mask(w *scratch, rows []queryRow, first int) {
	never := float32(math.Inf(-1))
	for i := range rows {
		pos := int(rows[i].pos)
		s := w.scores[i*device.PageTokens:][:device.PageTokens]
		for j := max(0, pos+1-first); j < len(s); j++ {
			s[j] = never
		}
		for j := range min(len(s), max(0, a.oldest(pos)-first)) {
			s[j] = never
		}
	}
}

// store divides by the sums and writes the strip's rows to the packed attention output.
func (a *attendTask) store(w *scratch, rows []queryRow, head int) {
	r, vdim := a.r, a.r.cache.vdim
	d, group := r.shape.HeadDim, r.shape.Heads/r.shape.KVHeads
	for i := range rows {
		w.state[i].alpha = 1 / w.state[i].sum
	}
	r.k.scaleRows(len(rows), vdim/lanes, ptr(w.acc, 0), vdim*4, unsafe.Pointer(&w.state[0].alpha))
	for i := range rows {
		strip, row := r.attn.place(int(rows[i].out))
		col := (head*group + int(rows[i].head)) * d
		src := w.acc[i*vdim:][:d]
		if d%lanes == 0 {
			for j := 0; j < d; j += lanes {
				copy(r.attn.data[r.attn.at(strip, row, col+j):][:lanes], src[j:])
			}
			continue
		}
		for j, v := range src {
			k := col + j
			r.attn.data[r.attn.at(strip, row, k/lanes*lanes)+k%lanes] = v
		}
	}
}
