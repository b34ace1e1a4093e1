package cpu

import (
	"github.com/batchmill/batchmill/infer/device"
)

// blockBytes bounds the activations that are multiplied with one panel before the next panel comes. The panel, which every
// strip reads, should stay in the second-level cache; activations may come from the third. Where they are cut changes no
// result.
const blockBytes = 1536 << 10

// leastStrips are in a block even so, if there are as many: with fewer, expanding a compact panel takes more than its 2% or 3%
// of the time.
const leastStrips = 16

// groupBytes bounds the panels of one item where there are few tokens, and weights are read from memory: what a tile
// fetches ahead should be for itself, not for the thread that has the next panel.
const groupBytes = 512 << 10

// itemsPerThread is the least number of items into which a region is cut, for threads that are interrupted.
const itemsPerThread = 4

// gemmTask multiplies strips of activations with the panels of one or more weights. An item is a group of panels (for gate
// and up, of both) times one block of strips.
type gemmTask struct {
	r *runner
	a *strips
	productSet
}

// gemmPart is one weight and where its product goes.
type gemmPart struct {
	w    *matrix
	bias *vector
	dst  []float32 // [tokens][ldc]
	ldc  int
	add  bool // dst += product
}

func asMatrix(m device.Matrix) *matrix {
	if m == nil {
		return nil
	}
	return m.(*matrix)
}

func asVector(v device.Vector) *vector {
	if v == nil {
		return nil
	}
	return v.(*vector)
}

func part(l device.Linear, dst []float32, ldc int, add bool) gemmPart {
	return gemmPart{w: asMatrix(l.Weight), bias: asVector(l.Bias), dst: dst, ldc: ldc, add: add}
}

// start runs the region for the parts that have been set.
func (g *gemmTask) start(a *strips, width int) {
	g.a = a
	if a.n == 0 {
		return
	}
	g.panels = 0
	streamed := false
	if g.gate != nil {
		g.panels = g.gate.panels
		streamed = g.gate.packed == nil || g.up.packed == nil
	}
	for i := range g.count {
		g.panels += g.parts[i].w.panels
		streamed = streamed || g.parts[i].w.packed == nil
	}
	g.block = max(leastStrips, blockBytes/(g.r.k.strip*width*4))
	if streamed {
		g.block = a.count // a panel is unpacked once
	}
	g.r.dev.pool.run(&g.r.gemm.self, g.cut(a.count, g.r.dev.pool.workers, groupBytes/(width*panelCols*4)))
}

func (g *gemmTask) do(worker, item int) {
	block, group := item/g.groups, inLanes(item%g.groups, g.groups, g.r.dev.pool.workers)
	first := block * g.block
	last := min(first+g.block, g.a.count)
	w := &g.r.work[worker]
	for p := group * g.group; p < min((group+1)*g.group, g.panels); p++ {
		if g.gate != nil {
			g.gated(w, p, first, last)
			continue
		}
		part, q := g.find(p)
		g.plain(w, part, q, first, last)
	}
}

// evenGroup is the number of panels in an item, at most most, which leaves threads idle for the shortest time at the end.
func evenGroup(panels, blocks, workers, most int) int {
	best, least := 1, panels*blocks
	for n := 1; n <= most; n++ {
		items := (panels + n - 1) / n * blocks
		if longest := (items + workers - 1) / workers * n; longest <= least {
			best, least = n, longest
		}
	}
	return best
}

