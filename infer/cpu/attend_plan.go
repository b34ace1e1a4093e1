package cpu

import (
	"slices"

	"github.com/batchmill/batchmill/infer/device"
)

// queryRow is one row of attention: one head of the group that shares a KV head, of one token.
type queryRow struct {
	token int32 // of the batch
	head  int32 // in the group
	out   int32 // row of the result
	pos   int32 // absolute position
	carry int32 // where its state waits between shared pages and its own
}

// queryStrip is a piece of attention's work: consecutive rows that go through the pages [from, to) of one page table together,
// each up to what it sees. Rows of several sequences may do so in the pages that these share.
type queryStrip struct {
	first, rows    int
	pages          []int32
	from, to       int
	oldest, newest int  // positions of rows
	resume         bool // states were left by a strip before
	keep           bool // states are left for the strips to come
}

// attendPlan cuts a step's attention into strips: first the pages that sequences share, then each sequence's own, or all of them.
// It is the same for all layers.
type attendPlan struct {
	wants  []wantedRow
	rows   []queryRow
	shared []queryStrip
	own    []queryStrip
	ranges []seqRange
	carry  carriedRows
}

// wantedRow is a token whose attention is wanted, and where it goes.
type wantedRow struct{ token, out int32 }

// seqRange is what one sequence has in the plan.
type seqRange struct {
	seq         int
	first, last int // wants[first:last]
	pages       int // shared with its neighbours, 0: none
	carry       int // first row of carried state
}

// carriedRows hold states between shared pages and a sequence's own; index row*kvHeads + head.
type carriedRows struct {
	max, sum []float32
	acc      []float32 // [rows][kvHeads][width]
}

func (c *carriedRows) grow(rows, width int) {
	if rows > len(c.max) {
		c.max, c.sum = make([]float32, rows), make([]float32, rows)
	}
	if rows*width > len(c.acc) {
		c.acc = aligned(rows * width)
	}
}

// all wants every token.
func (p *attendPlan) all(b *device.Batch) {
	p.wants = p.wants[:0]
	for i := range b.Tokens {
		p.wants = append(p.wants, wantedRow{int32(i), int32(i)})
	}
}

// some wants rows of the batch, in the order of the result.
func (p *attendPlan) some(rows []int32) {
	p.wants = p.wants[:0]
	for i, row := range rows {
		p.wants = append(p.wants, wantedRow{row, int32(i)})
	}
	slices.SortStableFunc(p.wants, func(a, b wantedRow) int { return int(a.token - b.token) })
}

// plan makes the strips for what is wanted.
func (r *runner) plan() {
	p := &r.attention
	p.rows, p.shared, p.own, p.ranges = p.rows[:0], p.shared[:0], p.own[:0], p.ranges[:0]
	group := r.shape.Heads / r.shape.KVHeads
	next := 0
	for i := range r.batch.Seqs {
		s := &r.batch.Seqs[i]
		first := next
		for next < len(p.wants) && int(p.wants[next].token) < s.Start+s.Len {
			next++
		}
		if next > first {
			p.ranges = append(p.ranges, seqRange{seq: i, first: first, last: next})
		}
	}
	carried := 0
	for first := 0; first < len(p.ranges); {
		n := r.sharers(first)
		if n > 1 {
			start := len(p.rows)
			for i := range n {
				g := &p.ranges[first+i]
				g.carry = carried
				r.addRows(g)
				carried += (g.last - g.first) * group
			}
			r.cut(&p.shared, start, r.stripRows(), queryStrip{
				pages: r.batch.Seqs[p.ranges[first].seq].Pages, to: p.ranges[first].pages, keep: true,
			})
		}
		first += n
	}
	width := r.cache.vdim
	p.carry.grow(carried*r.shape.KVHeads, width)
	height := r.itemRows()
	for i := range p.ranges {
		g := &p.ranges[i]
		start := len(p.rows)
		r.addRows(g)
		pages := r.batch.Seqs[g.seq].Pages
		r.cut(&p.own, start, height, queryStrip{pages: pages, from: g.pages, to: len(pages), resume: g.pages > 0})
	}
}

// addRows adds the rows of a sequence.
func (r *runner) addRows(g *seqRange) {
	p := &r.attention
	group := r.shape.Heads / r.shape.KVHeads
	for i, w := range p.wants[g.first:g.last] {
		for head := range group {
			p.rows = append(p.rows, queryRow{
				token: w.token, head: int32(head), out: w.out, pos: r.batch.Positions[w.token], carry: int32(g.carry + i*group + head),
			})
		}
	}
}

// cut makes strips of like height of the rows from start on.
func (r *runner) cut(to *[]queryStrip, start, height int, like queryStrip) {
	rows := r.attention.rows
	for ; start < len(rows); start += height {
		s := like
		s.first, s.rows = start, min(height, len(rows)-start)
		s.oldest, s.newest = int(rows[start].pos), int(rows[start].pos)
		for _, q := range rows[start : start+s.rows] {
			s.oldest, s.newest = min(s.oldest, int(q.pos)), max(s.newest, int(q.pos))
		}
		*to = append(*to, s)
	}
}

// stripRows is how many rows the kernels take at once.
func (r *runner) stripRows() int {
	if r.cache.codes {
		return stripRows8
	}
	return r.k.strip
}

// sharedUnit is how many pages are shared at once: the unit of reduction.
func (r *runner) sharedUnit() int {
	if r.cache.codes {
		return spanPages
	}
	return 1
}

// itemStrips is how many strips of integer attention an item has at most: they use a span's keys and values while these are in
// the first-level cache.
const itemStrips = 4

// itemRows is the height of a sequence's own strips: several of the kernels' with integers, if that leaves enough items for all
// threads.
func (r *runner) itemRows() int {
	if !r.cache.codes {
		return r.k.strip
	}
	rows := len(r.attention.wants) * r.shape.Heads
	fair := rows / (r.dev.pool.workers * itemsPerThread)
	return stripRows8 * min(max(1, fair/stripRows8), itemStrips)
}

// sharers is how many sequences from the first on go through pages together, and sets how many pages these are; 1: there is
// nothing to share. A sequence with rows for a whole strip gains nothing by it.
func (r *runner) sharers(first int) int {
	p := &r.attention
	group, unit := r.shape.Heads/r.shape.KVHeads, r.sharedUnit()
	eligible := func(g *seqRange) int { // whole units that all its rows have behind them
		if (g.last-g.first)*group >= r.stripRows() {
			return 0
		}
		return r.batch.Seqs[g.seq].Past / (device.PageTokens * unit)
	}
	lead := &p.ranges[first]
	common := eligible(lead)
	n := 1
	for ; common > 0 && first+n < len(p.ranges); n++ {
		g := &p.ranges[first+n]
		most := min(common, eligible(g)) * unit
		a, b := r.batch.Seqs[lead.seq].Pages, r.batch.Seqs[g.seq].Pages
		same := 0
		for same < most && a[same] == b[same] {
			same++
		}
		same /= unit
		if same == 0 || 2*same < common { // one that shares little would take the most from the others
			break
		}
		common = same
	}
	if n > 1 {
		for i := range n {
			p.ranges[first+i].pages = common * unit
		}
	}
	return n
}
