package cpu

import (
	"math"

	"github.com/batchmill/batchmill/infer/device"
)

// normTask fills the input strips with the norm of residual rows; an item is a strip.
type normTask struct {
	r   *runner
	w   *vector
	eps float64
	to  *qStrips // set: as integers
}

// inverse is 1/sqrt(sum/n + eps), in float64 and rounded once.
func inverse(sum float32, n int, eps float64) float32 {
	return float32(1 / math.Sqrt(float64(sum)/float64(n)+eps))
}

func (n *normTask) do(worker, strip int) {
	r := n.r
	if n.to != nil {
		w := &r.work[worker]
		first, rows := n.to.span(strip)
		for i := range rows {
			x := ptr(r.stream, (first+i)*r.hidden)
			scale := inverse(r.k.sumSquares(r.hidden/lanes, x), r.shape.Hidden, n.eps)
			r.k.normRow(r.hidden/lanes, ptr(w.q8.row, 0), x, ptr(n.w.v, 0), scale, lanes*4)
			n.to.row(&w.q8.quant, first+i, ptr(w.q8.row, 0))
		}
		return
	}
	first, rows := r.input.span(strip)
	for i := range rows {
		x := ptr(r.stream, (first+i)*r.hidden)
		scale := inverse(r.k.sumSquares(r.hidden/lanes, x), r.shape.Hidden, n.eps)
		r.k.normRow(r.hidden/lanes, ptr(r.input.data, r.input.at(strip, i, 0)), x, ptr(n.w.v, 0), scale, r.k.stripBytes())
	}
}

// embedTask looks rows up; an item is embedRows tokens.
type embedTask struct {
	r     *runner
	table *matrix
}

const embedRows = 16

func (e *embedTask) do(_, item int) {
	r := e.r
	first := item * embedRows
	for i := first; i < min(first+embedRows, len(r.batch.Tokens)); i++ {
		e.table.values(int(r.batch.Tokens[i]), r.stream[i*r.hidden:][:r.shape.Hidden])
	}
}

// Embed: residual = table[token].
func (r *runner) Embed(table device.Matrix) {
	r.embed.task.table = asMatrix(table)
	r.dev.pool.run(&r.embed.self, (len(r.batch.Tokens)+embedRows-1)/embedRows)
}
