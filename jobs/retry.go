package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
	"github.com/batchmill/batchmill/writers"
)

// Parent names the job that a retry follows. It is part of the retry's plan and of its digest.
type Parent struct {
	Output     string `json:"output"`
	PlanDigest string `json:"plan_digest"`
	AllErrors  bool   `json:"all_errors"` // also those that would fail again were run again
}

func (p *Parent) same(q *Parent) bool {
	return p == nil && q == nil || p != nil && q != nil && p.PlanDigest == q.PlanDigest && p.AllErrors == q.AllErrors
}

// compareParents refuses to go on with a retry as something else.
func (p *Plan) compareParents(now *Plan) error {
	switch {
	case p.Parent.same(now.Parent):
		return nil
	case p.Parent == nil:
		return Errorf(BadInput, "write to another --output, or start anew with --overwrite", "the output belongs to a job of its own, not to a retry")
	case now.Parent == nil || p.Parent.PlanDigest != now.Parent.PlanDigest:
		return Errorf(BadInput, "write to another --output, or start anew with --overwrite", "the output belongs to a retry of %s", p.Parent.Output)
	}
	return Errorf(BadInput, "give it as before, write to another --output, or start anew with --overwrite", "%w", differs("all_errors", fmt.Sprint(p.Parent.AllErrors), fmt.Sprint(now.Parent.AllErrors)))
}

