package infer

import (
	"math"
	"slices"

	"github.com/batchmill/batchmill/internal/row"
)

// TokenMask limits which tokens may come next: the hook for grammars, regular expressions and choices. It belongs to
// one request and is called by one goroutine at a time. A preempted row keeps its mask's state, since only KV pages are
// computed again, never tokens chosen again.
type TokenMask interface {
	// Allowed sets bit id%64 of bits[id/64] for every id that may come next, end tokens included where the text may
	// end. bits arrives zeroed and covers the model's vocabulary.
	Allowed(bits []uint64)
	// Accept tells which id was taken.
	Accept(id int32) error
}

// sampler chooses tokens. It holds scratch memory only (about 16 bytes per vocabulary entry once a row needed it), no
// state between calls; each goroutine that samples has its own.
type sampler struct {
	undo    []rawLogit
	masked  []float32
	allowed []uint64
	heap    []float32
	ids     []int32
	weights []float64
	border  []int32 // indexes of candidates in the bucket where top_p ends
	top     []int32
	likely  []idLogprob
}

// choice is one sampled token. logprob and top are set only when asked for; both are of the raw logits, in float64.
type choice struct {
	id      int32
	logprob float64
	top     []idLogprob // most likely first, the lowest id first among equals; valid until the sampler's next call
}

// sample chooses completion token pos (from 0) from raw logits [vocabulary], which are left as they were. hist is nil
// where p has no penalties, mask is nil where nothing is constrained.
func (s *sampler) sample(logits []float32, p *Params, hist *history, mask TokenMask, seed int64, pos int) (choice, *row.Error) {
	best, ok := scanFinite(logits)
	if !ok {
		return choice{}, row.Errorf(row.NonFiniteLogits,
			"the model gave NaN or infinite logits for completion token %d; its weights or this prompt overflow fp32", pos+1)
	}
	c := choice{id: best}
	var logZ float64
	if p.Logprobs >= 0 {
		logZ = s.logSumExp(logits, logits[best])
	}
	raw := logits
	if mask != nil {
		if logits, ok = s.mask(logits, mask); !ok {
			return choice{}, row.Errorf(row.IncompleteOutput,
				"the constraint allows no token at completion token %d; loosen it", pos+1)
		}
	}
	if hist != nil {
		s.undo = hist.penalise(logits, p, s.undo[:0])
	}
	if mask != nil || hist != nil {
		c.id = argmax(logits)
	}
	if p.Temperature > 0 {
		d := s.distribution(logits, logits[c.id], p)
		c.id = d.draw(uniform(seed, pos))
	}
	if hist != nil {
		restore(logits, s.undo)
	}
	if p.Logprobs >= 0 {
		c.logprob = float64(raw[c.id]) - logZ
		c.top = s.topLogprobs(raw, p.Logprobs, logZ)
	}
	return c, nil
}

// mask copies logits with minus infinity where the mask forbids a token; ok is false where it forbids all.
func (s *sampler) mask(logits []float32, mask TokenMask) (masked []float32, ok bool) {
	words := (len(logits) + 63) / 64
	s.allowed = slices.Grow(s.allowed[:0], words)[:words]
	clear(s.allowed)
	mask.Allowed(s.allowed)
	s.masked = append(s.masked[:0], logits...)
	for i := range s.masked {
		if s.allowed[i>>6]>>(i&63)&1 == 0 {
			s.masked[i] = float32(math.Inf(-1))
		} else {
			ok = true
		}
	}
	return s.masked, ok
}

// scanFinite finds the largest logit, the lowest id among equals, and tells whether all are finite: one pass. An
// engine that only compared would take NaN for token 0.
func scanFinite(logits []float32) (best int32, finite bool) {
	if len(logits) == 0 {
		return 0, false
	}
	top, id := logits[0], 0
	for i, l := range logits {
		if l > top {
			top, id = l, i
		} else if !(l >= -math.MaxFloat32) { // NaN or minus infinity
			return 0, false
		}
	}
	return int32(id), top <= math.MaxFloat32
}

// argmax is the id of the largest logit, the lowest among equals. There is at least one logit and none is NaN.
func argmax(logits []float32) int32 {
	top, id := logits[0], 0
	for i, l := range logits {
		if l > top {
			top, id = l, i
		}
	}
	return int32(id)
}

// dist is what filters left of the vocabulary: unnormalised probabilities, the most likely token's being 1.
type dist struct {
	ids     []int32 // ascending; nil: all ids from 0
	weights []float64
}

// draw inverts the cumulative distribution, taken in the order of ids, at u in [0, 1).
func (d dist) draw(u float64) int32 {
	target := float64(u * sum4(d.weights))
	last, cum := 0, 0.0
	for i, w := range d.weights {
		cum += w
		if w > 0 {
			last = i
			if cum > target {
				break
			}
		}
	}
	// The running sum may end a rounding error below target: then the last possible token is meant.
	if d.ids == nil {
		return int32(last)
	}
	return d.ids[last]
}

// distribution applies temperature, top_k, top_p and min_p to penalised logits; best is the largest of them and p's
// temperature is above 0. The result is valid until the sampler's next call.
//
// Nothing is ever sorted as a whole: top_k keeps a heap of k values, top_p adds up probabilities in buckets and sorts
// only the bucket in which its border lies.
func (s *sampler) distribution(logits []float32, best float32, p *Params) dist {
	inverse := 1 / p.Temperature
	var d dist
	s.weights = s.weights[:0]
	if p.TopK > 0 && p.TopK < len(logits) {
		kth := s.kthLargest(logits, p.TopK)
		s.ids = s.ids[:0]
		for i, l := range logits {
			if l >= kth {
				s.ids = append(s.ids, int32(i))
				s.weights = append(s.weights, expNeg(float64((float64(l)-float64(best))*inverse)))
			}
		}
		d.ids = s.ids
	} else {
		s.weights = slices.Grow(s.weights, len(logits))[:len(logits)]
		expScaled(s.weights, logits, best, inverse)
	}
	d.weights = s.weights
	if p.TopP < 1 || p.MinP > 0 {
		d = s.cut(d, p.TopP, p.MinP)
	}
	return d
}

// kthLargest is the k-th largest value, 0 < k < len(logits): a pass with a min-heap of the k largest so far.
func (s *sampler) kthLargest(logits []float32, k int) float32 {
	h := append(s.heap[:0], logits[:k]...)
	s.heap = h
	for i := k/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	for _, l := range logits[k:] {
		if l > h[0] {
			h[0] = l
			siftDown(h, 0)
		}
	}
	return h[0]
}

func siftDown(h []float32, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
