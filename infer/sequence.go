package infer

import (
	"slices"
	"strings"
	"time"

	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/internal/row"
)

// sequence is a request on its way. KV pages come and go; everything else only grows, so that a preempted row goes on
// exactly where it was.
type sequence struct {
	id     int64
	order  int64 // order of arrival: the larger, the younger
	tenant string
	params Params
	seed   int64
	mask   TokenMask

	tokens   []int32 // prompt, then completion
	prompt   int     // length of the prompt
	computed int     // tokens whose KV is in the table's pages
	farthest int     // most tokens ever computed or taken from shared pages; those below it are recomputed ones
	cached   int     // prompt tokens taken from shared pages at the first start
	share    int     // tokens in the step that is being planned
	table    kv.Table
	spec     speculation
	match    kv.Match // of a waiting sequence: the prefix it can take, or waits for

	// After a step that failed as a whole a row runs alone until it is past the place where that happened.
	alone      bool
	aloneUntil int // tokens computed
	attempts   int

	hist     *history // nil without penalties
	decoder  Decoder
	stops    stopMatcher
	text     strings.Builder
	logprobs []row.TokenLogprob

	entered, scheduled, first, last time.Time
}

// tokenReserve is the room for completion tokens that a sequence allocates at the start; longer ones grow by doubling.
const tokenReserve = 256

func newSequence(r *Request, p Params, order int64, t Tokenizer) *sequence {
	s := &sequence{
		id: r.ID, order: order, tenant: r.Tenant, params: p, seed: r.Seed, mask: r.Mask, prompt: len(r.Tokens), attempts: 1,
		spec: newSpeculation(), entered: r.Entered, decoder: t.NewDecoder(), stops: stopMatcher{stops: p.Stop},
	}
	s.tokens = append(make([]int32, 0, len(r.Tokens)+min(p.MaxTokens, tokenReserve)), r.Tokens...)
	if p.penalises() {
		s.hist = newHistory(r.Tokens)
	}
	if p.Logprobs >= 0 {
		s.logprobs = make([]row.TokenLogprob, 0, min(p.MaxTokens, tokenReserve))
	}
	return s
}

func (s *sequence) generated() int { return len(s.tokens) - s.prompt }

// pending is the number of tokens to compute before the next one can be sampled.
func (s *sequence) pending() int { return len(s.tokens) - s.computed }

// outcome is how a row ended; the zero value says that it goes on.
type outcome struct {
	reason  row.FinishReason
	stop    string
	hasStop bool
	err     *row.Error
}

func failed(err *row.Error) outcome { return outcome{reason: row.FinishError, err: err} }

// accept takes a token that was sampled and tells whether the row ends with it.
func (s *sequence) accept(c choice, t Tokenizer, eos []int32) outcome {
	if !s.params.IgnoreEOS && slices.Contains(eos, c.id) {
		text, _ := t.Token(c.id)
		return s.end(row.FinishStop, text)
	}
	if s.mask != nil {
		if err := s.mask.Accept(c.id); err != nil {
			return failed(row.Errorf(row.InvalidConstraint, "the constraint failed at completion token %d: %v", s.generated()+1, err))
		}
	}
	s.tokens = append(s.tokens, c.id)
	if s.hist != nil {
		s.hist.add(c.id)
	}
	if s.params.Logprobs >= 0 {
		s.logprobs = append(s.logprobs, c.describe(t))
	}
	released, stop, found := s.stops.push(s.decoder.Push(c.id))
	s.text.WriteString(released)
	if found {
		return outcome{reason: row.FinishStop, stop: stop, hasStop: true}
	}
	if s.generated() >= s.params.MaxTokens {
		return s.end(row.FinishLength, "")
	}
	return outcome{}
}

// end releases the text that was held back: bytes of an unfinished character, and the start of a stop string.
func (s *sequence) end(reason row.FinishReason, endToken string) outcome {
	released, stop, found := s.stops.push(s.decoder.Flush())
	s.text.WriteString(released)
	if found {
		return outcome{reason: row.FinishStop, stop: stop, hasStop: true}
	}
	s.text.WriteString(s.stops.flush())
	return outcome{reason: reason, stop: endToken, hasStop: reason == row.FinishStop}
}

// stamp takes down that tokens were sampled up to now, and whether one of them was added to the completion.
func (s *sequence) stamp(now time.Time, added bool) {
	if s.first.IsZero() {
		s.first, s.last = now, now
	}
	if added {
		s.last = now
	}
}

// completion is the report of a row that ended at now.
func (s *sequence) completion(o outcome, now time.Time) Completion {
	if o.err != nil {
		s.end(row.FinishError, "")
	}
	c := Completion{
		ID: s.id, Text: s.text.String(), TokenIDs: slices.Clone(s.tokens[s.prompt:]),
		FinishReason: o.reason, StopReason: o.stop, HasStop: o.hasStop,
		PromptTokens: s.prompt, CachedTokens: s.cached, CompletionTokens: s.generated(),
		Attempts: s.attempts, Logprobs: s.logprobs, Err: o.err,
	}
	if s.scheduled.IsZero() {
		c.Attempts = 0
		return c
	}
	if s.first.IsZero() {
		s.first, s.last = now, now
	}
	c.Times = row.Times{Queue: s.scheduled.Sub(s.entered), Prefill: s.first.Sub(s.scheduled), Decode: s.last.Sub(s.first)}
	return c
}
