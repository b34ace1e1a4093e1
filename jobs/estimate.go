package jobs

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/pipeline"
	"github.com/batchmill/batchmill/readers"
)

// DefaultEstimateRows is how many rows an estimate tokenises: enough for a mean within a few percent, done in a second.
const DefaultEstimateRows = 2000

// Estimate says what a run would take. Where Exact is false, Rows, PromptTokens and MaxOutputTokens are extrapolated from
// the rows that were read. What is named sampled, and what is said of the shortest, the median and the longest row, is about
// those rows alone: how many fail, are equal or begin alike does not grow with their number.
type Estimate struct {
	Model           string             `json:"model"`
	ModelDigest     string             `json:"model_digest"`
	Inputs          int                `json:"inputs"`
	InputBytes      int64              `json:"input_bytes"`
	Shards          int                `json:"shards"`
	Exact           bool               `json:"exact"`
	Sampled         int64              `json:"sampled_rows"`
	Failing         int64              `json:"sampled_error_rows"`
	Errors          map[row.Code]int64 `json:"sampled_errors"`
	SampledTokens   int64              `json:"sampled_prompt_tokens"`
	SharedTokens    int64              `json:"sampled_shared_prompt_tokens"` // of SampledTokens: need not be computed, since another row's prompt begins alike
	Copies          int64              `json:"sampled_copies"`               // requests of these rows that are equal to an earlier one of their file, and are not run
	CopiedTokens    int64              `json:"sampled_copied_prompt_tokens"` // of SampledTokens: those of the copies
	Warnings        []string           `json:"sampled_warnings"`             // of what a person should know about the data and what fails no row
	Rows            int64              `json:"rows"`
	PromptTokens    int64              `json:"prompt_tokens"`
	Shortest        int                `json:"prompt_tokens_min"`
	Median          int                `json:"prompt_tokens_median"`
	Longest         int                `json:"prompt_tokens_max"`
	MaxOutputTokens int64              `json:"max_output_tokens"`
	WeightBytes     int64              `json:"weight_bytes"`
	KVLongest       int64              `json:"kv_longest_row_bytes"`
	KVMemory        int64              `json:"kv_memory_bytes"`
	MemoryCeiling   int64              `json:"memory_ceiling_bytes"`
	Available       int64              `json:"memory_available_bytes"`
	Output          string             `json:"output"`
	Broken          []string           `json:"broken"`     // why inputs cannot be read; the job leaves them out
	LeftOut         int                `json:"left_out"`   // files that match, but came after the stored plan
	Done            int                `json:"parts_done"` // parts that an earlier run of this job has committed
	OtherJob        string             `json:"other_job"`  // why the output cannot take this job; "" if it can
	Format          string             `json:"format"`
}

// processOverhead is what a run holds besides weights, KV pages, window and results kept for copies: the program, buffers of readers and writers.
const processOverhead = 200 << 20

