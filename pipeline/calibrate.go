package pipeline

import "sync"

// calibrator learns how much of max_tokens completions use, so that rows that will go on for long can start first. It
// decides an order only, never a result.
//
// Rows are told apart by their max_tokens and by the length of their prompts, both in powers of two: in a translation or
// a summary the completion grows with the prompt. A kind of row that was hardly seen is expected to behave like all
// rows with its max_tokens, those like all rows, and before anything has ended a row is expected to use max_tokens in
// full. It is safe for concurrent use.
type calibrator struct {
	mu    sync.Mutex
	kinds map[rowKind]*share
}

// rowKind is a kind of row; 0 in a field means all.
type rowKind struct{ maxTokens, prompt int }

// share is a moving mean of the share of max_tokens that completions used.
type share struct {
	n    int
	mean float64
}

const (
	// shareWeight is the weight of one more row in a mean: about the last 32 count, so that a data set whose nature
	// changes is followed. It is the engine's, which forecasts memory the same way.
	shareWeight = 1.0 / 16
	// shareMinRows is how many rows must have ended before a mean says anything.
	shareMinRows = 8
)

func newCalibrator() *calibrator { return &calibrator{kinds: map[rowKind]*share{}} }

// kindsOf lists the kinds that a row belongs to, the narrowest first. They are at most 32 squared and a few.
func kindsOf(maxTokens, prompt int) [3]rowKind {
	return [3]rowKind{{bucket(maxTokens), bucket(prompt)}, {bucket(maxTokens), 0}, {}}
}

// ended notes the length of a completion that came to its end by itself.
func (c *calibrator) ended(maxTokens, prompt, generated int) {
	if maxTokens <= 0 {
		return
	}
	got := float64(generated) / float64(maxTokens)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range kindsOf(maxTokens, prompt) {
		s := c.kinds[k]
		if s == nil {
			s = &share{}
			c.kinds[k] = s
		}
		s.n++
		s.mean += max(shareWeight, 1/float64(s.n)) * (got - s.mean)
	}
}

// expect is the completion's expected length in tokens, at least 1.
func (c *calibrator) expect(maxTokens, prompt int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range kindsOf(maxTokens, prompt) {
		if s := c.kinds[k]; s != nil && s.n >= shareMinRows {
			return max(1, int(s.mean*float64(maxTokens)+0.5))
		}
	}
	return max(1, maxTokens)
}
