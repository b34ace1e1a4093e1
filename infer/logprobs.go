package infer

import (
	"slices"
	"strings"

	"github.com/batchmill/batchmill/internal/row"
)

// idLogprob is a token and the natural logarithm of its probability under the raw logits.
type idLogprob struct {
	id      int32
	logprob float64
}

// logSumExp is log(sum(exp(logits))) in float64; best is the largest logit.
func (s *sampler) logSumExp(logits []float32, best float32) float64 {
	s.weights = slices.Grow(s.weights[:0], len(logits))[:len(logits)]
	expScaled(s.weights, logits, best, 1)
	return float64(best) + logPos(sum4(s.weights))
}

// topLogprobs lists the k most likely tokens (fewer where the vocabulary is smaller), the lowest id first among equals.
// k is at most MaxTopLogprobs, so insertion into a sorted list is the cheapest. The list is valid until the next call.
func (s *sampler) topLogprobs(logits []float32, k int, logZ float64) []idLogprob {
	if k = min(k, len(logits)); k <= 0 {
		return nil
	}
	top := s.top[:0]
	for i, l := range logits {
		if len(top) == k && !(l > logits[top[k-1]]) {
			continue
		}
		at := len(top)
		for at > 0 && l > logits[top[at-1]] {
			at--
		}
		if len(top) < k {
			top = append(top, 0)
		}
		copy(top[at+1:], top[at:])
		top[at] = int32(i)
	}
	s.top = top
	s.likely = s.likely[:0]
	for _, id := range top {
		s.likely = append(s.likely, idLogprob{id, float64(logits[id]) - logZ})
	}
	return s.likely
}

// describe turns a choice into an entry of the result.
func (c choice) describe(t Tokenizer) row.TokenLogprob {
	e := describeToken(t, c.id, c.logprob)
	e.Top = make([]row.TokenLogprob, len(c.top))
	for i, o := range c.top {
		e.Top[i] = describeToken(t, o.id, o.logprob)
	}
	return e
}

func describeToken(t Tokenizer, id int32, logprob float64) row.TokenLogprob {
	b := t.Bytes(id)
	return row.TokenLogprob{ID: id, Token: strings.ToValidUTF8(string(b), "\ufffd"), Bytes: b, Logprob: logprob}
}
