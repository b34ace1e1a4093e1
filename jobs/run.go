package jobs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/bundle"
	"github.com/batchmill/batchmill/infer/chat"
	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/model"
	"github.com/batchmill/batchmill/internal/jinja"
	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/pipeline"
	"github.com/batchmill/batchmill/readers"
	"github.com/batchmill/batchmill/writers"
)

// Events tell a command what happens. Any may be nil. Step is called from the engine's goroutine after every step and
// must return at once; the others come from any goroutine.
type Events struct {
	Planned func(p *Plan, rows int64, exact bool)
	Loaded  func(seconds float64, digest string)
	Step    func(Progress)
	Part    func(url string, f *Facts)
	Warn    func(message string)
}

// Progress is where a run stands.
type Progress struct {
	Rows      int64 // done by this process, committed or not
	Errors    int64
	Total     int64 // of this process's shards
	Exact     bool  // Total is counted, not a lower bound
	RowTokens int64 // prompt and completion tokens of those rows
	PromptTok int64 // prefilled in this run
	OutputTok int64 // decoded in this run
	Engine    infer.Stats
	Elapsed   time.Duration // since the engine started
}

// Job is a job that is planned and can run.
type Job struct {
	spec   Spec
	store  *objstore.Store
	bundle *bundle.Bundle
	config model.Config // of the model, not loaded
	plan   *Plan
	layout layout
	schema *row.Schema
	prompt pipeline.Prompting
	runID  string
	start  time.Time
	events Events
}

// Prepare resolves the model, reads what the inputs are, and makes the plan. Nothing is written.
func Prepare(ctx context.Context, spec Spec, store *objstore.Store, ev Events) (*Job, error) {
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return nil, err
	}
	j := &Job{spec: spec, store: store, runID: newRunID(), start: time.Now(), events: ev}
	var err error
	if j.prompt, err = j.templates(); err != nil {
		return nil, err
	}
	if j.bundle, err = OpenModel(ctx, spec.Model, store, nil); err != nil {
		return nil, err
	}
	if err := j.describe(); err != nil {
		return nil, err
	}
	if most := j.config.MaxPositions; spec.MaxModelLen > most {
		return nil, Errorf(Usage, "", "--max-model-len %d is beyond the %d positions that the model was made for", spec.MaxModelLen, most)
	}
	decides, err := j.decides()
	if err != nil {
		return nil, err
	}
	p := &planner{store: store, spec: &j.spec, names: columnsOf(&j.prompt)}
	if err := p.makePlan(ctx, decides, j.runID, j.start); err != nil {
		return nil, err
	}
	j.plan, j.schema = p.plan, p.schema
	j.prompt.Batch = p.batchShape()
	return j, j.lay()
}

// describe reads what the model is, without loading it.
func (j *Job) describe() error {
	dev, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		return Errorf(Config, "", "start the CPU device: %w", err)
	}
	defer dev.Close()
	if j.config, err = j.bundle.Describe(dev); err != nil {
		return modelError(fmt.Errorf("model %s: %w", j.bundle.Name, err))
	}
	return nil
}

// Plan is the job's plan.
func (j *Job) Plan() *Plan { return j.plan }

// Close releases the model's files.
func (j *Job) Close() error { return j.bundle.Close() }

// lay fixes what follows from the plan: names, the chat template with its clock.
func (j *Job) lay() error {
	var err error
	if j.layout, err = newLayout(j.spec.Output, j.plan.Decides.Format); err != nil {
		return err
	}
	j.layout.parts = len(j.plan.Shards)
	j.prompt.Now = j.plan.TemplateDate
	if src := j.plan.Decides.ChatTemplate; src != "" && !j.spec.Raw {
		j.prompt.Chat, err = chat.New(src, chat.Config{BOS: j.bundle.BOS, EOS: j.bundle.EOS, Now: j.plan.TemplateDate})
		if err != nil {
			if j.spec.ChatTemplate != "" {
				return Errorf(Usage, "templates are Jinja", "--chat-template: %w", err)
			}
			return Errorf(BadInput, "give another with --chat-template FILE, or use --raw", "the model's chat template: %w", err)
		}
	}
	return writersError(writers.Check(j.writerConfig()))
}

func writersError(err error) error {
	if err == nil {
		return nil
	}
	return Errorf(Usage, "rename ours with --output-prefix, or choose with --columns and --output-columns", "output columns: %w", err)
}

func (j *Job) templates() (p pipeline.Prompting, err error) {
	s := &j.spec
	parse := func(flag, src string) (*jinja.Template, error) {
		if src == "" {
			return nil, nil
		}
		t, err := jinja.Parse(flag, src, jinja.Options{Strict: true})
		if err != nil {
			return nil, Errorf(Usage, "templates are Jinja: {{ column }}", "%w", err)
		}
		return t, nil
	}
	if p.Prompt, err = parse("--prompt", s.Prompt); err != nil {
		return p, err
	}
	if p.System, err = parse("--system", s.System); err != nil {
		return p, err
	}
	p.PromptColumn, p.MessagesColumn, p.TokenIDsColumn, p.IDColumn = s.PromptColumn, s.MessagesColumn, s.TokenIDsColumn, s.IDColumn
	p.Raw, p.Kwargs, p.Params, p.Seed, p.Samples = s.Raw, s.ChatTemplateKwargs, s.Params, s.Seed, s.Samples
	return p, nil
}

