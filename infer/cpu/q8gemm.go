package cpu

import (
	"github.com/batchmill/batchmill/infer/device"
)

const (
	// qActivations bounds the activations that are multiplied with one panel before the next comes: they are read from the
	// second-level cache, together with the panel.
	qActivations = 1 << 20
	// qGroupBytes bounds the stored panels of one item, as groupBytes does for float32.
	qGroupBytes = 256 << 10
)

// qTask multiplies strips of integers with the panels of one or more quantised weights. An item is a group of panels (for gate and
// up, of both) times one block of strips.
type qTask struct {
	r *runner
	a *qStrips
	productSet
}

// qScratchpad is one worker's memory for these products.
type qScratchpad struct {
	panel, second qPanel
	args          qArgs
	few           fewArgs
	quant         quantArgs
	sums          []float32 // qScratch bytes
	tile, other   []float32 // [tokens of a block][32]
	gated         []float32 // [2][strip][16]
	stored        []float32 // a panel of a streamed weight
	row           []float32 // [hidden]: a normed row
}

// start runs the region for the parts that have been set.
func (g *qTask) start(a *qStrips) {
	g.a = a
	if a.n == 0 {
		return
	}
	g.panels = 0
	stored, streamed := 0, false
	if g.gate != nil {
		g.panels = g.gate.panels
		stored = g.gate.q.total + g.up.q.total
		streamed = g.gate.stored == nil || g.up.stored == nil
	}
	for i := range g.count {
		m := g.parts[i].w
		g.panels += m.panels
		stored = max(stored, m.q.total)
		streamed = streamed || m.stored == nil
	}
	g.block = max(1, qActivations/(a.blocks*max(a.block, a.k.words)))
	if streamed {
		g.block = a.count // a panel is packed once
	}
	g.r.dev.pool.run(&g.r.qgemm.self, g.cut(a.count, g.r.dev.pool.workers, qGroupBytes/stored))
}

func (g *qTask) do(worker, item int) {
	block, group := item/g.groups, inLanes(item%g.groups, g.groups, g.r.dev.pool.workers)
	first := block * g.block
	last := min(first+g.block, g.a.count)
	w := &g.r.work[worker].q8
	for p := group * g.group; p < min((group+1)*g.group, g.panels); p++ {
		if g.gate != nil {
			g.gated(w, p, first, last)
			continue
		}
		part, q := g.find(p)
		g.plain(w, part, q, first, last)
	}
}

// tokens gives the tokens of strips first..last-1.
func (g *qTask) tokens(first, last int) (token, n int) {
	token = first * g.a.k.strip
	return token, min(last*g.a.k.strip, g.a.n) - token
}

// multiply runs strips from first on, n tokens in all, with panel p of m into c, whose rows are ldc bytes apart.
func (g *qTask) multiply(w *qScratchpad, panel *qPanel, m *matrix, p, first, n int, c []float32, ldc int) {
	k := g.a.k
	if k.direct != nil {
		stored := uintptr(m.storedPanel(w, p))
		l := &m.q
		w.few = fewArgs{
			low: stored, high: stored + uintptr(l.high), scale: stored + uintptr(l.scale), min: stored + uintptr(l.min),
			sub: stored + uintptr(l.sub), subMin: stored + uintptr(l.subMin), c: address(c, 0), ldc: ldc, rows: n,
		}
		g.a.few(&w.few)
		k.direct(l.form)(&w.few)
		return
	}
	nibbles := k.nibblesFor(m.q.form, g.a.wide)
	panel.expand(k, &m.q, m.storedPanel(w, p), g.a.wide)
	a := &w.args
	*a = qArgs{
		b: uintptr(panel.codes), sw: address(panel.scratch.sw, 0), min: address(panel.scratch.min, 0), sums: address(panel.scratch.sums, 0),
		c: address(c, 0), ldc: ldc, rows: n, scratch: address(w.sums, 0),
	}
	g.a.product(a, first, nibbles)
	if m.stored != nil {
		a.ahead = address(m.stored, 0) + uintptr((p+1)*m.q.total)
		a.aheadEnd = a.ahead + uintptr(m.q.total)
	}
	k.product(m.q.form, g.a.wide)(a)
}