// PrepareRetry prepares a job that repeats those units of a complete one that failed for now, or with allErrors all that
// failed, and copies the others from its parts: a complete new output. Of spec only the output and what decides no result
// counts, and Model where it is not empty, as another way to the same bytes; the rest is the parent's.
func PrepareRetry(ctx context.Context, parent string, allErrors bool, spec Spec, store *objstore.Store, ev Events) (*Job, error) {
	o, err := openOutput(ctx, store, parent)
	if err != nil {
		return nil, err
	}
	if err := o.canBeRetried(ctx, spec.Output); err != nil {
		return nil, err
	}
	if spec, err = o.plan.again(spec); err != nil {
		return nil, err
	}
	j, err := Prepare(ctx, spec, store, ev)
	if err != nil {
		return nil, err
	}
	if err := j.follow(o, parent, allErrors); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// canBeRetried refuses parents that are not complete or do not hold what a copy needs, and outputs that lie in them.
func (o *output) canBeRetried(ctx context.Context, to string) error {
	if to == "" {
		return Errorf(Usage, "name a folder or file with --output, for example --output retried/", "no output given")
	}
	l, err := newLayout(to, formatOfName(to))
	if err != nil {
		return err
	}
	a, b := realURL(l.base), realURL(o.layout.base)
	if a == b || within(a, b) || within(b, a) || l.single != "" && realURL(l.single) == realURL(o.layout.single) {
		return Errorf(Usage, "a committed part is never rewritten: choose an --output of its own", "the output %s and the job to retry, %s, are one or lie in each other", l.shown(), o.layout.shown())
	}
	if l.single != "" && len(o.plan.Shards) > 1 {
		return Errorf(Usage, "write to a folder", "--output %s is one file, but the job to retry has %d parts", to, len(o.plan.Shards))
	}
	mark, err := o.success(ctx)
	if err != nil {
		return err
	}
	if mark == nil {
		return Errorf(Interrupted, "run it to its end first; `batchmill status` says what is missing", "the job of %s is not complete", o.layout.shown())
	}
	if o.plan.Decides.Format == writers.OpenAI {
		return Errorf(Usage, "run the requests that are named in _errors as a job of their own", "a retry cannot copy rows of --format openai, which does not hold all that is known about them")
	}
	if missing := o.plan.missingColumns(); len(missing) > 0 {
		return Errorf(Usage, "run the dead letters in _errors as a job of their own", "a retry cannot copy rows without the columns that --output-columns left out: %s", strings.Join(missing, ", "))
	}
	return nil
}

// Columns of ours that copies are made from: all that is not text, and where an output has times, those that the others
// are sums of.
var (
	copyColumns = []string{"source_file", "row_index", "sample_index", "status", "error_code", "error_message", "prompt_tokens", "cached_tokens",
		"completion_tokens", "attempts", "dedup_of", "seed"}
	copyTimes   = []string{"queue_time_ms", "prefill_time_ms", "decode_time_ms"}
	timeColumns = []string{"ttft_ms", "tpot_ms", "e2e_latency_ms"}
)

// missingColumns are those of ours that a copy needs and the output does not have.
func (p *Plan) missingColumns() (names []string) {
	own := p.Decides.OutputColumns
	if own == nil {
		return nil
	}
	has := func(name string) bool { return slices.Contains(own, name) }
	need := copyColumns
	if slices.ContainsFunc(append(slices.Clone(copyTimes), timeColumns...), has) {
		need = append(slices.Clone(need), copyTimes...)
	}
	for _, name := range need {
		if !has(name) {
			names = append(names, name)
		}
	}
	return names
}

// again is the specification that leads to the plan once more, on the machine that spec describes.
func (p *Plan) again(spec Spec) (Spec, error) {
	d := &p.Decides
	s := spec
	if s.Model == "" {
		s.Model = p.Model
	}
	s.Inputs = nil
	for _, in := range p.Inputs {
		s.Inputs = append(s.Inputs, in.URL)
	}
	s.InputFormat, s.Format, s.OutputPrefix, s.Columns, s.OutputColumns = d.InputFormat, d.Format, d.OutputPrefix, d.Columns, d.OutputColumns
	s.Prompt, s.System, s.PromptColumn, s.MessagesColumn, s.TokenIDsColumn, s.IDColumn = d.Prompt, d.System, d.PromptColumn, d.MessagesColumn, d.TokenIDsColumn, d.IDColumn
	if s.MessagesColumn == "" {
		s.MessagesColumn = "none"
	}
	if s.Raw = d.Raw; !s.Raw {
		s.ChatTemplate = d.ChatTemplate
	}
	var err error
	if s.ChatTemplateKwargs, err = ParseKwargs(d.ChatTemplateKwargs); err != nil {
		return s, fmt.Errorf("read chat_template_kwargs of the plan: %w", err)
	}
	s.TemplateDate = p.TemplateDate
	s.Params, s.Seed, s.Samples, s.MaxModelLen = d.Params, d.Seed, d.Samples, d.MaxModelLen
	s.Activations, s.Limit, s.SplitBytes, s.MaxLineBytes = d.Activations, d.Limit, d.SplitBytes, d.MaxLineBytes
	return s, nil
}

// follow makes the job a retry: its plan is the parent's, if that still decides the same, and names it.
func (j *Job) follow(o *output, parent string, allErrors bool) error {
	if err := o.plan.compare(j.plan); err != nil {
		return Errorf(KindOf(err), "a retry needs the inputs and the model of the job as they were", "%s cannot be retried: %s", o.layout.shown(), firstLine(err.Error()))
	}
	url, err := objstore.Normalize(parent)
	if err != nil {
		return Errorf(Usage, "", "%s: %w", parent, err)
	}
	plan := *o.plan
	plan.RunID, plan.Created, plan.Model = j.plan.RunID, j.plan.Created, j.plan.Model
	plan.Parent = &Parent{Output: url, PlanDigest: o.plan.Digest, AllErrors: allErrors}
	if err := plan.seal(); err != nil {
		return err
	}
	j.plan = &plan
	return j.lay()
}

// lineage is the parent of a retry, once it is needed, and what its parts are.
type lineage struct {
	mu    sync.Mutex
	from  *output
	parts []*Facts
}

// open looks whether the parent is still what the plan says.
func (l *lineage) open(ctx context.Context, store *objstore.Store, p *Parent) (*output, []*Facts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from != nil {
		return l.from, l.parts, nil
	}
	o, err := openOutput(ctx, store, p.Output)
	if err != nil {
		return nil, nil, err
	}
	mark, err := o.success(ctx)
	if err != nil {
		return nil, nil, err
	}
	if o.plan.Digest != p.PlanDigest || mark == nil || mark.PlanDigest != p.PlanDigest || len(mark.Parts) != len(o.plan.Shards) {
		return nil, nil, Errorf(BadInput, "start anew with --overwrite", "%s is not the complete job any more that this is a retry of", o.layout.shown())
	}
	l.from, l.parts = o, mark.Parts
	return l.from, l.parts, nil
}

// inherit puts into a spool what a retry's parent says about a shard. Units that are to be run again are marked so: any
// result of this job takes their place. In a job that is no retry it does nothing.
func (r *runState) inherit(ctx context.Context, n int, into *spool) error {
	p := r.job.plan.Parent
	if p == nil {
		return nil
	}
	o, parts, err := r.lineage.open(ctx, r.job.store, p)
	if err != nil {
		return err
	}
	info, err := o.store.Stat(ctx, o.layout.part(n))
	if err != nil {
		return classify(err)
	}
	sum, err := hashObject(ctx, o.store, info)
	if err != nil {
		return classify(err)
	}
	if sum != parts[n].ObjectSHA256 {
		return Errorf(BadInput, "`batchmill verify` says what is wrong", "%s is not what was committed: it cannot be copied from", info.URL)
	}
	obj, err := o.store.Open(ctx, info)
	if err != nil {
		return classify(err)
	}
	d := &o.plan.Decides
	opts := readers.Options{Format: d.Format, MaxLineBytes: maxPartLine}
	for _, c := range writers.Columns() {
		opts.Columns = append(opts.Columns, d.OutputPrefix+c.Name)
	}
	in, err := readers.Open(ctx, obj, readers.Cut{}, opts)
	if err != nil {
		return classify(err)
	}
	defer in.Close()
	c := &copier{index: r.index, shard: n, samples: int64(d.Samples), prefix: d.OutputPrefix, all: p.AllErrors, into: into}
	if err := c.copy(in); err != nil {
		return classify(fmt.Errorf("copy from %s: %w", info.URL, err))
	}
	return nil
}

// copier takes results from a part.
type copier struct {
	index   *planIndex
	shard   int
	samples int64
	prefix  string
	all     bool
	into    *spool
	record  []*row.Result // of one record of the input
}

// flush keeps the results of a record: how many they are is part of each.
func (c *copier) flush() error {
	for _, res := range c.record {
		shard, at, ok := c.index.find(res.Key.Source, res.Key.Row)
		if !ok || shard != c.shard || int64(res.Key.Sample) >= c.samples {
			return fmt.Errorf("%s row %d sample %d is none of this part", res.Key.Source, res.Key.Row, res.Key.Sample)
		}
		line, err := encodeResult(res, len(c.record))
		if err != nil {
			return err
		}
		flags := uint32(0)
		if res.Status == row.Failed {
			if flags = flagsOf(res.Status, res.Err.Code); c.all {
				flags |= againFlag
			}
		}
		if err := c.into.keep(at*c.samples+int64(res.Key.Sample), line, flags); err != nil {
			return err
		}
	}
	c.record = c.record[:0]
	return nil
}
