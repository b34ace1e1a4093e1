package row

import "time"

// Status is a row's final state.
type Status string

// The states in which a row leaves a job.
const (
	OK      Status = "ok"
	Failed  Status = "error"
	Skipped Status = "skipped"
)

// FinishReason says why a completion ended.
type FinishReason string

// Stop: an end token or a stop string. Length: max_tokens or the context cut it. FinishError: it failed on the way.
const (
	FinishStop   FinishReason = "stop"
	FinishLength FinishReason = "length"
	FinishError  FinishReason = "error"
)

// Result is what one unit of work came to. Completion may stand beside an error: text that came before it is kept.
type Result struct {
	Key      UnitKey
	CustomID *string
	Status   Status
	Err      *Error // set when Status is Failed

	Completion   *string
	FinishReason FinishReason // "" is null
	StopReason   *string      // the stop string or the end token's text that ended it

	PromptTokens     int32
	CachedTokens     int32 // prompt tokens served from shared pages
	CompletionTokens int32

	Times    *Times // nil where the unit never entered the engine
	Attempts int32  // engine runs of this unit; 0 for a copy
	DedupOf  *int64 // row index, in the same source, of the row that this one copies
	Seed     int64

	Logprobs []TokenLogprob // nil unless asked for
	TokenIDs []int32        // completion ids, the end token excluded; nil unless asked for
}

// Times are a unit's latencies on the monotonic clock, from the moment it entered the engine's queue.
type Times struct {
	Queue   time.Duration // entered -> first scheduled
	Prefill time.Duration // first scheduled -> first token
	Decode  time.Duration // first -> last token
}

// TTFT is the time to the first token: Queue + Prefill.
func (t Times) TTFT() time.Duration { return t.Queue + t.Prefill }

// E2E is Queue + Prefill + Decode.
func (t Times) E2E() time.Duration { return t.Queue + t.Prefill + t.Decode }

// TPOT is the time per output token after the first; ok is false below two tokens, where it is undefined.
func (t Times) TPOT(completionTokens int32) (d time.Duration, ok bool) {
	if completionTokens < 2 {
		return 0, false
	}
	return t.Decode / time.Duration(completionTokens-1), true
}

// TokenLogprob is one entry of OpenAI's logprobs.content, with the token's id beside it. A logprob of minus infinity
// is written as null.
type TokenLogprob struct {
	ID      int32
	Token   string // the token's bytes as text, invalid UTF-8 as U+FFFD
	Bytes   []byte
	Logprob float64 // natural logarithm
	Top     []TokenLogprob
}
