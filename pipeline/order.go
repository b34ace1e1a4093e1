package pipeline

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/batchmill/batchmill/infer"
)

// minShared is how many tokens prompts must have in common, beyond what their neighbourhood shares anyway, to be kept
// together: a KV page. Below it there is less than a page to save a row, and to start long rows first is worth more.
const minShared = infer.PageTokens

// order decides in which order the units of a generation start. It has three aims, in this order:
//
//  1. Rows that will decode for long start first: a row decodes one token a step, so a long one that starts last runs the
//     end of the job alone, in batches of one. Expected lengths are compared by powers of two only, which keeps groups in
//     few pieces.
//  2. Prompts that share a prefix start one after the other, so that the engine computes the prefix once and need not
//     keep it for long. Within a group those that share more stand together, and so on down the tree.
//  3. Long prompts start before short ones: what fills the last batches is small.
//
// The result is a permutation that depends on the units, their order of arrival and the calibration, on nothing else.
type order struct {
	expect func(maxTokens, prompt int) int
	flat   bool // prefixes are not shared, so groups mean nothing
}

// ranked is a unit with what its place depends on.
type ranked struct {
	u        *Unit
	arrival  int
	expected int // completion tokens
	shared   int // tokens in common with the one before
}

// class compares expected completions by their power of two.
func (r *ranked) class() int { return bits.Len(uint(r.expected)) }

// arrange returns the units in the order in which they should start.
func (o *order) arrange(units []*Unit) []*Unit {
	list := make([]ranked, len(units))
	for i, u := range units {
		list[i] = ranked{u: u, arrival: i, expected: o.expect(u.Request.Params.MaxTokens, len(u.Request.Tokens))}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		if c := cmp.Compare(b.class(), a.class()); c != 0 {
			return c
		}
		if !o.flat {
			if c := compareRequests(a.u, b.u); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.arrival, b.arrival)
	})
	out := make([]*Unit, 0, len(units))
	for from := 0; from < len(list); {
		to := from + 1
		for ; to < len(list) && list[to].class() == list[from].class(); to++ {
			if !o.flat {
				list[to].shared = SharedPrefix(list[to-1].u, list[to].u)
			}
		}
		for _, r := range place(list[from:to], 0).list {
			out = append(out, r.u)
		}
		from = to
	}
	return out
}

// compareRequests orders units by tenant and then token by token, so that those that share a prefix are neighbours.
func compareRequests(a, b *Unit) int {
	if c := cmp.Compare(a.Request.Tenant, b.Request.Tenant); c != 0 {
		return c
	}
	x, y := a.Request.Tokens, b.Request.Tokens
	n := commonPrefix(x, y)
	return slices.Compare(x[n:], y[n:])
}

// commonPrefix is the number of tokens with which two prompts begin alike. Prompts that share thousands of tokens are
// compared with each other about twenty thousand times to sort a window, so equal stretches are passed in pieces, which
// the compiler compares as memory.
func commonPrefix(x, y []int32) int {
	const piece = 256
	n, i := min(len(x), len(y)), 0
	for i+piece <= n && *(*[piece]int32)(x[i:]) == *(*[piece]int32)(y[i:]) {
		i += piece
	}
	for i < n && x[i] == y[i] {
		i++
	}
	return i
}

// SharedPrefix is the number of tokens that the second of two prompts can take from the first: their common prefix if
// they are of one tenant, without the second's last token, which has to be computed in any case.
func SharedPrefix(a, b *Unit) int {
	if a.Request.Tenant != b.Request.Tenant {
		return 0
	}
	return max(0, min(commonPrefix(a.Request.Tokens, b.Request.Tokens), len(b.Request.Tokens)-1))
}

// SharedTokens is how many prompt tokens need not be computed where the units run one after the other in their best
// order, each taking from those before it what it shares with them. It sorts the units.
func SharedTokens(units []*Unit) (n int64) {
	slices.SortFunc(units, compareRequests)
	for i := 1; i < len(units); i++ {
		n += int64(SharedPrefix(units[i-1], units[i]))
	}
	return n
}

// branch is a part of the prefix tree, put in order.
type branch struct {
	list []ranked
	work int // of its longest row: tokens to compute below the point where the branch begins
}

// place puts a sorted run of units in order. All of them share at least depth tokens, which somebody else pays for.
func place(run []ranked, depth int) branch {
	var branches []branch
	for from := 0; from < len(run); {
		to, least := from+1, 0
		for ; to < len(run) && run[to].shared >= depth+minShared; to++ {
			if least == 0 || run[to].shared < least {
				least = run[to].shared
			}
		}
		if to == from+1 {
			r := &run[from]
			branches = append(branches, branch{run[from:to], len(r.u.Request.Tokens) - depth + r.expected})
		} else { // least is above depth, so at least one border of the run lies at it, and the parts get smaller
			b := place(run[from:to], least)
			b.work += least - depth
			branches = append(branches, b)
		}
		from = to
	}
	slices.SortStableFunc(branches, func(a, b branch) int {
		if c := cmp.Compare(b.work, a.work); c != 0 {
			return c
		}
		return cmp.Compare(a.list[0].arrival, b.list[0].arrival)
	})
	b := branch{work: branches[0].work, list: make([]ranked, 0, len(run))}
	for _, x := range branches {
		b.list = append(b.list, x.list...)
	}
	return b
}
