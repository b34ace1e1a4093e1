package jobs

import "github.com/batchmill/batchmill/infer/model"

// modelWork counts operations (multiplications and additions) of a forward pass. What norms, rotations and softmax take is
// left out, and so is what the last layer saves on rows without logits.
type modelWork struct {
	linear float64 // of a token, in the layers' matrices
	head   float64 // of a row with logits
	attend float64 // of a token, for each token that it sees
}

func workOf(c model.Config) modelWork {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	layer := c.Hidden*(q+2*kv) + q*c.Hidden + 3*c.Hidden*c.Intermediate
	return modelWork{
		linear: 2 * float64(c.Layers) * float64(layer),
		head:   2 * float64(c.Hidden) * float64(c.VocabSize),
		attend: 4 * float64(c.Layers) * float64(q),
	}
}

// tokens is the work on n tokens of a sequence that come after past others. A token sees itself too.
func (w modelWork) tokens(past, n int) float64 {
	seen := float64(n)*float64(past) + float64(n)*float64(n+1)/2
	return w.linear*float64(n) + w.attend*seen
}

// row is the work on a prompt and its completion. The last token of a completion is sampled, not computed.
func (w modelWork) row(prompt, completion int) float64 {
	return w.tokens(0, prompt+max(0, completion-1)) + w.head*float64(completion)
}

// shared is the work on rows of prefix and own tokens and one completion token each, the prefix computed once.
func (w modelWork) shared(rows, prefix, own int) float64 {
	return w.tokens(0, prefix) + float64(rows)*(w.tokens(prefix, own)+w.head)
}
