package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/pipeline"
	"github.com/batchmill/batchmill/readers"
)

// planner makes a plan from a specification.
type planner struct {
	store *objstore.Store
	spec  *Spec
	names []string // columns that templates read

	plan    *Plan
	schema  *row.Schema     // of the first input
	sampled map[string]bool // top-level columns seen in any input
}

const (
	// schemaSample is how many records of a JSONL file show its columns.
	schemaSample = 1000
	// schemaFiles is how many JSONL files are sampled: more would cost requests and hardly ever show another column.
	schemaFiles = 8
)

// makePlan expands the inputs, looks at each, and cuts the work into shards.
func (p *planner) makePlan(ctx context.Context, decides Decides, runID string, now time.Time) error {
	p.plan = &Plan{Version: planVersion, RunID: runID, Created: now.UTC(), TemplateDate: p.spec.TemplateDate, Decides: decides, Model: p.spec.Model}
	if p.plan.TemplateDate.IsZero() {
		p.plan.TemplateDate = p.plan.Created
	}
	p.sampled = map[string]bool{}
	infos, err := p.expand(ctx)
	if err != nil {
		return err
	}
	var segs Segments
	var broken error
	for i, info := range infos {
		more, err := p.input(ctx, i, info)
		var fe *readers.FileError
		if errors.As(err, &fe) && len(infos) > 1 { // one broken file does not cost the others
			broken = err
			p.plan.Inputs = append(p.plan.Inputs, Input{URL: info.URL, Size: info.Size, ETag: info.ETag, Broken: fe.Error()})
			continue
		}
		if err != nil {
			return err
		}
		segs = append(segs, more...)
	}
	if p.schema == nil && broken != nil {
		return broken
	}
	if err := p.checkColumns(); err != nil {
		return err
	}
	format := p.spec.Format
	if format == "" {
		format = formatOfName(p.spec.Output)
	}
	if format == "" {
		format = p.first().Format
	}
	if format == "openai" && p.batchShape() && (p.spec.Prompt != "" || p.spec.TokenIDsColumn != "") {
		return Errorf(Usage, "leave --prompt and --token-ids-column out, or write another --format", "batch requests bring their own prompts, which --format openai answers")
	}
	p.plan.Decides.Format = format
	if p.schema.Format == "jsonl" && format == "parquet" {
		p.plan.Columns = p.schema.Columns
	}
	p.plan.Shards = p.group(p.limit(segs))
	return p.plan.seal()
}

// expand lists the inputs once each, in lexical order, and refuses an output that overlaps them.
func (p *planner) expand(ctx context.Context) ([]objstore.Info, error) {
	out, err := newLayout(p.spec.Output, p.spec.Format)
	if err != nil {
		return nil, err
	}
	if err := checkOverlap(p.spec.Inputs, nil, out); err != nil {
		return nil, err
	}
	all, err := p.store.ExpandAll(ctx, p.spec.Inputs)
	if err != nil {
		return nil, expandError(p.spec.Inputs, err)
	}
	if len(all) == 0 {
		return nil, Errorf(NoInput, "files of a known format end in .jsonl, .ndjson, .parquet, with .gz or .zst if compressed", "no input file in %s", strings.Join(p.spec.Inputs, ", "))
	}
	return all, checkOverlap(nil, all, out)
}

