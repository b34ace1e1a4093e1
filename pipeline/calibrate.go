package pipeline

import "sync"

// calibrator learns how much of max_tokens completions use, so that rows that will go on for long can start first. It
// decides an order only, never a result.
//
// Rows are told apart by their max_tokens and by the length of their prompts, both in powers of two: in a translation
// the completion grows with the prompt, in a mixture of documents and questions it may be the other way round. A kind of
// row of which few have ended is expected to use max_tokens in full: then it starts first, and soon is known. It is
// safe for concurrent use.
type calibrator struct {
	mu    sync.Mutex
	kinds map[rowKind]*share
	ended int // rows, of all kinds
	news  int // how often enough was learnt to look again at an order that was made before
}

// rowKind is a kind of row, by powers of two. There are at most about 32 squared.
type rowKind struct{ maxTokens, prompt int }

// share is a moving mean of the share of max_tokens that completions used.
type share struct {
	n    int
	mean float64
}

const (
	// shareWeight is the weight of one more row in a mean: about the last 30 count, so that data whose nature changes is
	// followed. The engine forecasts memory with the same weight.
	shareWeight = 1.0 / 16
	// shareMinRows is how many rows must have ended before a mean says anything.
	shareMinRows = 8
)

func newCalibrator() *calibrator { return &calibrator{kinds: map[rowKind]*share{}} }

// note takes the length of a completion that came to its end by itself.
func (c *calibrator) note(maxTokens, prompt, generated int) {
	if maxTokens <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := rowKind{bucket(maxTokens), bucket(prompt)}
	s := c.kinds[k]
	if s == nil {
		s = &share{}
		c.kinds[k] = s
	}
	s.n++
	s.mean += max(shareWeight, 1/float64(s.n)) * (float64(generated)/float64(maxTokens) - s.mean)
	c.ended++
	doubled := c.ended >= 2*shareMinRows && c.ended&(c.ended-1) == 0
	if s.n == shareMinRows || doubled {
		c.news++
	}
}

// epoch changes when enough was learnt to look again at an order that was made before: when a kind of row has become
// known, and whenever the number of rows that ended has doubled.
func (c *calibrator) epoch() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.news
}

// expect is the completion's expected length in tokens, at least 1.
func (c *calibrator) expect(maxTokens, prompt int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.kinds[rowKind{bucket(maxTokens), bucket(prompt)}]; s != nil && s.n >= shareMinRows {
		return max(1, int(s.mean*float64(maxTokens)+0.5))
	}
	return max(1, maxTokens)
}
