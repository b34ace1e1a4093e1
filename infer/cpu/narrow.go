package cpu

// Narrow leaves the rows of batch.Logits: their residuals are gathered, and the queries of other rows are dropped. In a
// prompt's chunk that saves most of the last layer. Where every row is wanted, in order, as in pure decoding, nothing has to
// be done.
func (r *runner) Narrow() {
	want := r.batch.Logits
	if r.isAll(want) {
		return
	}
	n := len(want)
	if n*r.hidden > len(r.kept) {
		r.kept = aligned(n * r.hidden)
	}
	for i, row := range want {
		copy(r.kept[i*r.hidden:][:r.hidden], r.residual[int(row)*r.hidden:])
	}
	r.attention.some(want)
	r.plan()
	r.stream = r.kept
	r.resizeStrips(n)
}

func (r *runner) isAll(rows []int32) bool {
	if len(rows) != len(r.batch.Tokens) {
		return false
	}
	for i, row := range rows {
		if int(row) != i {
			return false
		}
	}
	return true
}
