package infer

import "time"

// Stats are the engine's figures since New, over all runs.
type Stats struct {
	BatchTokens int   // token budget of a step
	MaxSeqs     int   // most rows in flight
	Steps       int64 // forward passes, failed ones included
	FailedSteps int64

	// Tokens computed by steps that succeeded. Prefill are prompt tokens and Decode completion tokens fed back, each
	// counted the first time; Recomputed are those computed again after a preemption or a failed step.
	PrefillTokens, DecodeTokens, RecomputedTokens int64
	SampledTokens                                 int64 // tokens chosen, end tokens included

	// DraftedTokens were computed ahead of their choice; AcceptedTokens are those of them that were then chosen, and are
	// DecodeTokens too. The others are counted nowhere else.
	DraftedTokens, AcceptedTokens int64

	// CachedTokens are prompt tokens taken from pages that another row computed; PrefillTokens and they are all tokens of
	// the prompts.
	CachedTokens int64
	SharedPeak   int // most pages that were held by several rows at once

	Fill  float64 // tokens per step over BatchTokens; 0 before the first step
	Waste float64 // share of the computed tokens that were Recomputed; on the CPU nothing is padded

	KVPages, KVUsed, KVPeak int // pages: in all, held now, most held at once
	KVPageBytes             int64
	Preemptions             int64

	Running, Waiting  int   // rows in flight; rows taken but not in flight (preempted, or not admitted yet)
	Completed, Failed int64 // rows that left the engine: all, and those with an error

	// Of steps that only decode: their number, and the durations that half of them and 99 in 100 do not exceed, within
	// 3 %.
	DecodeSteps                  int64
	DecodeStepP50, DecodeStepP99 time.Duration

	EngineTime time.Duration // time in steps: forward pass, sampling, text; not waiting for the source or the sink
}

// KVPeakBytes is the memory of the most pages held at once.
func (s Stats) KVPeakBytes() int64 { return int64(s.KVPeak) * s.KVPageBytes }

// StepStats are the figures of one step.
type StepStats struct {
	Step                        int64
	Rows                        int // sequences in the batch
	Prefill, Decode, Recomputed int // tokens, as in Stats
	Sampled                     int
	Drafted, Accepted           int // tokens, as in Stats
	Cached                      int // prompt tokens that rows started in this step took from shared pages
	Running, Waiting            int // after the step
	KVUsed, KVPages             int
	Duration                    time.Duration
	Err                         error // why the whole step failed, else nil
}

// Stats returns the figures up to the last finished step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.DecodeSteps = e.decoded.n
	s.DecodeStepP50, s.DecodeStepP99 = e.decoded.at(0.5), e.decoded.at(0.99)
	tokens := s.PrefillTokens + s.DecodeTokens + s.RecomputedTokens
	if good := s.Steps - s.FailedSteps; good > 0 {
		s.Fill = float64(tokens) / (float64(good) * float64(s.BatchTokens))
	}
	if tokens > 0 {
		s.Waste = float64(s.RecomputedTokens) / float64(tokens)
	}
	return s
}
