package jobs

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/pipeline"
	"github.com/batchmill/batchmill/readers"
)

// Events tell a command what happens. Any may be nil. Step is called from the engine's goroutine after every step and
// must return at once; the others come from any goroutine.
type Events struct {
	Planned func(p *Plan, rows int64)
	Loaded  func(seconds float64, digest string)
	Step    func(Progress)
	Part    func(url string, f *Facts)
	Warn    func(message string)
	Stalled func(stacks []byte) // the engine hangs, and the run is given up
	Reached func(Step)          // of the commit protocol; for tests that kill a run there
}

// Progress is where a run stands.
type Progress struct {
	Rows      int64 // done by this process, committed or not
	Errors    int64
	Total     int64 // that this process has to do: none of committed parts, none that was journalled
	RowTokens int64 // prompt and completion tokens of those rows, as far as they were computed: none of copies, none from shared pages
	PromptTok int64 // prefilled in this run
	OutputTok int64 // decoded in this run
	Engine    infer.Stats
	Elapsed   time.Duration // since the engine started
}

// Run does what is missing of the job and returns its summary, also beside an error.
func (j *Job) Run(ctx context.Context) (*Summary, error) {
	r := &runState{job: j, facts: map[int]*Facts{}, stalled: make(chan error, 1)}
	err, lost := r.unlessStalled(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted()
	}
	if lost {
		j.lost = true
		return r.lostSummary(err), err
	}
	return r.summary(err), r.verdict(err)
}

// runState is one attempt at a job.
type runState struct {
	job     *Job
	loaded  *loaded
	engine  *infer.Engine
	last    infer.Stats // of the engine, at its end
	window  pipeline.WindowStats
	index   *planIndex
	journal *journal // nil until there is work

	lineage lineage // of a retry
	resumed int64   // units that earlier attempts journalled
	load    time.Duration
	began   time.Time // of the engine

	mu      sync.Mutex
	facts   map[int]*Facts // of committed parts of this process's shards
	live    Facts          // results of this run, committed or not
	total   int64          // units without a part when the work began
	broken  []error
	planTag string // ETag of the stored plan
	leftOut int    // files that match the inputs, but came after the plan

	cost      overhead
	idle      time.Time // when the engine was done
	signalled time.Time // when a signal asked for the end

	before   RowCounts   // rows of parts that were there when the work began, and journalled ones
	halt     func(error) // stops the work; nil once it did
	stepping atomic.Pointer[infer.Engine]
	stalled  chan error
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
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	todo, sealed, err := r.claim(ctx)
	if err != nil {
		return err
	}
	for _, n := range todo {
		r.total += j.plan.shardRows(n) * int64(j.spec.Samples)
	}
	if j.events.Planned != nil {
		j.events.Planned(j.plan, j.plan.rows(j.spec.Shard))
	}
	for _, in := range j.plan.Inputs {
		if in.Broken != "" {
			r.broken = append(r.broken, Errorf(BadInput, "bring a whole file and run it to another --output", "input %s was left out: %s", in.URL, in.Broken))
		}
	}
	r.index = newPlanIndex(j.plan)
	signal := ctx
	ctx, cancel := r.underGrace(signal)
	defer cancel()
	err = r.complete(ctx, signal, todo, sealed)
	if r.cost.starved = r.window.Starved; !r.idle.IsZero() {
		r.cost.last = time.Since(r.idle)
	}
	return err
}

// complete does what is left to do. signal ends when the run is to end early, ctx when it has to.
func (r *runState) complete(ctx, signal context.Context, todo []int, sealed []*Seal) error {
	for _, s := range sealed { // their content is fixed: no engine is needed for them
		if signal.Err() != nil {
			return errInterrupted()
		}
		if err := r.unseal(ctx, r.committer(), s); err != nil {
			return err
		}
	}
	if len(todo) > 0 {
		if r.engine == nil {
			if err := r.loadEngine(signal); err != nil {
				return err
			}
		}
		if err := r.supervise(ctx, func(ctx context.Context) error { return r.work(ctx, signal, todo) }); err != nil {
			return err
		}
	}
	if err := errors.Join(r.broken...); err != nil {
		return err
	}
	if err := r.finish(ctx); err != nil {
		return err
	}
	if len(todo)+len(sealed) == 0 && r.job.spec.SkipExit != 0 {
		e := Errorf(NothingToDo, "", "nothing to do: all parts are there")
		e.Exit = r.job.spec.SkipExit
		return e
	}
	return nil
}