// input looks at one input: its format, its columns, its cuts.
func (p *planner) input(ctx context.Context, i int, info objstore.Info) (Segments, error) {
	obj, err := p.store.Open(ctx, info)
	if err != nil {
		return nil, classify(fmt.Errorf("open %s: %w", info.URL, err))
	}
	format := p.spec.InputFormat
	if format == "" {
		if format, _, err = readers.Detect(ctx, obj); err != nil {
			return nil, classify(fmt.Errorf("input %s: %w", info.URL, err))
		}
	}
	in := Input{URL: info.URL, Size: info.Size, ETag: info.ETag, Format: format}
	opts := readers.Options{Format: format, MaxLineBytes: p.spec.MaxLineBytes}
	if format == "parquet" || p.schema == nil || i < schemaFiles {
		s, err := readers.Schema(ctx, obj, opts, schemaSample)
		if err != nil {
			return nil, classify(fmt.Errorf("input %s: %w", info.URL, err))
		}
		if err := p.addSchema(&in, s); err != nil {
			return nil, err
		}
	}
	if first := p.first(); first != nil && first.Format != format {
		return nil, Errorf(BadInput, "run each format as a job of its own", "inputs have different formats: %s is %s, %s is %s",
			first.URL, first.Format, info.URL, format)
	}
	split := p.spec.SplitBytes
	if isSingle(p.spec.Output) {
		split = 1 << 62 // one object is one part
	}
	cuts, rows, err := readers.Cuts(ctx, obj, opts, split)
	var fe *readers.FileError
	if errors.As(err, &fe) && fe.Truncated && len(cuts) > 0 { // the rows before the cut are good, and one row says that it broke off
		rows++
		cuts[len(cuts)-1].Rows++
	} else if err != nil {
		return nil, classify(fmt.Errorf("input %s: %w", info.URL, err))
	}
	in.Rows = rows
	p.plan.Inputs = append(p.plan.Inputs, in)
	segs := make(Segments, 0, len(cuts))
	for _, c := range cuts {
		segs = append(segs, Segment{Input: i, Cut: c})
	}
	return segs, nil
}

// first is the first input that can be read.
func (p *planner) first() *Input {
	for i := range p.plan.Inputs {
		if p.plan.Inputs[i].Broken == "" {
			return &p.plan.Inputs[i]
		}
	}
	return nil
}

// addSchema collects columns and refuses Parquet files whose columns differ, naming the first conflict.
func (p *planner) addSchema(in *Input, s *row.Schema) error {
	for _, c := range s.Columns {
		p.sampled[c.Name] = true
	}
	if p.schema == nil {
		p.schema = s
		return nil
	}
	if s.Format == "jsonl" {
		mergeColumns(p.schema, s)
		return nil
	}
	for i := range max(len(s.Columns), len(p.schema.Columns)) {
		var a, b row.Column
		if i < len(p.schema.Columns) {
			a = p.schema.Columns[i]
		}
		if i < len(s.Columns) {
			b = s.Columns[i]
		}
		if a != b {
			return Errorf(BadInput, "run files of different schemas as jobs of their own", "inputs have different schemas: column %d is %s in %s and %s in %s",
				i, describe(a), p.first().URL, describe(b), in.URL)
		}
	}
	return nil
}

func describe(c row.Column) string {
	if c.Name == "" {
		return "absent"
	}
	return fmt.Sprintf("%q %s", c.Name, c.Type)
}

// mergeColumns adds the columns of another JSONL sample: a column is text only if it is text in all.
func mergeColumns(into, s *row.Schema) {
	for _, c := range s.Columns {
		i := slices.IndexFunc(into.Columns, func(x row.Column) bool { return x.Name == c.Name })
		switch {
		case i < 0:
			into.Columns = append(into.Columns, c)
		case into.Columns[i].Type != c.Type:
			into.Columns[i].Type = "json"
		}
	}
}