// grow makes room for the results of n tokens.
func (w *qScratchpad) grow(n int) {
	if len(w.tile) < n*panelCols {
		w.tile, w.other = aligned(n*panelCols), aligned(n*panelCols)
	}
}

func (g *qTask) plain(w *qScratchpad, part *gemmPart, p, first, last int) {
	token, n := g.tokens(first, last)
	if g.logits == nil && !part.add {
		c := part.dst[token*part.ldc+p*panelCols:]
		g.multiply(w, &w.panel, part.w, p, first, n, c, 4*part.ldc)
		addBias(c, part.ldc, n, part.bias, p)
		return
	}
	w.grow(n)
	g.multiply(w, &w.panel, part.w, p, first, n, w.tile, 4*panelCols)
	addBias(w.tile, panelCols, n, part.bias, p)
	if g.logits == nil {
		g.r.k.addRows(n, ptr(part.dst, token*part.ldc+p*panelCols), ptr(w.tile, 0), 4*part.ldc)
		return
	}
	cols := min(panelCols, part.w.src.Out-p*panelCols)
	for r := range n {
		copy(g.logits[token+r][p*panelCols:][:cols], w.tile[r*panelCols:])
	}
}

// gated computes 32 hidden values of all tokens, which are one block of the next product's activations.
func (g *qTask) gated(w *qScratchpad, p, first, last int) {
	r := g.r
	token, n := g.tokens(first, last)
	w.grow(n)
	g.multiply(w, &w.panel, g.gate, p, first, n, w.tile, 4*panelCols)
	g.multiply(w, &w.second, g.up, p, first, n, w.other, 4*panelCols)
	addBias(w.tile, panelCols, n, g.gateBias, p)
	addBias(w.other, panelCols, n, g.upBias, p)
	for s := first; s < last; s++ {
		at, rows := g.a.span(s)
		at -= token
		half := rows * lanes * 4
		r.k.siluMul(rows, ptr(w.tile, at*panelCols), ptr(w.other, at*panelCols), ptr(w.gated, 0), half)
		r.mlpQ.fill(&w.quant, s, 0, p, rows, false, ptr(w.gated, 0), lanes*4, half)
		if r.dev.floats.Load() {
			r.keepGated(w.gated, token+at, rows, p)
		}
	}
}

// keepGated writes hidden values in float32 too, for a model whose weights are of both kinds.
func (r *runner) keepGated(gated []float32, token, rows, p int) {
	for half := range 2 {
		for i := range rows {
			strip, row := r.mlp.place(token + i)
			copy(r.mlp.data[r.mlp.at(strip, row, p*panelCols+half*lanes):][:lanes], gated[(half*rows+i)*lanes:])
		}
	}
}

// quantTask turns float32 activations into integers; an item is a strip. They lie as rows, or packed in float strips.
type quantTask struct {
	r    *runner
	to   *qStrips
	rows []float32 // [tokens][ld]
	ld   int
	from *strips // instead of rows
}

func (t *quantTask) do(worker, strip int) {
	q := &t.r.work[worker].q8.quant
	first, rows := t.to.span(strip)
	for i := range rows {
		if t.from == nil {
			t.to.row(q, first+i, ptr(t.rows, (first+i)*t.ld))
			continue
		}
		s, row := t.from.place(first + i)
		step := t.r.k.stripBytes()
		t.to.fill(q, strip, i, 0, t.to.blocks, true, ptr(t.from.data, t.from.at(s, row, 0)), 2*step, step)
	}
}

// quantise fills to from rows, or from float strips.
func (r *runner) quantise(to *qStrips, rows []float32, ld int, from *strips) {
	t := &r.quant.task
	t.to, t.rows, t.ld, t.from = to, rows, ld, from
	r.dev.pool.run(&r.quant.self, to.count)
}

// qLinear tells whether a layer's weight is multiplied as integers.
func qLinear(l device.Linear) bool { return asMatrix(l.Weight).quantised }
