package jobs

import (
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/pipeline"
)

// Summary is the last word of a run, as one JSON line under --json. Names are stable. Rows cover this process's shards,
// earlier commits included; times and throughput this run only. A figure that is undefined is null.
type Summary struct {
	Status     string             `json:"status"` // ok, error, interrupted
	ExitCode   int                `json:"exit_code"`
	RunID      string             `json:"run_id"`
	Rows       RowCounts          `json:"rows"`
	Errors     map[row.Code]int64 `json:"errors"`
	Tokens     TokenCounts        `json:"tokens"`
	Time       TimeSummary        `json:"time"`
	Throughput Throughput         `json:"throughput"`
	Sharing    SharingSummary     `json:"sharing"`
	Speculated SpeculationSummary `json:"speculation"`
	Batch      BatchSummary       `json:"batch"`
	KV         KVSummary          `json:"kv"`
	Memory     MemorySummary      `json:"memory"`
	Journal    JournalSummary     `json:"journal"`
	Inputs     InputSummary       `json:"inputs"`
	Output     OutputSummary      `json:"output"`
	Message    string             `json:"message"`

	Worked bool `json:"-"` // the attempt came as far as working on rows, or found that all was done
}

// TimeSummary gives seconds. Journal and Commit are processor time beside the engine, spent on chunks of the journal and on
// assembling, sealing and storing parts; CommitWait is how long the engine stood still for them, at most, and after its last row.
type TimeSummary struct {
	Wall   float64 `json:"wall_s"`
	Load   float64 `json:"load_s"`
	Engine float64 `json:"engine_s"`

	Journal    float64 `json:"journal_cpu_s"`
	Commit     float64 `json:"commit_cpu_s"`
	CommitWait float64 `json:"commit_wait_s"`
}

// Throughput is over the time in which the engine ran; decode tokens are all completion tokens.
type Throughput struct {
	Prefill *float64 `json:"prefill_tokens_per_s"`
	Decode  *float64 `json:"decode_tokens_per_s"`
	Rows    *float64 `json:"rows_per_s"`
}

// SharingSummary is the work that was done once for several rows. PromptShare is the share of prompt tokens that came from
// shared pages, among the rows that ran; copies are the rows that did not, since an equal one had.
type SharingSummary struct {
	PromptShare      *float64 `json:"prompt_share"`
	Copies           int64    `json:"copies"`
	CopiedPrompt     int64    `json:"copied_prompt_tokens"`
	CopiedCompletion int64    `json:"copied_completion_tokens"`
}

// BatchSummary: Fill is the mean share of the token budget that steps used; Waste the share of computed tokens that were
// computed again, after a preemption or a failed step (nothing is padded on the CPU); Buckets describes the prompts that
// went into the window by the upper length of their bucket, a power of two. Preemptions are rows that gave up their pages to
// others and were computed again; Recomputed are the tokens of that and of failed steps.
type BatchSummary struct {
	Steps       int64                 `json:"steps"`
	Fill        *float64              `json:"fill"`
	Waste       *float64              `json:"waste"`
	Preemptions int64                 `json:"preemptions"`
	Recomputed  int64                 `json:"recomputed_tokens"`
	Buckets     map[int]BucketSummary `json:"buckets"`
}

// SpeculationSummary counts tokens that were computed ahead of their choice, and those of them that were then chosen.
type SpeculationSummary struct {
	Drafted  int64 `json:"drafted"`
	Accepted int64 `json:"accepted"`
}

// BucketSummary counts the prompts of a range of lengths. Fill is their mean length over the bucket's upper one, and
// WastedSlots what padding all of them to it would waste on a device that pads.
type BucketSummary struct {
	Rows        int64    `json:"rows"`
	Tokens      int64    `json:"tokens"`
	Fill        *float64 `json:"fill"`
	WastedSlots int64    `json:"wasted_slots"`
}

// bucketSummaries describes a window's buckets.
func bucketSummaries(buckets map[int]pipeline.Bucket) map[int]BucketSummary {
	out := make(map[int]BucketSummary, len(buckets))
	for upper, b := range buckets {
		slots := b.Rows * int64(upper)
		out[upper] = BucketSummary{Rows: b.Rows, Tokens: b.Tokens, Fill: ratio(float64(b.Tokens), float64(slots)), WastedSlots: slots - b.Tokens}
	}
	return out
}

// KVSummary counts pages of the pool; PeakBytes is the most that was in use.
type KVSummary struct {
	Pages     int64 `json:"pages"`
	PeakBytes int64 `json:"peak_bytes"`
}

// MemorySummary is the process's peak resident set; null where the system does not tell.
type MemorySummary struct {
	PeakRSS *int64 `json:"peak_rss_bytes"`
}

// JournalSummary counts units: those that earlier attempts had journalled, and those that this one did, with their chunks.
type JournalSummary struct {
	Resumed int64 `json:"resumed"`
	Units   int64 `json:"units"`
	Chunks  int64 `json:"chunks"`
}

// InputSummary counts files: those of the plan, those that cannot be read, and those that match by now but came after
// the plan and are left out.
type InputSummary struct {
	Files   int `json:"files"`
	Broken  int `json:"broken"`
	LeftOut int `json:"left_out"`
}

// OutputSummary says where the parts are.
type OutputSummary struct {
	URL   string `json:"url"`
	Parts int    `json:"parts"`
}

// ratio is a/b, or nil where it is undefined.
func ratio(a, b float64) *float64 {
	if b <= 0 {
		return nil
	}
	r := a / b
	return &r
}
