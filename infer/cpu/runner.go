package cpu

import (
	"fmt"

	"github.com/batchmill/batchmill/infer/device"
)

// runner holds the activations of a step and carries out its operations, each as one or two regions of the pool.
type runner struct {
	dev   *Device
	k     *kernels
	shape device.Shape
	batch *device.Batch
	cache *cache

	// Widths padded to whole panels.
	hidden, qdim, kvdim, mid int

	rows     int       // tokens there is room for
	residual []float32 // [rows][hidden]
	kept     []float32 // [len(batch.Logits)][hidden]: what Narrow leaves of it
	stream   []float32 // the one of the two that is in use
	q        []float32 // [rows][qdim]
	kx, vx   []float32 // [rows][kvdim]: keys and values on their way to the cache
	input    strips    // normed residual
	attn     strips    // attention output
	mlp      strips    // gated hidden values
	// The same as integers, unless activations stay float32.
	inputQ, attnQ, mlpQ qStrips
	gatedInts           bool // hidden values are in mlpQ
	unnormed            bool // Norm has been called, and not carried out yet

	attnRows  []float32 // [rows][qdim]: attention output with ActivationsInt8, which is quantised before its product
	codes     queryCodes
	k8        *kernels8
	attention attendPlan

	ropes []ropeTable // one for each of shape.Ropes
	spans []span      // the batch cut at page borders
	work  []scratch   // one for each worker

	embed  region[embedTask]
	norm   region[normTask]
	gemm   region[gemmTask]
	qgemm  region[qTask]
	quant  region[quantTask]
	write  region[writeTask]
	attend region[attendTask]
	angles region[anglesTask]
}

// region is a task with its interface value made once, so that starting it allocates nothing.
type region[T any] struct {
	task T
	self task
}

// scratch is one worker's own memory.
type scratch struct {
	tile   []float32 // [2*fewStrips][maxStrip][32]: results of tiles
	to     [2 * fewStrips]tile
	panel  []float32 // an expanded panel of a compact or streamed weight
	second []float32 // another, for gate and up
	rows   []float32 // rows on their way into a panel
	q      []float32 // [headDim/16][strip][16]: queries of a strip
	scores []float32 // [strip][32]
	probs  []float32 // [2][strip][16]
	acc    []float32 // [strip][vdim]
	head   []float32 // one padded head
	state  [maxStrip]state
	q8     qScratchpad
	int8   *scratch8
}

// Runner makes an empty runner.
func (d *Device) Runner(s device.Shape) (device.Runner, error) {
	if s.Hidden < 1 || s.Heads < 1 || s.KVHeads < 1 || s.HeadDim < 1 || s.Vocab < 1 || s.Heads%s.KVHeads != 0 {
		return nil, fmt.Errorf("make a runner: bad shape %+v", s)
	}
	r := &runner{
		dev: d, k: d.kernels, k8: d.kernels.attention(), shape: s,
		hidden: roundUp(s.Hidden, panelCols), qdim: roundUp(s.Heads*s.HeadDim, panelCols),
		kvdim: roundUp(s.KVHeads*s.HeadDim, panelCols), mid: roundUp(s.Intermediate, panelCols),
	}
	r.input = newStrips(r.k, r.hidden)
	r.attn = newStrips(r.k, r.qdim)
	r.mlp = newStrips(r.k, r.mid)
	if a := d.activations; a != ActivationsF32 {
		wide := a == ActivationsInt16
		r.inputQ = newQStrips(r.k, r.hidden, wide)
		r.attnQ = newQStrips(r.k, r.qdim, wide)
		r.mlpQ = newQStrips(r.k, r.mid, wide)
	}
	for _, rope := range s.Ropes {
		if 2*len(rope.InvFreq) > s.HeadDim {
			return nil, fmt.Errorf("make a runner: rope turns %d values, a head has %d", 2*len(rope.InvFreq), s.HeadDim)
		}
		r.ropes = append(r.ropes, ropeTable{rope: rope})
	}
	r.work = make([]scratch, d.pool.workers)
	vdim := roundUp(s.HeadDim, panelCols)
	for i := range r.work {
		w := &r.work[i]
		w.tile = aligned(2 * fewStrips * maxStrip * panelCols)
		w.q = aligned(roundUp(s.HeadDim, lanes) * r.k.strip)
		w.scores = aligned(r.k.strip * device.PageTokens)
		w.probs = aligned(r.k.strip * device.PageTokens)
		w.acc = aligned(r.k.strip * vdim)
		w.head = aligned(vdim)
		w.q8.sums = aligned(qScratch / 4)
		w.q8.gated = aligned(maxStrip8 * panelCols)
		w.q8.row = aligned(r.hidden)
		if d.activations == ActivationsInt8 {
			w.int8 = newScratch8(roundUp(s.HeadDim, headUnit))
		}
	}
	r.embed.task.r, r.norm.task.r, r.gemm.task.r, r.write.task.r, r.attend.task.r, r.angles.task.r = r, r, r, r, r, r
	r.embed.self, r.norm.self, r.gemm.self = &r.embed.task, &r.norm.task, &r.gemm.task
	r.write.self, r.attend.self, r.angles.self = &r.write.task, &r.attend.task, &r.angles.task
	r.qgemm.task.r, r.quant.task.r = r, r
	r.qgemm.self, r.quant.self = &r.qgemm.task, &r.quant.task
	return r, nil
}

