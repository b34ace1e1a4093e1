package infer

import (
	"github.com/batchmill/batchmill/infer/draft"
	"github.com/batchmill/batchmill/infer/kv"
)

// Speculation: where a step has few tokens, which is so at the tail of a job, more of them cost next to nothing, since
// time goes into reading the weights. Then a decoding row gets, behind its last token, some that it may generate next
// (see infer/draft), and logits for each. They are sampled in order, exactly as if they came one by one, as long as each
// was foreseen; what was computed beyond that is dropped. A token's logits depend on the tokens before it alone, so a
// completion is the same to the byte; only the number of steps is another.

// DefaultSpeculationRows is the number of tokens up to which a step is filled with drafts: the height of a tile of the
// CPU's matrix kernels. On two cores a step of 16 tokens was measured at 1.2 to 1.4 times one of a single token with
// 8-bit activations, and at 1.5 to 2 times with float32.
const DefaultSpeculationRows = 16

// The account that every row has, in parts of a drafted token. A wasted one costs up to a sixteenth of a step. What pays
// for it are the row's tokens, and the more rows there are, the less of a step one is worth. So rows whose drafts all fail
// waste a quarter of a drafted token in a step, all together, and slow it down by less than 2 %; one that was foreseen saves a
// row's part of a step.
const (
	draftToken   = 64
	creditStart  = 8 * draftToken
	creditMost   = 64 * draftToken // a text that stops repeating itself wastes no more than that
	creditStep   = draftToken / 4  // for each token generated, divided by the rows of the step
	creditAccept = 4 * draftToken  // for each token foreseen, likewise
	// creditLow is where a row takes only places that agree in carefulMatch tokens.
	creditLow    = 4 * draftToken
	carefulMatch = 4
	// draftStart is the length of a row's first draft.
	draftStart = 4
)

// speculation is a sequence's part in it.
type speculation struct {
	credit int
	limit  int  // of the next draft, in tokens: it follows what was accepted
	tried  bool // a draft has been computed, whose keys and values may still lie in the row's last page
	off    bool // for good: a step with a draft of this row failed, and drafts must not be what fails a row
	guess  *guesser
}

// guesser is what a row that drafts needs, lent by the run as long as the row holds pages.
type guesser struct {
	index *draft.Index
	draft []int32 // of the step that is being planned, or was run last
}

func newSpeculation() speculation { return speculation{credit: creditStart, limit: draftStart} }

// drafted is the sequence's draft in the step.
func (s *sequence) drafted() []int32 {
	if s.spec.guess == nil {
		return nil
	}
	return s.spec.guess.draft
}

// earn brings the account up to date after a step of so many rows, in which this one had a draft of which so much was
// accepted.
func (p *speculation) earn(rows, drafted, accepted int) {
	p.credit += (creditStep*(1+accepted)+creditAccept*accepted)/rows - draftToken*(drafted-accepted)
	p.credit = max(min(p.credit, creditMost), 0)
	if drafted > 0 {
		p.limit = 2*accepted + 1
	}
}

// propose drafts tokens for the decoding rows of the step, as far as it stays small. The pages that drafts need are taken
// only where nobody else wants them, and given back after the step.
func (r *run) propose() {
	c := &r.e.cfg
	room := min(c.SpeculationRows, c.BatchTokens) - r.planned
	if c.NoSpeculation || room <= 0 {
		return
	}
	longest := 0
	for _, s := range r.running {
		longest = max(longest, r.guess(s, room))
	}
	if longest == 0 {
		return
	}
	// All get the same, and those that want less leave the rest to the others.
	each := longest
	for ; each > 0; each-- {
		sum := 0
		for _, s := range r.running {
			sum += min(len(s.drafted()), each)
		}
		if sum <= room {
			break
		}
	}
	for _, s := range r.running {
		if g := s.spec.guess; g != nil && len(g.draft) > 0 {
			g.draft = g.draft[:r.housed(s, min(each, len(g.draft)))]
			r.planned += len(g.draft)
		}
	}
}

// guess makes a sequence's draft of at most n tokens and returns its length.
func (r *run) guess(s *sequence, n int) int {
	p := &s.spec
	if p.guess != nil {
		p.guess.draft = p.guess.draft[:0]
	}
	// The last token that may be generated need not be computed.
	n = min(n, p.limit, p.credit/draftToken, s.params.MaxTokens-s.generated()-1)
	if p.off || n <= 0 || s.share != 1 || s.pending() != 1 {
		return 0
	}
	if p.guess == nil {
		p.guess = r.lend()
	}
	match := draft.MinMatch
	if p.credit < creditLow {
		match = carefulMatch
	}
	g := p.guess
	g.draft = g.index.Propose(s.tokens, n, match, g.draft)
	if !s.params.IgnoreEOS {
		for i, id := range g.draft {
			if r.ends(id) { // sampled it may be, computed never
				g.draft = g.draft[:i]
				break
			}
		}
	}
	return len(g.draft)
}

// housed makes room in a sequence's pages for n drafted tokens, or for as many as fit without taking a page that anybody
// may want: one that holds a prompt's prefix, as long as more rows may come.
func (r *run) housed(s *sequence, n int) int {
	tokens := len(s.tokens) + n
	if tokens <= s.table.Tokens() {
		return n
	}
	spare := r.pool.Free()
	if !r.eof || len(r.waiting) > 0 {
		spare -= r.pool.Idle()
	}
	if missing := kv.PagesFor(tokens) - len(s.table.Pages()); missing <= spare && r.pool.Grow(&s.table, tokens) {
		return n
	}
	return max(s.table.Tokens()-len(s.tokens), 0)
}

// lend hands out a guesser for a text it does not know yet.
func (r *run) lend() *guesser {
	if n := len(r.guessers); n > 0 {
		g := r.guessers[n-1]
		r.guessers = r.guessers[:n-1]
		return g
	}
	return &guesser{index: draft.NewIndex(), draft: make([]int32, 0, r.e.cfg.SpeculationRows)}
}

// takeBack ends a sequence's drafts until it decodes again.
func (r *run) takeBack(s *sequence) {
	if g := s.spec.guess; g != nil {
		g.index.Reset()
		g.draft = g.draft[:0]
		r.guessers = append(r.guessers, g)
		s.spec.guess = nil
	}
}