// panel gives a weight's panel in float32, made in buf where the weight is compact or streamed.
func (m *matrix) panel(kn *kernels, w *scratch, p int, buf *[]float32) []float32 {
	if m.quantised {
		if size := m.kpad * panelCols; len(*buf) < size {
			*buf = aligned(size)
		}
		panel := (*buf)[:m.kpad*panelCols]
		m.q.floatPanel(m.storedPanel(&w.q8, p), panel)
		return panel
	}
	if m.packed != nil && m.form == nil {
		return m.packed[p*m.size : (p+1)*m.size]
	}
	size := m.kpad * panelCols
	if len(*buf) < size {
		*buf = aligned(size)
	}
	panel := (*buf)[:size]
	if m.packed != nil {
		m.form.expand(kn, m.kpad, ptr(panel, 0), ptr(m.packed, p*m.size))
		return panel
	}
	if n := panelScratch(m.src.In); len(w.rows) < n {
		w.rows = make([]float32, n)
	}
	m.pack(p, panel, w.rows)
	return panel
}

// lead is how far ahead of their use, in bytes, float32 panels are fetched into the caches. 8 to 16 KiB were best; 4 and 32
// worse.
const lead = 16 << 10

// multiply runs the tile of strip i of n and panel p into c, whose rows are ldc values apart. Together the n strips fetch a
// panel's length of packed weights: the next panel of a compact weight, which is expanded when this one is done with. Of a
// float32 panel, the first strip reads n times as fast as it is fetched, so that has to be so much further ahead. The address
// may lie beyond the weights; prefetching does not mind.
func (g *gemmTask) multiply(strip, rows, i, n int, m *matrix, p int, panel, c []float32, ldc int) {
	ahead, step := address(panel, 0), 0
	switch {
	case m.packed == nil:
	case m.form == nil:
		ahead, step = address(panel, 0)+uintptr(m.size*4*(n-1+i)/n+lead), cacheLine/n
	default:
		ahead, step = address(m.packed, (p+1)*m.size+m.size*i/n), m.fetchStep(n)
	}
	g.r.k.tile(rows, m.kpad/lanes, ptr(g.a.data, g.a.start(strip)), ptr(panel, 0), ptr(c, 0), panelCols*4, ldc*4, 0, ahead, step)
}

// fetchStep is how far apart n tiles, which fetch twice for each k, fetch from a compact weight as much as they use of it.
func (m *matrix) fetchStep(n int) int { return (m.size*4 + 2*m.kpad*n - 1) / (2 * m.kpad * n) }

const (
	// chunkK is the piece of a compact panel, in k, that is expanded at a time where there are few strips: 12 KiB, which with
	// the activations stay in the first cache, where expanding is twice as fast as into the second. A multiple of 32; 64 to 192
	// were about as good.
	chunkK = 96
	// fewStrips is how many strips that is at most; their results wait in scratch.
	fewStrips = 4
)

// inChunks tells whether a panel is expanded in pieces.
func inChunks(m *matrix, strips int) bool {
	return m.form != nil && m.packed != nil && strips <= fewStrips
}

// tile is a place for results: rows are ld values apart.
type tile struct {
	c  []float32
	ld int
}

// chunks multiplies strips first.. with panel p, piece by piece: the chains of fused multiply-adds go on in the results.
func (g *gemmTask) chunks(w *scratch, m *matrix, p, first int, to []tile) {
	if len(w.panel) < chunkK*panelCols {
		w.panel = aligned(chunkK * panelCols)
	}
	for k := 0; k < m.kpad; k += chunkK {
		n := min(chunkK, m.kpad-k)
		at := p*m.size + panelSize(m.form, k)
		size := panelSize(m.form, n)
		m.form.expand(g.r.k, n, ptr(w.panel, 0), ptr(m.packed, at))
		for i, t := range to {
			_, rows := g.a.span(first + i)
			// The next piece is being fetched since the last one: this is the one after it.
			ahead := address(m.packed, at+2*size+size*i/len(to))
			g.r.k.tile(rows, n/lanes, ptr(g.a.data, g.a.at(first+i, 0, k)), ptr(w.panel, 0), ptr(t.c, 0), panelCols*4, t.ld*4, k, ahead, m.fetchStep(len(to)))
		}
	}
}