// span is up to a page of consecutive tokens of one sequence that go to the same page.
type span struct {
	token, n int   // tokens of the batch
	page     int32 // page of the cache
	slot     int   // where in the page the first one goes
}

// Begin sizes the buffers and cuts the batch.
func (r *runner) Begin(c device.Cache, b *device.Batch) error {
	cc, ok := c.(*cache)
	if !ok {
		return fmt.Errorf("begin a step: a cache of another device (%T)", c)
	}
	if cc.shape.HeadDim != r.shape.HeadDim || cc.shape.KVHeads != r.shape.KVHeads {
		return fmt.Errorf("begin a step: the cache has %d heads of %d, the model %d of %d", cc.shape.KVHeads, cc.shape.HeadDim, r.shape.KVHeads, r.shape.HeadDim)
	}
	if want := r.dev.activations == ActivationsInt8; cc.codes != want {
		return fmt.Errorf("begin a step: a cache of other activations than %s", r.dev.activations)
	}
	r.batch, r.cache = b, cc
	n := len(b.Tokens)
	if n > r.rows {
		r.rows = n
		r.residual = aligned(n * r.hidden)
		r.q = aligned(n * r.qdim)
		r.kx, r.vx = aligned(n*r.kvdim), aligned(n*r.kvdim)
		if r.dev.activations == ActivationsInt8 {
			r.attnRows = aligned(n * r.qdim)
			r.codes.grow(n*r.shape.Heads, r.shape.HeadDim)
		}
		for i := range r.ropes {
			r.ropes[i].grow(n)
		}
	}
	r.resizeStrips(n)
	r.stream = r.residual
	r.spans = r.spans[:0]
	for i := range b.Seqs {
		s := &b.Seqs[i]
		for t := 0; t < s.Len; {
			slot := (s.Past + t) % device.PageTokens
			m := min(device.PageTokens-slot, s.Len-t)
			r.spans = append(r.spans, span{token: s.Start + t, n: m, page: s.Pages[(s.Past+t)/device.PageTokens], slot: slot})
			t += m
		}
	}
	r.attention.all(b)
	r.plan()
	if len(r.ropes) > 0 {
		r.dev.pool.run(&r.angles.self, len(r.spans))
	}
	return nil
}

// strips are packed activations: [strip][width/16][rows of a tile][16]. The tokens are spread evenly over the strips. Columns
// beyond the true width are never written, and stay zero.
type strips struct {
	k     *kernels
	width int
	n     int // tokens
	count int // strips
	data  []float32
}

func newStrips(k *kernels, width int) strips { return strips{k: k, width: width} }

// resize prepares for n tokens.
func (s *strips) resize(n int) {
	s.n, s.count = n, (n+s.k.strip-1)/s.k.strip
	if need := s.count * s.k.strip * s.width; need > len(s.data) {
		s.data = aligned(need)
	}
}

// span gives the tokens of a strip.
func (s *strips) span(strip int) (first, rows int) {
	first = strip * s.n / s.count
	return first, (strip+1)*s.n/s.count - first
}

// start is the index of a strip's first value.
func (s *strips) start(strip int) int { return strip * s.k.strip * s.width }

// at is the index of column col (a multiple of 16) of row of a strip.
func (s *strips) at(strip, row, col int) int {
	return s.start(strip) + col*s.k.strip + row*lanes
}

// place finds the strip and the row of a token.
func (s *strips) place(token int) (strip, row int) {
	strip = token * s.count / s.n
	for {
		first, rows := s.span(strip)
		switch {
		case token < first:
			strip--
		case token >= first+rows:
			strip++
		default:
			return strip, token - first
		}
	}
}
