package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
)

// InspectOptions say what to look at.
type InspectOptions struct {
	Inputs  []string
	Rows    int      // of the preview
	Columns []string // of the preview; nil = what matters to a reader of completions if it is an output, else all
	Format  string
}

// Inspection is what files hold.
type Inspection struct {
	Files          []Input      `json:"files"`
	Columns        []row.Column `json:"columns"`
	PreviewColumns []string     `json:"preview_columns"`
	Preview        [][]string   `json:"preview"`
}

// outputPreview are the columns that a person wants to see of an output, beside the first ones of the input.
var outputPreview = []string{"completion", "status", "error_code", "prompt_tokens", "completion_tokens", "ttft_ms", "tpot_ms", "e2e_latency_ms"}

// carriedPreview is how many carried columns stand before them.
const carriedPreview = 3

// Inspect looks at files without a model.
func Inspect(ctx context.Context, store *objstore.Store, o InspectOptions) (*Inspection, error) {
	p := &planner{store: store, spec: &Spec{Inputs: o.Inputs, InputFormat: o.Format, SplitBytes: 1 << 62}, plan: &Plan{}, sampled: map[string]bool{}}
	in := &Inspection{}
	infos, err := store.ExpandAll(ctx, o.Inputs)
	if err != nil {
		return nil, expandError(o.Inputs, err)
	}
	for i, info := range infos {
		if _, err := p.input(ctx, i, info); err != nil {
			return nil, err
		}
	}
	in.Files = p.plan.Inputs
	if p.schema == nil {
		return in, nil
	}
	in.Columns = p.schema.Columns
	in.PreviewColumns = o.Columns
	if in.PreviewColumns == nil {
		in.PreviewColumns = previewColumns(in.Columns)
	}
	for i, f := range in.Files {
		if len(in.Preview) >= o.Rows {
			break
		}
		plan := &Plan{Inputs: p.plan.Inputs, Shards: []Segments{{{Input: i}}}}
		if err := in.preview(ctx, store, plan, f, o.Rows); err != nil {
			return nil, err
		}
	}
	return in, nil
}

func previewColumns(cols []row.Column) []string {
	has := func(name string) bool {
		return slices.ContainsFunc(cols, func(c row.Column) bool { return c.Name == name })
	}
	var names []string
	if !has("completion") || !has("prompt_tokens") {
		for _, c := range cols {
			names = append(names, c.Name)
		}
		return names
	}
	for _, c := range cols[:min(carriedPreview, len(cols))] {
		names = append(names, c.Name)
	}
	for _, name := range outputPreview {
		if has(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (in *Inspection) preview(ctx context.Context, store *objstore.Store, plan *Plan, f Input, rows int) error {
	r := newSegmentReader(ctx, store, plan, 0, readers.Options{Columns: in.PreviewColumns})
	defer r.Close()
	for len(in.Preview) < rows {
		rec, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", f.URL, err)
		}
		cells := make([]string, len(in.PreviewColumns))
		for i, name := range in.PreviewColumns {
			if rec.Err != nil {
				cells[i] = rec.Err.Error()
				break
			}
			v, ok := rec.Fields[name]
			if ms, is := v.(float64); is && strings.HasSuffix(name, "_ms") { // nobody reads nanoseconds in a table
				cells[i] = strconv.FormatFloat(ms, 'f', 1, 64)
			} else if ok {
				cells[i] = cellText(v)
			}
		}
		in.Preview = append(in.Preview, cells)
	}
	return nil
}

// cellText prints a value in one cell.
func cellText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		if v > -1e15 && v < 1e15 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	case []byte:
		return fmt.Sprintf("%d bytes", len(v))
	}
	data, err := json.Marshal(plain(v))
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// plain turns ordered values into what encoding/json prints in order.
func plain(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case *ordered.Map:
		out := orderedJSON{}
		for i := range v.Len() {
			k, x := v.At(i)
			out = append(out, member{k, plain(x)})
		}
		return out
	}
	return v
}

type member struct {
	key   string
	value any
}

type orderedJSON []member

// MarshalJSON keeps the members' order.
func (o orderedJSON) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		k, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, k...), ':'), v...)
	}
	return append(out, '}'), nil
}

func expandError(patterns []string, err error) error {
	for _, pattern := range patterns {
		if _, nerr := objstore.Normalize(pattern); nerr != nil {
			return Errorf(Usage, "", "input %s: %w", pattern, nerr)
		}
	}
	if errors.Is(err, objstore.ErrNoMatch) || errors.Is(err, objstore.ErrNotExist) {
		return Errorf(NoInput, "check the path; quote a glob so that the shell leaves it alone", "input: %w", err)
	}
	return classify(fmt.Errorf("list the input: %w", err))
}
