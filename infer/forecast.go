package infer

import (
	"cmp"
	"slices"

	"github.com/batchmill/batchmill/infer/kv"
)

// forecast estimates how many pages the running rows will hold at most, so that admission neither waits for pages that
// rows will never ask for (a bound by max_tokens alone) nor admits rows that are preempted soon after, their prefill done
// for nothing. It only decides when a row starts, never what it yields.
//
// Every row is expected to generate the same share of what it still may. The share follows the rows that ended; it starts
// at 1, the bound. In a simulation of tight pools this cost 10 to 20 % less than admitting whatever fits now, and letting
// the sum exceed the pool by a tenth or more never paid.
type forecast struct {
	share float64
	rows  []expectation

	// seen marks the shared pages that rows looked at before hold, with the number of the call, so that it need not be
	// cleared.
	seen []uint32
	call uint32
}

// expectation is a row's length now, the steps it is thought to go on for, and how many of its pages are counted with a
// row that goes on for longer.
type expectation struct {
	s                     *sequence
	tokens, steps, common int
}

// shareWeight is the weight of one more ended row in the moving average: about the last 30 count.
const shareWeight = 1.0 / 16

// ended takes a row that came to its end by itself into account.
func (f *forecast) ended(s *sequence) {
	f.share += shareWeight * (float64(s.generated())/float64(s.params.MaxTokens) - f.share)
}

// peak is the most pages that the running rows and one more will hold at the same time, if all go on as expected. Pages
// grow while all run and fall only when a row ends, so it is enough to look at those moments: when the row with the
// k-th most steps ends, k rows are left, each longer by those steps. A page of several rows counts once, as long as one
// of them is left. more holds no pages yet; those it would share are in its match.
func (f *forecast) peak(p *kv.Pool, running []*sequence, more *sequence) int {
	f.rows = f.rows[:0]
	for _, s := range running {
		f.expect(s)
	}
	f.expect(more)
	slices.SortFunc(f.rows, func(a, b expectation) int { return cmp.Compare(b.steps, a.steps) })
	f.findCommon(p, more)
	most := 0
	for k, last := range f.rows {
		pages := 0
		for i := range f.rows[:k+1] {
			r := &f.rows[i]
			pages += kv.PagesFor(r.tokens+last.steps) - r.common
		}
		most = max(most, pages)
	}
	return most
}

func (f *forecast) expect(s *sequence) {
	left := s.params.MaxTokens - s.generated() - 1 // the last token is not computed
	f.rows = append(f.rows, expectation{s: s, tokens: len(s.tokens), steps: int(f.share * float64(left))})
}

// findCommon counts each row's pages that rows before it hold. Only first pages are shared, so a row is done at its first
// page without another holder.
func (f *forecast) findCommon(p *kv.Pool, more *sequence) {
	if len(f.seen) < p.Pages() {
		f.seen = make([]uint32, p.Pages())
	}
	if f.call++; f.call == 0 {
		clear(f.seen)
		f.call = 1
	}
	taken := more.match.Pages()
	for i := range f.rows {
		r := &f.rows[i]
		pages := r.s.table.Pages()
		n := len(pages)
		if r.s == more {
			n = taken
		}
		for j := range n {
			var page int32
			if r.s == more {
				page = more.match.Page(j)
			} else if page = pages[j]; p.Holders(page) < 2 && (j >= taken || more.match.Page(j) != page) {
				break
			}
			if f.seen[page] == f.call {
				r.common++
			}
			f.seen[page] = f.call
		}
	}
}
