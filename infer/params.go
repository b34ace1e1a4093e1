package infer

import (
	"errors"

	"github.com/batchmill/batchmill/internal/row"
)

// Limits on what a row may ask for. They bound the work and memory of one row, and catch slips of the pen.
const (
	// MaxStops and MaxStopBytes bound the search for stop strings, which runs after every token.
	MaxStops     = 64
	MaxStopBytes = 4096
	// MaxTopLogprobs is OpenAI's limit; each of them costs about 60 bytes per token in every output row.
	MaxTopLogprobs = 20
	// MinTemperature is the least one above 0: below it the division of logits would leave float64's range, and the
	// result is greedy anyway.
	MinTemperature = 1e-4
	// MaxTemperature is far above where text turns to noise; a larger one is a mistake.
	MaxTemperature = 100
	// DefaultMaxTokens is the completion's length where none is asked for, if the context has that much room.
	DefaultMaxTokens = 256
)

// Params say how one row is sampled. The order in which they act is fixed, that of transformers and OpenAI: repetition
// penalty, presence and frequency penalty, temperature, top_k, top_p, min_p. Start from DefaultParams, not from the zero
// value: a top_p of 0 means the one most likely token, and a repetition_penalty of 0 is refused.
type Params struct {
	MaxTokens int `json:"max_tokens"` // most completion tokens; 0: min(DefaultMaxTokens, room in the context), filled in by Engine.Check

	Temperature float64 `json:"temperature"` // 0 is greedy: the largest logit after penalties, the lowest id among equals
	TopK        int     `json:"top_k"`       // keep the k most likely tokens and all equal to the k-th; 0 is off
	TopP        float64 `json:"top_p"`       // keep the fewest most likely tokens, at least one, whose probability reaches it; 1 is off
	MinP        float64 `json:"min_p"`       // drop tokens less likely than MinP times the most likely; 0 is off

	RepetitionPenalty float64 `json:"repetition_penalty"` // divides positive and multiplies negative logits of all tokens seen; 1 is off
	PresencePenalty   float64 `json:"presence_penalty"`   // subtracted once from the logit of a token generated before
	FrequencyPenalty  float64 `json:"frequency_penalty"`  // subtracted as often as the token was generated before

	Stop           []string `json:"stop"`             // texts that end the completion and are cut from it
	IgnoreEOS      bool     `json:"ignore_eos"`       // end tokens are ordinary tokens
	Logprobs       int      `json:"logprobs"`         // -1 off; k: log-probability of each token and of the k most likely
	ReturnTokenIDs bool     `json:"return_token_ids"` // for the writer; the engine always gives them
}

// DefaultParams are those of a row that asks for nothing: greedy, all filters off.
func DefaultParams() Params {
	return Params{TopP: 1, RepetitionPenalty: 1, Logprobs: -1}
}

// Validate tells which parameter is out of range, as far as that does not depend on a row.
func (p *Params) Validate() error {
	if err := p.check(); err != nil {
		return errors.New(err.Message)
	}
	return nil
}

// check tells which parameter is out of range. It does not look at MaxTokens' upper end, which depends on the prompt.
func (p *Params) check() *row.Error {
	bad := func(format string, args ...any) *row.Error { return row.Errorf(row.InvalidParams, format, args...) }
	if p.MaxTokens < 0 {
		return bad("max_tokens is %d; give at least 1, or leave it out for the default", p.MaxTokens)
	}
	for _, v := range []struct {
		name     string
		val      float64
		min, max float64
		hint     string
	}{
		{"temperature", p.Temperature, 0, MaxTemperature, "0 is greedy"},
		{"top_p", p.TopP, 0, 1, "1 is off"},
		{"min_p", p.MinP, 0, 1, "0 is off"},
		{"repetition_penalty", p.RepetitionPenalty, 1e-2, 100, "1 is off, above it repetition is discouraged"},
		{"presence_penalty", p.PresencePenalty, -100, 100, "0 is off"},
		{"frequency_penalty", p.FrequencyPenalty, -100, 100, "0 is off"},
	} {
		if !(v.val >= v.min && v.val <= v.max) { // also refuses NaN
			return bad("%s is %v, outside %g to %g; %s", v.name, v.val, v.min, v.max, v.hint)
		}
	}
	if p.Temperature > 0 && p.Temperature < MinTemperature {
		return bad("temperature is %v; use 0 for greedy or at least %v", p.Temperature, MinTemperature)
	}
	if p.TopK < 0 {
		return bad("top_k is %d; use 0 to switch it off", p.TopK)
	}
	if p.Logprobs < -1 || p.Logprobs > MaxTopLogprobs {
		return bad("logprobs is %d, outside 0 to %d", p.Logprobs, MaxTopLogprobs)
	}
	if len(p.Stop) > MaxStops {
		return bad("%d stop strings; at most %d are allowed", len(p.Stop), MaxStops)
	}
	for i, s := range p.Stop {
		if s == "" {
			return bad("stop string %d is empty, which would end every completion at once; remove it", i+1)
		}
		if len(s) > MaxStopBytes {
			return bad("stop string %d has %d bytes; at most %d are allowed", i+1, len(s), MaxStopBytes)
		}
	}
	return nil
}

func (p *Params) penalises() bool {
	return p.RepetitionPenalty != 1 || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}