func (j *Job) decides() (Decides, error) {
	s, b := &j.spec, j.bundle
	given := map[string]any{}
	for k, v := range s.ChatTemplateKwargs {
		given[k] = plain(v)
	}
	kwargs, err := json.Marshal(given)
	if err != nil {
		return Decides{}, Errorf(Usage, "", "chat template kwargs: %w", err)
	}
	d := Decides{
		ResultVersion: resultVersion, ModelDigest: b.Digest, TokenizerDigest: b.Tokenizer.Digest(),
		ChatTemplate: s.ChatTemplate, ChatTemplateKwargs: kwargs, Prompt: s.Prompt, System: s.System,
		PromptColumn: s.PromptColumn, MessagesColumn: s.MessagesColumn, TokenIDsColumn: s.TokenIDsColumn, IDColumn: s.IDColumn,
		Raw: s.Raw, Params: s.Params, MaxModelLen: j.maxLen(), Seed: s.Seed, Samples: s.Samples,
		OutputPrefix: s.OutputPrefix, Columns: s.Columns, OutputColumns: s.OutputColumns,
		InputFormat: s.InputFormat, Limit: s.Limit, SplitBytes: s.SplitBytes, MaxLineBytes: s.MaxLineBytes,
		DeviceKind: "cpu", Activations: "f32",
	}
	if d.ChatTemplate == "" {
		d.ChatTemplate = b.ChatTemplate
	}
	return d, nil
}

// maxLen is the longest sequence: the model's, or less if asked.
func (j *Job) maxLen() int {
	n := j.config.MaxPositions
	if m := j.spec.MaxModelLen; m > 0 && (n == 0 || m < n) {
		n = m
	}
	return n
}

func (j *Job) writerConfig() writers.Config {
	schema := *j.schema
	if j.plan.Columns != nil {
		schema.Columns = j.plan.Columns
	}
	s := &j.spec
	return writers.Config{
		Format: j.plan.Decides.Format, Source: &schema, Prefix: s.OutputPrefix, Carry: s.Columns, Own: s.OutputColumns,
		Provenance: writers.Provenance{Model: j.bundle.Name, ModelDigest: j.bundle.Digest, RunID: j.runID, Created: j.plan.Created},
		Logprobs:   s.Params.Logprobs >= 0, TokenIDs: s.Params.ReturnTokenIDs,
		Footer: []row.KeyValue{{Key: "batchmill.plan_digest", Value: j.plan.Digest}},
	}
}

func newRunID() string {
	var b [8]byte
	rand.Read(b[:])
	return time.Now().UTC().Format("20060102T150405Z-") + hex.EncodeToString(b[:])
}

// Run does what is missing of the job and returns its summary, also beside an error.
func (j *Job) Run(ctx context.Context) (*Summary, error) {
	r := &runState{job: j, facts: map[int]*Facts{}}
	err := r.run(ctx)
	return r.summary(err), r.verdict(err)
}

// runState is one attempt at a job.
type runState struct {
	job    *Job
	loaded *loaded
	engine *infer.Engine
	last   infer.Stats // of the engine, at its end
	window pipeline.WindowStats
	load   time.Duration
	began  time.Time // of the engine

	mu      sync.Mutex
	facts   map[int]*Facts // of committed parts of this process's shards
	live    Facts          // results of this run, committed or not
	total   int64
	exact   bool
	broken  []error
	planTag string // ETag of the stored plan
	leftOut int    // files that match the inputs, but came after the plan
}

func (r *runState) run(ctx context.Context) error {
	j := r.job
	r.live.Errors = map[row.Code]int64{}
	defer r.unload()
	planned, err := r.planned(ctx)
	if err != nil {
		return err
	}
	if !planned || j.spec.Overwrite { // nothing is stored or removed before it is sure that the job can start
		if err := r.loadEngine(ctx); err != nil {
			return err
		}
	}
	todo, err := r.claim(ctx)
	if err != nil {
		return err
	}
	r.total, r.exact = j.plan.rows(j.spec.Shard)
	if j.events.Planned != nil {
		j.events.Planned(j.plan, r.total, r.exact)
	}
	for _, in := range j.plan.Inputs {
		if in.Broken != "" {
			r.broken = append(r.broken, Errorf(BadInput, "bring a whole file and run it to another --output", "input %s was left out: %s", in.URL, in.Broken))
		}
	}
	if len(todo) > 0 {
		if err := r.work(ctx, todo); err != nil {
			return err
		}
	}
	if err := errors.Join(r.broken...); err != nil {
		return err
	}
	return r.finish(ctx)
}

