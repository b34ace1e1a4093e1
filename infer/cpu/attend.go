package cpu

import (
	"math"
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

// queryTile is a strip of query rows of one sequence: row i is head (first+i)%group of the group and token (first+i)/group of
// the span. The result of token j of the span goes to row out+j.
type queryTile struct {
	seq, first, rows, out int
}

// attendTask computes attention; an item is one strip of queries for one KV head.
type attendTask struct {
	r     *runner
	layer int
	p     *device.Attention
}

// maskedMax is the running maximum before any key: finite, so that a page masked for a whole row gives exp(0) = 1 as its
// correction and leaves the row alone.
const maskedMax = -math.MaxFloat32

// Attend runs over all strips, the last ones of a sequence, which see most pages, with the others.
func (r *runner) Attend(layer int, p *device.Attention) {
	r.attend.task.layer, r.attend.task.p = layer, p
	r.dev.pool.run(&r.attend.self, len(r.tiles)*r.shape.KVHeads)
}

func (a *attendTask) do(worker, item int) {
	r, w, c := a.r, &a.r.work[worker], a.r.cache
	t := r.tiles[item/r.shape.KVHeads]
	head := item % r.shape.KVHeads
	seq := &r.batch.Seqs[t.seq]
	group := r.shape.Heads / r.shape.KVHeads
	a.packQueries(w, t, seq, head)
	clear(w.acc)
	for i := range t.rows {
		w.state[i] = state{max: maskedMax}
	}
	const page = device.PageTokens
	firstPos := seq.Past + t.first/group
	lastPos := seq.Past + (t.first+t.rows-1)/group
	step := r.k.stripBytes()
	for p := a.oldest(firstPos) / page; p <= lastPos/page; p++ {
		keys, values := c.page(a.layer, seq.Pages[p], head)
		next := keys // fetched while the values are used, as the values are while the keys are used
		if p < lastPos/page {
			next, _ = c.page(a.layer, seq.Pages[p+1], head)
		}
		r.k.tile(t.rows, c.kdim/lanes, ptr(w.q, 0), ptr(keys, 0), ptr(w.scores, 0), page*4, page*4, 0, address(values, 0), cacheLine)
		if (p+1)*page > firstPos+1 || p*page < a.oldest(lastPos) {
			a.mask(w, t, seq.Past-p*page, group)
		}
		r.k.softmax(t.rows, ptr(w.scores, 0), ptr(w.probs, 0), unsafe.Pointer(&w.state), a.p.Scale, step)
		r.k.scaleRows(t.rows, c.vdim/lanes, ptr(w.acc, 0), c.vdim*4, unsafe.Pointer(&w.state[0].alpha))
		for col := 0; col < c.vdim; col += panelCols {
			r.k.tile(t.rows, page/lanes, ptr(w.probs, 0), ptr(values, col), ptr(w.acc, col), c.vdim*4, c.vdim*4, 1, address(next, col*page), cacheLine)
		}
	}
	a.store(w, t, head, group)
}

// oldest is the first position that a query at pos sees.
func (a *attendTask) oldest(pos int) int {
	if a.p.Window > 0 {
		return max(0, pos-a.p.Window+1)
	}
	return 0
}

// packQueries copies the strip's queries to scratch.
func (a *attendTask) packQueries(w *scratch, t queryTile, seq *device.Seq, head int) {
	r := a.r
	d, group := r.shape.HeadDim, r.shape.Heads/r.shape.KVHeads
	for i := range t.rows {
		token := seq.Start + (t.first+i)/group
		q := r.q[token*r.qdim+(head*group+(t.first+i)%group)*d:][:d]
		for j := 0; j < d; j += lanes {
			copy(w.q[j*r.k.strip+i*lanes:][:lanes], q[j:])
		}
	}
}

// mask sets the scores of keys that a row does not see to minus infinity. offset is the position of the span's first token
// relative to the page.
func (a *attendTask) mask(w *scratch, t queryTile, offset, group int) {
	never := float32(math.Inf(-1))
	for i := range t.rows {
		pos := offset + (t.first+i)/group // of the query, relative to the page
		s := w.scores[i*device.PageTokens:][:device.PageTokens]
		for j := max(0, pos+1); j < len(s); j++ {
			s[j] = never
		}
		if a.p.Window > 0 {
			for j := range min(len(s), max(0, pos-a.p.Window+1)) {
				s[j] = never
			}
		}
	}
}

// store divides by the sums and writes the strip's rows to the packed attention output.
func (a *attendTask) store(w *scratch, t queryTile, head, group int) {
	r, vdim := a.r, a.r.cache.vdim
	d := r.shape.HeadDim
	for i := range t.rows {
		w.state[i].alpha = 1 / w.state[i].sum
	}
	r.k.scaleRows(t.rows, vdim/lanes, ptr(w.acc, 0), vdim*4, unsafe.Pointer(&w.state[0].alpha))
	for i := range t.rows {
		strip, row := r.attn.place(t.out + (t.first+i)/group)
		col := (head*group + (t.first+i)%group) * d
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