// checkColumns refuses templates and flags that name a column which no input has.
func (p *planner) checkColumns() error {
	if p.schema == nil || len(p.sampled) == 0 { // empty inputs show no columns
		return nil
	}
	known := make([]string, 0, len(p.sampled))
	for name := range p.sampled {
		known = append(known, name)
	}
	slices.Sort(known)
	check := func(name, where string) error {
		if name == "" || p.sampled[name] {
			return nil
		}
		return Errorf(Usage, "columns there: "+strings.Join(known, ", ")+didYouMean(name, known), "%s names the column %q, which the input does not have", where, name)
	}
	for _, n := range p.names {
		if err := check(n, "the template"); err != nil {
			return err
		}
	}
	if err := check(p.spec.IDColumn, "--id-column"); err != nil {
		return err
	}
	if err := check(p.spec.TenantColumn, "--tenant-column"); err != nil {
		return err
	}
	if err := p.checkTenant(); err != nil {
		return err
	}
	if err := check(p.spec.TokenIDsColumn, "--token-ids-column"); err != nil {
		return err
	}
	if p.spec.Prompt == "" && p.spec.TokenIDsColumn == "" && !p.sampled[p.spec.PromptColumn] && !p.sampled[p.spec.MessagesColumn] && !p.batchShape() {
		return check(p.spec.PromptColumn, "--prompt-column (there is no messages column either)")
	}
	return nil
}

// checkTenant refuses a tenant column whose values cannot be compared, where the schema says so; JSONL has none, and rows
// say it there.
func (p *planner) checkTenant() error {
	for _, c := range p.schema.Columns {
		nested, _, is := strings.Cut(c.Type, "<")
		if c.Name == p.spec.TenantColumn && p.schema.Format == "parquet" && is && slices.Contains([]string{"list", "map", "struct"}, nested) {
			return Errorf(Usage, "name a column of text, numbers or booleans", "--tenant-column: column %q is a %s, whose values tell no tenants apart", c.Name, c.Type)
		}
	}
	return nil
}

// batchShape tells whether the input has the columns of OpenAI's batch requests.
func (p *planner) batchShape() bool {
	for _, name := range readers.OpenAIColumns {
		if !p.sampled[name] {
			return false
		}
	}
	return true
}

// didYouMean suggests a column by spelling.
func didYouMean(name string, known []string) string {
	best := Closest(name, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// Closest returns the known name that is most like a misspelt one, "" if none is near.
func Closest(name string, known []string) string {
	const far = 3 // edits: beyond it a suggestion is a guess
	best, dist := "", far
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), strings.ToLower(k)); d < dist {
			best, dist = k, d
		}
	}
	return best
}

func editDistance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		last := prev[0]
		prev[0] = i
		for j := 1; j <= len(b); j++ {
			cost := last
			if a[i-1] != b[j-1] {
				cost++
			}
			last = prev[j]
			prev[j] = min(cost, prev[j]+1, prev[j-1]+1)
		}
	}
	return prev[len(b)]
}

// limit cuts the plan to the first rows of the job.
func (p *planner) limit(segs Segments) Segments {
	left := p.spec.Limit
	if left == 0 {
		return segs
	}
	for i := range segs {
		if left == 0 {
			return segs[:i]
		}
		if segs[i].Cut.Rows > left {
			segs[i].Limit = left
		}
		left -= segs[i].rows()
	}
	return segs
}

// group joins small segments into shards of up to a quarter of the split size, and everything into one shard where the
// output is one object.
func (p *planner) group(segs Segments) []Segments {
	single := isSingle(p.spec.Output)
	most := p.spec.SplitBytes / 4
	var out []Segments
	size := int64(0)
	pieces := map[int]int64{} // cuts of an input
	for _, s := range segs {
		pieces[s.Input]++
	}
	for _, s := range segs {
		n := p.plan.Inputs[s.Input].Size / pieces[s.Input]
		if s.Cut.End > 0 {
			n = s.Cut.End - s.Cut.Start
		}
		if len(out) > 0 && (single || size+n <= most) {
			out[len(out)-1] = append(out[len(out)-1], s)
			size += n
			continue
		}
		out = append(out, Segments{s})
		size = n
	}
	return out
}

// columnsOf are the names that the templates of a prompting read.
func columnsOf(p *pipeline.Prompting) []string {
	var names []string
	if p.Prompt != nil {
		names = append(names, p.Prompt.Names()...)
	}
	if p.System != nil {
		names = append(names, p.System.Names()...)
	}
	return names
}