func errInterrupted() error {
	return Errorf(Interrupted, "run the same command again to go on; committed parts and journalled rows are kept", "interrupted")
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
func (r *runState) work(ctx, signal context.Context, todo []int) error {
	j := r.job
	prep := pipeline.NewPreparer(j.prompt, j.bundle.Tokenizer, j.config.VocabSize, r.engine.Check)
	ready := make(chan *shardState, j.spec.OpenShards+1) // at most OpenShards are unfinished: sending never blocks
	r.journal = newJournal(j, j.spec.JournalUnits, j.spec.JournalEvery, &r.cost)
	feed := &shardFeed{
		store: j.store, plan: j.plan, samples: int64(j.spec.Samples), todo: todo, ready: ready,
		opts:    readers.Options{Columns: prep.Columns(), MaxLineBytes: j.spec.MaxLineBytes},
		slots:   semaphore.NewWeighted(int64(j.spec.OpenShards)),
		pending: map[row.UnitKey]place{}, count: r.countResult, journal: r.journal, cost: &r.cost,
		took: func(units int64) {
			r.mu.Lock()
			r.resumed += units
			r.mu.Unlock()
		},
	}
	com := r.committer()
	feed.resume = func(ctx context.Context, n int, into *spool) ([]ChunkRef, error) { return r.resume(ctx, com, n, into) }
	r.began = time.Now()
	g, gctx := errgroup.WithContext(ctx)
	stop := make(chan struct{})
	g.Go(func() error { return r.journal.run(gctx, stop) })
	g.Go(func() error {
		defer close(ready)
		var err error
		r.window, err = pipeline.Run(gctx, r.engine, prep, feed, feed, pipeline.Options{
			WindowRows: j.spec.WindowRows, OpenShards: j.spec.OpenShards, NoDedup: j.spec.NoDedup, NoPrefixSharing: j.spec.NoPrefixSharing,
			ReturnTokenIDs: j.spec.Params.ReturnTokenIDs, Drain: signal.Done(),
		})
		r.idle = time.Now()
		return err
	})
	g.Go(func() error {
		defer close(stop)
		for s := range ready {
			if err := r.commit(gctx, com, s); err != nil {
				return err
			}
			feed.slots.Release(1)
		}
		return nil
	})
	err := g.Wait()
	early := signal.Err() != nil && feed.settled < len(todo)
	if err != nil || early {
		last, cancel := r.lastWord(ctx)
		defer cancel()
		if derr := r.journal.drain(last); derr != nil && (early || KindOf(err) == Interrupted) {
			return Errorf(StorageIO, "run the same command again to go on; what was stored before is kept", "interrupted, and not all results could be journalled: %w", derr)
		}
	}
	if early || ctx.Err() != nil {
		return errInterrupted()
	}
	return err
}

func (r *runState) committer() *committer {
	j := r.job
	return &committer{
		store: j.store, plan: j.plan, index: r.index, layout: j.layout, runID: j.runID, write: j.writerConfig(),
		read: readers.Options{Carry: true, MaxLineBytes: j.spec.MaxLineBytes}, samples: int64(j.spec.Samples),
		events: &j.events, guard: r.guard, inherit: r.inherit,
	}
}

// resume takes what earlier attempts journalled of a shard. errCommitted says that there is nothing left to do.
func (r *runState) resume(ctx context.Context, com *committer, n int, into *spool) ([]ChunkRef, error) {
	j := r.job
	if err := r.inherit(ctx, n, into); err != nil {
		return nil, err
	}
	refs, err := loadJournal(ctx, j.store, j.layout, j.plan, r.index, n, into, j.events.warnf)
	gone := errors.Is(err, errVanished)
	if err != nil && !gone {
		return nil, err
	}
	// The seal is looked for after the journal: whoever sealed the shard meanwhile may be removing its chunks.
	seal, serr := readSeal(ctx, j.store, j.layout, j.plan, n)
	switch {
	case serr != nil:
		return nil, serr
	case seal != nil:
		if err := r.unseal(ctx, com, seal); err != nil {
			return nil, err
		}
		return nil, errCommitted
	case gone:
		return nil, Errorf(BadInput, "only one job may use an output; run this one to another --output", "%w while it was read, and the shard is not sealed", err)
	}
	r.tookOver(into)
	return refs, nil
}

// commit makes the part of a shard whose results are all there.
func (r *runState) commit(ctx context.Context, com *committer, s *shardState) error {
	defer s.spool.close()
	if s.broken != nil {
		r.mu.Lock()
		r.broken = append(r.broken, s.broken)
		r.mu.Unlock()
		return nil
	}
	chunks, err := r.journal.end(ctx, s.log)
	if err != nil {
		return err
	}
	var facts *Facts
	err = r.cost.commit.cpu(func() (err error) {
		facts, err = com.commit(ctx, s, chunks)
		return err
	})
	return r.committed(s.number, facts, err)
}

// unseal makes the part of a shard that is sealed.
func (r *runState) unseal(ctx context.Context, com *committer, s *Seal) error {
	var facts *Facts
	err := r.cost.commit.cpu(func() (err error) {
		facts, err = com.fromSeal(ctx, s)
		return err
	})
	return r.committed(s.Shard, facts, err)
}

// committed notes what a commit came to. An input that changed costs its shard, not the others.
func (r *runState) committed(n int, facts *Facts, err error) error {
	if err != nil && (KindOf(err) != BadInput || errors.Is(err, errForeignPlan)) {
		return err
	}
	r.mu.Lock()
	if err != nil {
		r.broken = append(r.broken, err)
	} else {
		r.facts[n] = facts
	}
	r.mu.Unlock()
	if ev := r.job.events.Part; ev != nil && err == nil {
		ev(r.job.layout.part(n), facts)
	}
	return nil
}

func (r *runState) loadEngine(ctx context.Context) error {
	j := r.job
	began := time.Now()
	var err error
	if r.loaded, err = loadModel(ctx, j.bundle, deviceOptions{j.spec.Threads, j.spec.ISA, j.spec.Activations}); err != nil {
		return err
	}
	kv, err := j.spec.kvMemory(r.loaded.config.KVBytesPerPage, 0)
	if err != nil {
		return err
	}
	if free, ok := availableMemory(); j.spec.KVMemory > 0 && ok && kv > free {
		return Errorf(Config, "lower --kv-memory, or leave it out for a share of what is free", "not enough memory for KV pages: --kv-memory asks for %d bytes, %d are available", kv, free)
	}
	r.engine, err = infer.New(infer.Config{
		Model: r.loaded.forwarder(), Tokenizer: infer.FromTokenizer(j.bundle.Tokenizer), BatchTokens: j.spec.BatchTokens, MaxSeqs: j.spec.MaxSeqs,
		KVMemory: kv, EOS: j.bundle.EndTokens(r.loaded.config), MaxModelLen: j.maxLen(), Threads: j.spec.Threads,
		NoPrefixSharing: j.spec.NoPrefixSharing, NoSpeculation: j.spec.NoSpeculation, RowTimeout: j.spec.RowTimeout,
		Events: infer.Events{OnStep: func(infer.StepStats) { r.step() }},
	})
	if err != nil {
		return Errorf(Config, "", "%w", err)
	}
	r.stepping.Store(r.engine)
	r.load = time.Since(began)
	if j.events.Loaded != nil {
		j.events.Loaded(r.load.Seconds(), j.bundle.Digest)
	}
	return nil
}

func (r *runState) countResult(res *row.Result) {
	r.mu.Lock()
	r.live.add(res)
	r.judge()
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
		Rows: r.live.Rows.Total, Errors: r.live.Rows.Error, Total: max(r.live.Rows.Total, r.total-r.resumed),
		RowTokens: r.live.computed(),
		PromptTok: stats.PrefillTokens, OutputTok: stats.DecodeTokens, Engine: stats, Elapsed: time.Since(r.began),
	}
	r.mu.Unlock()
	ev(p)
}

// firstLine keeps messages on one line inside JSON and logs.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
