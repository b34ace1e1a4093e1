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
	group := r.shape.Heads / r.shape.KVHeads
	r.tiles = r.tiles[:0]
	for i, row := range want {
		copy(r.kept[i*r.hidden:][:r.hidden], r.residual[int(row)*r.hidden:])
		seq := r.seqOf(int(row))
		at := int(row) - r.batch.Seqs[seq].Start
		for first := 0; first < group; first += r.k.strip {
			r.tiles = append(r.tiles, queryTile{seq: seq, first: at*group + first, rows: min(r.k.strip, group-first), out: i - at})
		}
	}
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

// seqOf finds the sequence of a token by bisection.
func (r *runner) seqOf(token int) int {
	low, high := 0, len(r.batch.Seqs)-1
	for low < high {
		mid := (low + high + 1) / 2
		if r.batch.Seqs[mid].Start <= token {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}
