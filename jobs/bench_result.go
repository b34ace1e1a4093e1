package jobs

// BenchResult is what the machine did. Rates are the best of the repeats; shares are of the ceilings measured beside them,
// and null where a ceiling is not known.
type BenchResult struct {
	Model       string  `json:"model"`
	ModelDigest string  `json:"model_digest"`
	Device      string  `json:"device"`
	CPU         string  `json:"cpu"`
	Activations string  `json:"activations"`
	Repeat      int     `json:"repeat"`
	WeightBytes int64   `json:"weight_bytes"` // in memory
	FileBytes   int64   `json:"file_bytes"`   // the same as stored
	Load        float64 `json:"load_s"`
	PeakRSS     *int64  `json:"peak_rss_bytes"`

	Ceilings    *BenchCeilings    `json:"ceilings,omitempty"`
	Prefill     *BenchPrefill     `json:"prefill,omitempty"`
	Decode      []BenchDecode     `json:"decode,omitempty"`
	Prefix      *BenchPrefix      `json:"prefix,omitempty"`
	Speculation *BenchSpeculation `json:"speculation,omitempty"`
	Long        *BenchLong        `json:"long,omitempty"`
	Jobs        []BenchJob        `json:"jobs,omitempty"`
}

// BenchCeilings are what the machine could do at best. Bandwidth is in GB (1e9 bytes) a second, operations in 1e9 a second
// by all threads; an operation is a multiplication or an addition.
type BenchCeilings struct {
	ReadOne     float64  `json:"read_one_thread_gb_s"` // from a buffer of BufferBytes
	ReadAll     float64  `json:"read_all_threads_gb_s"`
	BufferBytes int64    `json:"buffer_bytes"`
	CacheBytes  int64    `json:"last_cache_bytes"`  // as the system says; 0: it does not
	BeyondCache bool     `json:"beyond_cache"`      // the buffer is at least twice the last cache
	ReadWeights float64  `json:"read_weights_gb_s"` // all threads, again and again from a buffer as large as the weights
	F32         *float64 `json:"f32_gop_s"`
	Int8        *float64 `json:"int8_gop_s"`
}

// BenchPrefill: whole prompts, with the logits of each one's last token.
type BenchPrefill struct {
	PromptTokens int      `json:"prompt_tokens"`
	Prompts      int      `json:"prompts"`
	Rate         float64  `json:"tokens_per_s"`
	Gops         float64  `json:"gop_s"`
	PeakShare    *float64 `json:"peak_share"`
}

// BenchDecode: sequences that decode at once, head included. Bandwidth is the weights read once a step.
type BenchDecode struct {
	Seqs           int      `json:"seqs"`
	Past           int      `json:"past"`
	Rate           float64  `json:"tokens_per_s"`
	Gops           float64  `json:"gop_s"`
	PeakShare      *float64 `json:"peak_share"`
	Bandwidth      float64  `json:"weights_gb_s"`
	BandwidthShare *float64 `json:"bandwidth_share"`
	StepP50        float64  `json:"step_p50_ms"`
	StepP99        float64  `json:"step_p99_ms"`
	StepMax        float64  `json:"step_max_ms"`
	StepsMeasured  int      `json:"steps"`
	AllocsPerStep  float64  `json:"allocs_per_step"`
	BytesPerStep   float64  `json:"alloc_bytes_per_step"`
}

// BenchPrefix: rows with a common beginning, with prefixes shared and not. Analytic is the work without sharing over the
// work with it, attention included.
type BenchPrefix struct {
	Rows         int     `json:"rows"`
	PrefixTokens int     `json:"prefix_tokens"`
	OwnTokens    int     `json:"own_tokens"`
	Cached       int     `json:"cached_tokens"`
	Shared       float64 `json:"shared_s"`
	Apart        float64 `json:"apart_s"`
	Gain         float64 `json:"gain"`
	Analytic     float64 `json:"analytic_gain"`
	OfAnalytic   float64 `json:"of_analytic"`
	Equal        bool    `json:"equal_results"`
}

// BenchSpeculation: one sequence that repeats itself, with drafts of what may come and without. How much is gained depends on
// the text; that both give the same does not.
type BenchSpeculation struct {
	Period   int     `json:"period"`
	Tokens   int     `json:"tokens"`
	Rate     float64 `json:"tokens_per_s"`
	Plain    float64 `json:"plain_tokens_per_s"`
	Gain     float64 `json:"gain"`
	Steps    int64   `json:"steps"`
	Drafted  int64   `json:"drafted"`
	Accepted int64   `json:"accepted"`
	Equal    bool    `json:"equal_results"`
}

// BenchLong: one long prompt against one of PromptTokens.
type BenchLong struct {
	PromptTokens int     `json:"prompt_tokens"`
	Rate         float64 `json:"tokens_per_s"`
	ShortTokens  int     `json:"short_tokens"`
	ShortRate    float64 `json:"short_tokens_per_s"`
	Ratio        float64 `json:"ratio"`
}

// BenchJob is a whole job: read JSONL, tokenise, compute, write Parquet. Seconds do not hold the loading of the model.
type BenchJob struct {
	Profile          string   `json:"profile"`
	Rows             int64    `json:"rows"`
	PromptTokens     int64    `json:"prompt_tokens"`
	CompletionTokens int64    `json:"completion_tokens"`
	Seconds          float64  `json:"seconds"`
	EngineSeconds    float64  `json:"engine_s"`
	RowsPerSecond    float64  `json:"rows_per_s"`
	TokensPerSecond  float64  `json:"tokens_per_s"` // prompt and completion tokens
	Fill             *float64 `json:"fill"`
	Gops             float64  `json:"gop_s"` // over the engine's time
	PeakShare        *float64 `json:"peak_share"`
}
