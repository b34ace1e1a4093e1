package cpu

import (
	"math"

	"github.com/batchmill/batchmill/infer/device"
)

// normTask fills strips with the norm of residual rows; an item is a strip.
type normTask struct {
	r    *runner
	w    *vector
	eps  float64
	dst  *strips
	rows []int32 // row of the residual for each token of dst; nil: the token's own
}

func (n *normTask) set(p device.Norm, dst *strips, rows []int32) {
	n.w, n.eps, n.dst, n.rows = asVector(p.Weight), float64(p.Eps), dst, rows
}

// inverse is 1/sqrt(sum/n + eps), in float64 and rounded once.
func inverse(sum float32, n int, eps float64) float32 {
	return float32(1 / math.Sqrt(float64(sum)/float64(n)+eps))
}

func (n *normTask) do(_, strip int) {
	r := n.r
	first, rows := n.dst.span(strip)
	for i := range rows {
		row := first + i
		if n.rows != nil {
			row = int(n.rows[row])
		}
		x := ptr(r.residual, row*r.hidden)
		scale := inverse(r.k.sumSquares(r.hidden/lanes, x), r.shape.Hidden, n.eps)
		r.k.normRow(r.hidden/lanes, ptr(n.dst.data, n.dst.at(strip, i, 0)), x, ptr(n.w.v, 0), scale, r.k.stripBytes())
	}
}

// Norm: input = norm(residual).
func (r *runner) Norm(n device.Norm) {
	r.norm.task.set(n, &r.input, nil)
	r.dev.pool.run(&r.norm.self, r.input.count)
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
		e.table.values(int(r.batch.Tokens[i]), r.residual[i*r.hidden:][:r.shape.Hidden])
	}
}

// Embed: residual = table[token].
func (r *runner) Embed(table device.Matrix) {
	r.embed.task.table = asMatrix(table)
	r.dev.pool.run(&r.embed.self, (len(r.batch.Tokens)+embedRows-1)/embedRows)
}
