package infer

import (
	"github.com/batchmill/batchmill/infer/kv"
)

// findPrefix looks up the longest prefix that a waiting sequence can take from other rows of its tenant, and tells
// whether it is there. False: a running sequence is about to compute part of it, so this one has to wait, at least until
// that one is so far or is stopped. The prompt's last token is never taken, since its logits are needed; nor are tokens
// of the completion, which only this row has.
func (r *run) findPrefix(s *sequence) bool {
	if r.prefixes == nil {
		return true
	}
	if s.match.Pending() {
		return false
	}
	r.prefixes.Find(s.tenant, s.tokens[:min(s.prompt, len(s.tokens)-1)], &s.match)
	return s.match.Ready()
}

// fits tells whether a waiting sequence, whose prefix was just looked up, can start beside the running ones and is not
// expected to take pages from them soon.
func (r *run) fits(s *sequence) bool {
	enough := kv.PagesFor(len(s.tokens)) <= r.pool.Free()
	if r.prefixes != nil {
		enough = r.prefixes.Fits(&s.match, len(s.tokens))
	}
	return enough && r.forecast.peak(r.pool, r.running, s) <= r.pool.Pages()
}

// takePages gives a sequence whose prefix was just looked up pages for all its tokens. False: there are not enough.
func (r *run) takePages(s *sequence) bool {
	if r.prefixes == nil {
		return r.pool.Grow(&s.table, len(s.tokens))
	}
	cached, page, ok := r.prefixes.Start(&s.table, s.tenant, s.tokens[:s.prompt], &s.match, len(s.tokens))
	s.match = kv.Match{}
	if !ok {
		return false
	}
	if page.Tokens > 0 {
		r.e.cache.CopyPage(page.Dst, page.Src, page.Tokens)
	}
	if s.scheduled.IsZero() {
		s.cached = cached
	}
	r.cached += max(cached-s.farthest, 0)
	s.computed, s.farthest = cached, max(s.farthest, cached)
	return true
}

// leavePages takes the pages of a running sequence. With spoilt the step that failed may have written to them from token
// number computed on; what stays of its prompt in Prefixes are pages that were finished before.
func (r *run) leavePages(s *sequence, spoilt bool) {
	if r.prefixes != nil {
		r.prefixes.Drop(&s.table, s.computed, spoilt)
	} else {
		r.pool.Drop(&s.table)
	}
}

// place puts a sequence that starts into r.packing: behind the last of those with which it shares most pages. So sequences
// that share first pages stand together, at every depth: where some share more pages, they stood together already.
func (r *run) place(s *sequence) {
	at, most := len(r.packing), 0
	for i, other := range r.packing {
		if n := commonPages(s.table.Pages(), other.table.Pages()); n > 0 && n >= most {
			at, most = i+1, n
		}
	}
	r.packing = append(r.packing, nil)
	copy(r.packing[at+1:], r.packing[at:])
	r.packing[at] = s
}

// commonPages is the number of first pages that two tables share, found by halving: tables with the same n-th page have
// the same pages before it.
func commonPages(a, b []int32) int {
	low, high := 0, min(len(a), len(b))
	for low < high {
		mid := (low + high + 1) / 2
		if a[mid-1] == b[mid-1] {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// pack puts the planned shares of the running sequences into r.batch and r.step. Those that share first pages follow one
// another, the decoding ones first, so that a device can run all their queries through a page at once.
func (r *run) pack() {
	for i := 0; i < len(r.packing); {
		end := i + 1
		for first := r.packing[i].table.Pages()[0]; end < len(r.packing) && r.packing[end].table.Pages()[0] == first; {
			end++
		}
		group := r.packing[i:end]
		for _, decode := range [...]bool{true, false} {
			for _, s := range group {
				if s.share > 0 && (s.pending() == 1) == decode {
					r.add(s)
				}
			}
		}
		i = end
	}
}
