package infer

import (
	"context"
	"time"

	"github.com/batchmill/batchmill/internal/row"
)

// Request is one unit of work: a prompt and how to continue it.
type Request struct {
	ID     int64   // the caller's name for it; the engine only hands it back
	Tokens []int32 // the whole prompt, special tokens included; not changed
	Params Params
	Seed   int64  // decides the draws, together with the position in the completion
	Tenant string // requests of different tenants never share pages

	// Mask constrains the completion; nil where it is free.
	Mask TokenMask

	// Entered is when the request began to wait. The engine sets it on taking the request where it is zero; a caller
	// that queues requests itself may set it earlier, so that queue time covers that wait too.
	Entered time.Time
}

// Source hands out requests in the order in which they should start.
type Source interface {
	// Next returns the next request. With wait false it returns nil, nil when none is ready right now; with wait true it
	// blocks until there is one, until ctx is done, or until there never will be another: io.EOF. After io.EOF it is not
	// called again. Any other error ends the run. It is called by Run's goroutine only.
	Next(ctx context.Context, wait bool) (*Request, error)
}

// Completion is what a request came to.
type Completion struct {
	ID   int64
	Text string // special tokens left out; cut before a stop string; kept where an error came later

	// TokenIDs are the sampled tokens, the end token left out. With a stop string they run up to and with the token that
	// completed it, so they can hold more than Text. CompletionTokens is their number, and Logprobs, where asked for,
	// has as many entries.
	TokenIDs     []int32
	FinishReason row.FinishReason
	StopReason   string // the stop string, or the end token's text; meaningful with HasStop
	HasStop      bool

	// CachedTokens are the prompt tokens that were taken from pages of other rows when this one first started.
	PromptTokens, CachedTokens, CompletionTokens int

	// Times: Queue is Entered to the start of the first step with a token of the row, Prefill from there to its first
	// sampled token, Decode from that to the last token counted in CompletionTokens. A row that failed before its first
	// token has its time up to the failure in Prefill; one that was refused before its first step has none.
	Times row.Times

	// Attempts counts the times the row was started: 1, and one more for each failed step that it was part of. 0 where
	// it was refused before its first step. A preemption is no attempt, since nothing is chosen again.
	Attempts int

	Logprobs []row.TokenLogprob // nil unless asked for
	Err      *row.Error
}