// Estimate renders and tokenises up to a number of rows (0 = all), without loading the model.
func (j *Job) Estimate(ctx context.Context, sample int64) (*Estimate, error) {
	conf := j.config
	e := &Estimate{
		Model: j.bundle.Name, ModelDigest: j.bundle.Digest, Inputs: len(j.plan.Inputs), Shards: len(j.plan.Shards),
		Errors: map[row.Code]int64{}, Warnings: []string{}, Output: j.layout.shown(), Format: j.plan.Decides.Format,
	}
	for _, in := range j.plan.Inputs {
		e.InputBytes += in.Size
	}
	if err := e.memory(ctx, j); err != nil {
		return nil, err
	}
	var most int // pages of one row
	check := func(n int, p *infer.Params) *row.Error {
		if err := infer.CheckContext(n, p, j.maxLen()); err != nil {
			return err
		}
		most = max(most, infer.PagesOf(n, p))
		if pages := infer.PoolPages(e.KVMemory, conf.KVBytesPerPage); pages > 0 { // else there is not enough memory for the weights, which is said
			return infer.CheckPool(n, p, pages, conf.KVBytesPerPage)
		}
		return nil
	}
	prompt := j.prompt
	prompt.Warn = func(message string) { e.Warnings = append(e.Warnings, message) }
	prep := pipeline.NewPreparer(prompt, j.bundle.Tokenizer, conf.VocabSize, check)
	var lengths []int
	var outputs int64
	sharing := newSharingEstimate(&j.spec)
	complete := true
	for n := range j.plan.Shards {
		if !j.spec.Shard.Has(n) {
			continue
		}
		if sample > 0 && e.Sampled >= sample {
			complete = false
			break
		}
		in := newSegmentReader(ctx, j.store, j.plan, n, readers.Options{Columns: prep.Columns(), MaxLineBytes: j.spec.MaxLineBytes})
		for {
			if sample > 0 && e.Sampled >= sample {
				complete = false
				break
			}
			rec, err := in.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				in.Close()
				return nil, err
			}
			e.Sampled++
			units, _, rerr := prep.Prepare(rec)
			if rerr != nil {
				e.Failing++
				e.Errors[rerr.Code]++
				continue
			}
			for _, u := range units {
				lengths = append(lengths, len(u.Request.Tokens))
				e.SampledTokens += int64(len(u.Request.Tokens))
				outputs += int64(u.Request.Params.MaxTokens)
				sharing.add(u)
			}
		}
		in.Close()
	}
	slices.Sort(lengths)
	if len(lengths) > 0 {
		e.Shortest, e.Median, e.Longest = lengths[0], lengths[len(lengths)/2], lengths[len(lengths)-1]
	}
	e.SharedTokens, e.Copies, e.CopiedTokens = sharing.close()
	e.extrapolate(j, outputs, complete)
	e.KVLongest = int64(most) * conf.KVBytesPerPage
	if err := e.output(ctx, j); err != nil {
		return nil, err
	}
	return e, ctx.Err()
}

// output looks at what the output holds already.
func (e *Estimate) output(ctx context.Context, j *Job) error {
	r := &runState{job: j, facts: map[int]*Facts{}}
	planned, err := r.planned(ctx)
	if err != nil {
		return err
	}
	if !planned {
		err = refuseStray(ctx, j.store, j.layout)
	} else if err = r.adopt(ctx); err == nil {
		_, _, err = r.missing(ctx)
	}
	var known *Error
	if j.spec.Overwrite && errors.As(err, &known) && known.Kind == BadInput {
		return nil
	}
	e.LeftOut = r.leftOut
	for _, in := range j.plan.Inputs {
		if in.Broken != "" {
			e.Broken = append(e.Broken, in.Broken)
		}
	}
	if errors.As(err, &known) && known.Kind == BadInput {
		e.OtherJob = known.Err.Error()
		return nil
	}
	e.Done = len(r.facts)
	return err
}

// memory asks the device how much the weights take, and finds what is left for the KV pool.
func (e *Estimate) memory(ctx context.Context, j *Job) error {
	dev, err := newDevice(j.bundle, deviceOptions{threads: 1, activations: j.spec.Activations})
	if err != nil {
		return err
	}
	defer dev.Close()
	m, err := j.bundle.Estimate(ctx, dev)
	if err != nil {
		return modelError(err)
	}
	e.WeightBytes = m.Unpacked
	if e.KVMemory, err = j.spec.kvMemory(j.config.KVBytesPerPage, e.WeightBytes); err != nil {
		return err
	}
	e.MemoryCeiling = e.WeightBytes + e.KVMemory + pipeline.DefaultWindowBytes + pipeline.DedupBytes + processOverhead
	e.Available, _ = availableMemory()
	return nil
}

// extrapolate scales what the sample came to up to all rows.
func (e *Estimate) extrapolate(j *Job, outputs int64, complete bool) {
	rows := j.plan.rows(j.spec.Shard)
	if complete || e.Sampled == rows || e.Sampled == 0 {
		e.Exact, e.Rows, e.PromptTokens, e.MaxOutputTokens = true, e.Sampled, e.SampledTokens, outputs
		return
	}
	scale := float64(rows) / float64(e.Sampled)
	e.Rows = rows
	e.PromptTokens = int64(scale * float64(e.SampledTokens))
	e.MaxOutputTokens = int64(scale * float64(outputs))
}
