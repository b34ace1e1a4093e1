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
	scores []float32 // [16][128]
	probs  []float32 // [16][128] codes
	out    []float32 // [16][dim] int32
	acc    []float32 // [itemStrips*16][dim]
	rows   [itemStrips]*rows8
	span   *span8
	head   []float32 // codes of one head
}

func newScratch8(dim int) scratch8 {
	w := scratch8{
		q:      aligned(itemStrips * stripRows8 * roundUp(dim, queryUnit) / 4),
		scores: aligned(stripRows8 * spanTokens),
		probs:  aligned(stripRows8 * spanTokens / 4),
		out:    aligned(stripRows8 * dim),
		acc:    aligned(itemStrips * stripRows8 * dim),
		span:   new(span8),
		head:   aligned(roundUp(dim, queryUnit)),
	}
	for i := range w.rows {
		w.rows[i] = (*rows8)(unsafe.Pointer(&aligned(int(unsafe.Sizeof(rows8{})) / 4)[0]))
	}
	return w
}

// codes computes up to itemStrips strips of rows in integers.
func (a *attendTask) codes(ws *scratch, t *queryStrip, head int) {
	const page = device.PageTokens
	r, c, w := a.r, a.r.cache, &ws.int8
	rows := r.attention.rows[t.first:][:t.rows]
	a.beginCodes(w, t, rows, head)
	end := min(t.to, t.newest/page+1)
	for first := max(t.from, a.oldest(t.oldest)/page) / spanPages * spanPages; first < end; first += spanPages {
		n := min(spanPages, end-first)
		for i := range n {
			w.span[i] = c.page8(a.layer, t.pages[first+i], head)
		}
		for strip := 0; strip*stripRows8 < len(rows); strip++ {
			part := rows[strip*stripRows8 : min((strip+1)*stripRows8, len(rows))]
			a.spanOf(w, part, strip, first*page, n)
		}
	}
	if t.keep {
		for i := range rows {
			st, at := w.rows[i/stripRows8], int(rows[i].carry)*r.shape.KVHeads+head
			r.attention.carry.max[at], r.attention.carry.sum[at] = st.max[i%stripRows8], st.sum[i%stripRows8]
			copy(r.attention.carry.acc[at*c.vdim:][:c.vdim], w.acc[i*c.vdim:])
		}
		return
	}
	a.storeCodes(w, rows, head)
}

// spanOf folds n pages, from the key at position first on, into a strip's rows, where these see any of them.
func (a *attendTask) spanOf(w *scratch8, rows []queryRow, strip, first, n int) {
	const page = device.PageTokens
	k, dim, st := a.r.k8, a.r.cache.vdim, w.rows[strip]
	oldest, newest := int(rows[0].pos), int(rows[0].pos)
	for i := range rows {
		oldest, newest = min(oldest, int(rows[i].pos)), max(newest, int(rows[i].pos))
	}
	n = min(n, newest/page+1-first/page)
	if n <= 0 || a.oldest(oldest) >= first+n*page {
		return
	}
	masked := 0
	if first+n*page > oldest+1 || first < a.oldest(newest) {
		masked = 1
		for i := range rows {
			pos := int(rows[i].pos)
			st.low[i], st.high[i] = int32(a.oldest(pos)-first), int32(pos+1-first)
		}
	}
	ldq := roundUp(dim, queryUnit)
	q := unsafe.Add(ptr(w.q, 0), strip*stripRows8*ldq)
	k.scores(len(rows), n, dim, ldq, q, w.span, ptr(w.scores, 0), st)
	k.softmax(len(rows), n, scalesAt(dim), ptr(w.scores, 0), ptr(w.probs, 0), w.span, st, masked)
	k.values(len(rows), n, dim, ptr(w.probs, 0), w.span, ptr(w.out, 0))
	k.add(len(rows), dim, ptr(w.out, 0), ptr(w.acc, strip*stripRows8*dim), st)
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
		q, st, j := &r.codes.of[from], w.rows[i/stripRows8], i%stripRows8
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
			w.rows[strip].start(stripRows8)
		}
	}
}

// storeCodes divides by the sums and writes the rows of the attention output.
func (a *attendTask) storeCodes(w *scratch8, rows []queryRow, head int) {
	r, dim := a.r, a.r.cache.vdim
	d, group := r.shape.HeadDim, r.shape.Heads/r.shape.KVHeads
	for i := range rows {
		var factor [4]float32
		factor[0] = 1 / w.rows[i/stripRows8].sum[i%stripRows8]
		r.k.scaleRows(1, dim/lanes, ptr(w.acc, i*dim), dim*4, unsafe.Pointer(&factor))
		copy(r.attnRows[int(rows[i].out)*r.qdim+(head*group+int(rows[i].head))*d:][:d], w.acc[i*dim:])
	}
}
