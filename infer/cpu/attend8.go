package cpu

import (
	"math"
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

// Integer attention. Queries and keys (after norm and rotation) and values are rounded to 8 bits with a scale for each token and
// head. The unit of reduction is a span of 128 keys, aligned to the sequence's start. For a row and a span:
//
//	s    = (float32(q . k) * scale of the key) * c      c = scale of the query * scale of attention * log2(e)
//	m'   = max(m, max s), alpha = 2^(m-m'), p = 2^(s-m')
//	sum' = sum*alpha + sum of p                         p in 16 lanes (key mod 16), folded by one tree
//	w    = p * scale of the value, amax = max w         codes = w*(127/amax), half to even
//	acc' = float32(codes . v) * (amax/127) + acc*alpha
//
// and acc/sum in the end. The products of codes are exact, so nothing depends on the order of their sums.

// scratch8 is one worker's memory for integer attention.
type scratch8 struct {
	q      []float32 // [itemStrips*16][ldq] codes
	acc    []float32 // [itemStrips*16][dim]
	factor []float32 // [itemStrips*16][4], as scaleRows takes them
	head   []float32 // codes of one head
	strips [itemStrips]strip8
	todo   [itemStrips]strip8 // of a span
	span   span8
	pad    pad8
}

func newScratch8(dim int) *scratch8 {
	ldq := roundUp(dim, queryUnit)
	w := &scratch8{
		q:      aligned(itemStrips * stripRows8 * ldq / 4),
		acc:    aligned(itemStrips * stripRows8 * dim),
		factor: aligned(itemStrips * stripRows8 * 4),
		head:   aligned(ldq / 4),
		pad: pad8{
			scores: ptr(aligned(stripRows8*spanTokens), 0),
			probs:  ptr(aligned(stripRows8*spanTokens/4), 0),
			out:    ptr(aligned(stripRows8*dim), 0),
		},
	}
	for i := range w.strips {
		w.strips[i] = strip8{
			q: ptr(w.q, i*stripRows8*ldq/4), acc: ptr(w.acc, i*stripRows8*dim),
			st: (*rows8)(unsafe.Pointer(&aligned(int(unsafe.Sizeof(rows8{})) / 4)[0])),
		}
	}
	return w
}

// codes computes up to itemStrips strips of rows in integers.
func (a *attendTask) codes(ws *scratch, t *queryStrip, head int) {
	const page = device.PageTokens
	r, c, w := a.r, a.r.cache, ws.int8
	rows := r.attention.rows[t.first:][:t.rows]
	strips := (len(rows) + stripRows8 - 1) / stripRows8
	a.beginCodes(w, t, rows, head)
	end := min(t.to, t.newest/page+1)
	for first := max(t.from, a.oldest(t.oldest)/page) / spanPages * spanPages; first < end; first += spanPages {
		n := min(spanPages, end-first)
		for i := range n {
			w.span[i] = c.page8(a.layer, t.pages[first+i], head)
		}
		todo := 0
		for i := range strips {
			w.strips[i].rows = min(stripRows8, len(rows)-i*stripRows8)
			if a.see(&w.strips[i], rows[i*stripRows8:], first*page, n) {
				w.todo[todo] = w.strips[i]
				todo++
			}
		}
		if todo > 0 {
			r.k8.span(w.todo[:todo], c.vdim, roundUp(c.vdim, queryUnit), &w.span, &w.pad)
		}
	}
	if t.keep {
		for i := range rows {
			st, at := w.strips[i/stripRows8].st, int(rows[i].carry)*r.shape.KVHeads+head
			r.attention.carry.max[at], r.attention.carry.sum[at] = st.max[i%stripRows8], st.sum[i%stripRows8]
			copy(r.attention.carry.acc[at*c.vdim:][:c.vdim], w.acc[i*c.vdim:])
		}
		return
	}
	a.storeCodes(w, rows, head)
}

// see sets how much of n pages, from the key at position first on, a strip's rows see, and tells whether it is anything.
func (a *attendTask) see(s *strip8, rows []queryRow, first, n int) bool {
	const page = device.PageTokens
	rows = rows[:s.rows]
	oldest, newest := int(rows[0].pos), int(rows[0].pos)
	for i := range rows {
		oldest, newest = min(oldest, int(rows[i].pos)), max(newest, int(rows[i].pos))
	}
	s.pages, s.masked = min(n, newest/page+1-first/page), 0
	if s.pages <= 0 || a.oldest(oldest) >= first+s.pages*page {
		return false
	}
	if first+s.pages*page > oldest+1 || first < a.oldest(newest) {
		s.masked = 1
		for i := range rows {
			pos := int(rows[i].pos)
			s.st.low[i], s.st.high[i] = int32(a.oldest(pos)-first), int32(pos+1-first)
		}
	}
	return true
}

// beginCodes copies the queries of an item to scratch and readies their states.
func (a *attendTask) beginCodes(w *scratch8, t *queryStrip, rows []queryRow, head int) {
	r, dim := a.r, a.r.cache.vdim
	group := r.shape.Heads / r.shape.KVHeads
	scale := float32(float64(a.p.Scale) * math.Log2E)
	ldq := roundUp(dim, queryUnit)
	for i := range rows {
		from := int(rows[i].token)*r.shape.Heads + head*group + int(rows[i].head)
		copy(w.q[i*ldq/4:][:ldq/4], r.codes.q[from*ldq/4:])
		q, st, j := &r.codes.of[from], w.strips[i/stripRows8].st, i%stripRows8
		st.c[j], st.offset[j] = q.scale*scale, -128*q.sum
		if !t.resume {
			continue
		}
		at := int(rows[i].carry)*r.shape.KVHeads + head
		st.max[j], st.sum[j] = r.attention.carry.max[at], r.attention.carry.sum[at]
		copy(w.acc[i*dim:][:dim], r.attention.carry.acc[at*dim:])
	}
	if !t.resume {
		clear(w.acc[:len(rows)*dim])
		for strip := range (len(rows) + stripRows8 - 1) / stripRows8 {
			w.strips[strip].st.start(stripRows8)
		}
	}
}

// storeCodes divides by the sums and writes the rows of the attention output.
func (a *attendTask) storeCodes(w *scratch8, rows []queryRow, head int) {
	r, dim := a.r, a.r.cache.vdim
	d, group := r.shape.HeadDim, r.shape.Heads/r.shape.KVHeads
	for i := range rows {
		w.factor[4*i] = 1 / w.strips[i/stripRows8].st.sum[i%stripRows8]
	}
	r.k.scaleRows(len(rows), dim/lanes, ptr(w.acc, 0), dim*4, ptr(w.factor, 0))
	for i := range rows {
		copy(r.attnRows[int(rows[i].out)*r.qdim+(head*group+int(rows[i].head))*d:][:d], w.acc[i*dim:])
	}
}
