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
// and acc/sum in the end. The products of codes are exact, so nothing depends on the order of their sums. c is not negative, so that
// the largest s is that of the largest q . k * scale of the key: the maximum is taken before the product with c.

// scratch8 is one worker's memory for integer attention.
type scratch8 struct {
	q      []float32 // [itemStrips*16][ldq] codes
	acc    []float32 // [itemStrips*16][dim]
	key    []float32 // codes of one head, zero from its size on
	value  []float32
	of     [2]quantised
	strips [itemStrips]strip8
	ranges [itemStrips]struct{ oldest, newest int } // positions of a strip's rows
	todo   [itemStrips]strip8                       // of a span
	span   span8
	pad    pad8
	dst    [stripRows8]unsafe.Pointer
}

func newScratch8(dim int) *scratch8 {
	ldq := roundUp(dim, queryUnit)
	w := &scratch8{
		q:     aligned(itemStrips * stripRows8 * ldq / 4),
		acc:   aligned(itemStrips * stripRows8 * dim),
		key:   aligned(ldq / 4),
		value: aligned(ldq / 4),
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
			if a.see(w, i, rows[i*stripRows8:], first*page, n) {
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

// see sets how much of n pages, from the key at position first on, strip i sees, and tells whether it is anything.
func (a *attendTask) see(w *scratch8, i int, rows []queryRow, first, n int) bool {
	const page = device.PageTokens
	s, of := &w.strips[i], &w.ranges[i]
	s.pages, s.masked = min(n, of.newest/page+1-first/page), maskNone
	if s.pages <= 0 || a.oldest(of.oldest) >= first+s.pages*page {
		return false
	}
	switch {
	case first < a.oldest(of.newest):
		s.masked = maskBoth
	case first+s.pages*page > of.oldest+1:
		s.masked = maskHigh
	default:
		return true
	}
	for j := range rows[:s.rows] {
		pos := int(rows[j].pos)
		s.st.low[j], s.st.high[j] = int32(a.oldest(pos)-first), int32(pos+1-first)
	}
	return true
}

// beginCodes copies the queries of an item to scratch and readies their states.
func (a *attendTask) beginCodes(w *scratch8, t *queryStrip, rows []queryRow, head int) {
	r, dim := a.r, a.r.cache.vdim
	group := r.shape.Heads / r.shape.KVHeads
	scale := float32(float64(a.p.Scale) * math.Log2E)
	ldq := roundUp(dim, queryUnit)
	for first := 0; first < len(rows); first += stripRows8 {
		strip := first / stripRows8
		s, of := &w.strips[strip], &w.ranges[strip]
		s.rows = min(stripRows8, len(rows)-first)
		of.oldest, of.newest = int(rows[first].pos), int(rows[first].pos)
		for j := range rows[first : first+s.rows] {
			row := &rows[first+j]
			of.oldest, of.newest = min(of.oldest, int(row.pos)), max(of.newest, int(row.pos))
			from := int(row.token)*r.shape.Heads + head*group + int(row.head)
			for k := 0; k < ldq; k += queryUnit { // by hand: a call for 64 bytes costs more than copying them
				*(*[queryUnit]byte)(unsafe.Add(s.q, j*ldq+k)) = *(*[queryUnit]byte)(ptr(r.codes.q, (from*ldq+k)/4))
			}
			q := &r.codes.of[from]
			s.st.c[j], s.st.offset[j] = q.scale*scale, -128*q.sum
			if t.resume {
				at := int(row.carry)*r.shape.KVHeads + head
				s.st.max[j], s.st.sum[j] = r.attention.carry.max[at], r.attention.carry.sum[at]
				copy(w.acc[(first+j)*dim:][:dim], r.attention.carry.acc[at*dim:])
			}
		}
		if !t.resume {
			s.st.start(s.rows)
			clear(w.acc[first*dim : (first+s.rows)*dim])
		}
	}
}

// storeCodes divides by the sums and writes the rows of the attention output.
func (a *attendTask) storeCodes(w *scratch8, rows []queryRow, head int) {
	r, dim := a.r, a.r.cache.vdim
	d, group := r.shape.HeadDim, r.shape.Heads/r.shape.KVHeads
	for first := 0; first < len(rows); first += stripRows8 {
		s := &w.strips[first/stripRows8]
		part := rows[first : first+s.rows]
		for j := range part {
			w.dst[j] = ptr(r.attnRows, int(part[j].out)*r.qdim+(head*group+int(part[j].head))*d)
			if d%lanes != 0 { // a whole number of blocks would reach into the next head
				w.dst[j] = unsafe.Add(s.acc, j*dim*4)
			}
		}
		r.k8.finish(s.rows, roundUp(d, lanes)/lanes, dim*4, s.acc, s.st, &w.dst[0])
		if d%lanes != 0 {
			for j := range part {
				copy(r.attnRows[int(part[j].out)*r.qdim+(head*group+int(part[j].head))*d:][:d], w.acc[(first+j)*dim:])
			}
		}
	}
}