// addBias adds columns 32p.. of a bias to a tile.
func addBias(tile []float32, ldc, rows int, bias *vector, p int) {
	if bias == nil {
		return
	}
	b := bias.v[p*panelCols:][:panelCols]
	for r := range rows {
		t := tile[r*ldc:][:panelCols]
		for o, v := range b {
			t[o] += v
		}
	}
}

func (g *gemmTask) plain(w *scratch, part *gemmPart, p, first, last int) {
	if inChunks(part.w, last-first) {
		for s := first; s < last; s++ {
			w.to[s-first] = g.target(w, part, p, s, s-first)
		}
		g.chunks(w, part.w, p, first, w.to[:last-first])
		for s := first; s < last; s++ {
			g.finish(part, p, s, w.to[s-first])
		}
		return
	}
	panel := part.w.panel(g.r.k, w, p, &w.panel)
	for s := first; s < last; s++ {
		_, rows := g.a.span(s)
		to := g.target(w, part, p, s, 0)
		g.multiply(s, rows, s-first, last-first, part.w, p, panel, to.c, to.ld)
		g.finish(part, p, s, to)
	}
}

// slot is a tile of scratch.
func (w *scratch) slot(i int) tile {
	const size = maxStrip * panelCols
	return tile{c: w.tile[i*size : (i+1)*size], ld: panelCols}
}

// target is where the product of a strip goes first: where it is wanted, if nothing but a bias is to be done, or else to
// scratch.
func (g *gemmTask) target(w *scratch, part *gemmPart, p, strip, slot int) tile {
	if g.logits != nil || part.add {
		return w.slot(slot)
	}
	token, _ := g.a.span(strip)
	return tile{c: part.dst[token*part.ldc+p*panelCols:], ld: part.ldc}
}

// finish takes the product of a strip from its target.
func (g *gemmTask) finish(part *gemmPart, p, strip int, t tile) {
	token, rows := g.a.span(strip)
	addBias(t.c, t.ld, rows, part.bias, p)
	switch {
	case g.logits != nil:
		n := min(panelCols, part.w.src.Out-p*panelCols)
		for r := range rows {
			copy(g.logits[token+r][p*panelCols:][:n], t.c[r*panelCols:])
		}
	case part.add:
		g.r.k.addRows(rows, ptr(part.dst, token*part.ldc+p*panelCols), ptr(t.c, 0), part.ldc*4)
	}
}

func (g *gemmTask) gated(w *scratch, p, first, last int) {
	if n := last - first; inChunks(g.gate, n) && inChunks(g.up, n) {
		for i := range 2 * n {
			w.to[i] = w.slot(i)
		}
		g.chunks(w, g.gate, p, first, w.to[:n])
		g.chunks(w, g.up, p, first, w.to[n:2*n])
		for i := range n {
			g.silu(p, first+i, w.to[i].c, w.to[n+i].c)
		}
		return
	}
	gate := g.gate.panel(g.r.k, w, p, &w.panel)
	up := g.up.panel(g.r.k, w, p, &w.second)
	gt, ut := w.slot(0), w.slot(1)
	for s := first; s < last; s++ {
		_, rows := g.a.span(s)
		g.multiply(s, rows, s-first, last-first, g.gate, p, gate, gt.c, gt.ld)
		g.multiply(s, rows, s-first, last-first, g.up, p, up, ut.c, ut.ld)
		g.silu(p, s, gt.c, ut.c)
	}
}

// silu writes the gated values of a strip.
func (g *gemmTask) silu(p, strip int, gate, up []float32) {
	_, rows := g.a.span(strip)
	mlp := &g.r.mlp
	addBias(gate, panelCols, rows, g.gateBias, p)
	addBias(up, panelCols, rows, g.upBias, p)
	g.r.k.siluMul(rows, ptr(gate, 0), ptr(up, 0), ptr(mlp.data, mlp.at(strip, 0, p*panelCols)), g.r.k.stripBytes())
}