// unload gives back what loadEngine took.
func (r *runState) unload() {
	if r.engine != nil {
		r.last = r.engine.Stats()
		r.engine.Close()
	}
	if r.loaded != nil {
		r.loaded.close()
	}
}

// work runs the shards.
func (r *runState) work(ctx context.Context, todo []int) error {
	j := r.job
	if r.engine == nil {
		if err := r.loadEngine(ctx); err != nil {
			return err
		}
	}
	prep := pipeline.NewPreparer(j.prompt, j.bundle.Tokenizer, j.config.VocabSize, r.engine.Check)
	ready := make(chan *shardState, j.spec.OpenShards+1) // at most OpenShards are unfinished: sending never blocks
	feed := &shardFeed{
		store: j.store, plan: j.plan, samples: int64(j.spec.Samples), todo: todo, ready: ready,
		opts:    readers.Options{Columns: prep.Columns(), MaxLineBytes: j.spec.MaxLineBytes},
		slots:   semaphore.NewWeighted(int64(j.spec.OpenShards)),
		pending: map[row.UnitKey]place{}, count: r.countResult,
	}
	com := &committer{
		store: j.store, plan: j.plan, layout: j.layout, runID: j.runID, write: j.writerConfig(),
		read: readers.Options{Carry: true, MaxLineBytes: j.spec.MaxLineBytes}, samples: int64(j.spec.Samples),
		warn: j.events.Warn, guard: r.guard,
	}
	r.began = time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(ready)
		var err error
		r.window, err = pipeline.Run(gctx, r.engine, prep, feed, feed, pipeline.Options{
			WindowRows: j.spec.WindowRows, ReturnTokenIDs: j.spec.Params.ReturnTokenIDs,
		})
		return err
	})
	g.Go(func() error {
		for s := range ready {
			if err := r.commit(gctx, com, s); err != nil {
				return err
			}
			feed.slots.Release(1)
		}
		return nil
	})
	err := g.Wait()
	if ctx.Err() != nil {
		return Errorf(Interrupted, "run the same command again to go on; committed parts are kept", "interrupted")
	}
	return err
}

func (r *runState) commit(ctx context.Context, com *committer, s *shardState) error {
	defer s.spool.close()
	if s.broken != nil {
		r.mu.Lock()
		r.broken = append(r.broken, s.broken)
		r.mu.Unlock()
		return nil
	}
	facts, err := com.commit(ctx, s)
	if err != nil {
		if KindOf(err) == BadInput && !errors.Is(err, errForeignPlan) { // an input that changed costs its shard, not the others
			r.mu.Lock()
			r.broken = append(r.broken, err)
			r.mu.Unlock()
			return nil
		}
		return err
	}
	r.mu.Lock()
	r.facts[s.number] = facts
	r.mu.Unlock()
	if ev := r.job.events.Part; ev != nil {
		ev(r.job.layout.part(s.number), facts)
	}
	return nil
}

func (r *runState) loadEngine(ctx context.Context) error {
	j := r.job
	began := time.Now()
	var err error
	if r.loaded, err = loadModel(ctx, j.bundle, j.spec.Threads); err != nil {
		return err
	}
	kv := j.spec.KVMemory
	if kv == 0 {
		kv = defaultKVMemory()
	} else if free, ok := availableMemory(); ok && kv > free {
		return Errorf(Config, "lower --kv-memory, or leave it out for a share of what is free", "not enough memory for KV pages: --kv-memory asks for %d bytes, %d are available", kv, free)
	}
	r.engine, err = infer.New(infer.Config{
		Model: r.loaded.forwarder(), Tokenizer: infer.FromTokenizer(j.bundle.Tokenizer), BatchTokens: j.spec.BatchTokens, MaxSeqs: j.spec.MaxSeqs,
		KVMemory: kv, EOS: j.bundle.EndTokens(r.loaded.config), MaxModelLen: j.maxLen(), Threads: j.spec.Threads,
		Events: infer.Events{OnStep: func(infer.StepStats) { r.step() }},
	})
	if err != nil {
		return Errorf(Config, "", "%w", err)
	}
	r.load = time.Since(began)
	if j.events.Loaded != nil {
		j.events.Loaded(r.load.Seconds(), j.bundle.Digest)
	}
	return nil
}

func (r *runState) countResult(res *row.Result) {
	r.mu.Lock()
	r.live.add(res)
	r.mu.Unlock()
}

func (r *runState) step() {
	ev := r.job.events.Step
	if ev == nil {
		return
	}
	stats := r.engine.Stats()
	r.mu.Lock()
	p := Progress{
		Rows: r.live.Rows.Total, Errors: r.live.Rows.Error, Total: r.total, Exact: r.exact,
		RowTokens: r.live.Tokens.Prompt + r.live.Tokens.Completion,
		PromptTok: stats.PrefillTokens, OutputTok: stats.DecodeTokens, Engine: stats, Elapsed: time.Since(r.began),
	}
	r.mu.Unlock()
	ev(p)
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// firstLine keeps messages on one line inside JSON and logs.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return fmt.Sprint(line)
}
