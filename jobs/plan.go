package jobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
)

// Plan fixes, once and for all attempts, what a job does: its inputs, their cut into shards, and everything that
// decides a result. It is stored as _run/plan.json by a conditional put; whoever loses takes the winner's.
type Plan struct {
	Version      int        `json:"version"`
	Digest       string     `json:"digest"` // of Decides, Inputs, Shards, Columns and Parent
	RunID        string     `json:"run_id"` // of the attempt that planned
	Created      time.Time  `json:"created"`
	TemplateDate time.Time  `json:"template_date"`
	Decides      Decides    `json:"decides"`
	Model        string     `json:"model"`      // the reference, as given
	ModelName    string     `json:"model_name"` // what results say
	Inputs       []Input    `json:"inputs"`
	Shards       []Segments `json:"shards"`

	// Columns are the carried columns of a JSONL source, as the planner's sample shows them; the output schema follows
	// from them where the output is Parquet.
	Columns []row.Column `json:"columns,omitempty"`

	Parent *Parent `json:"parent,omitempty"` // of a retry
}

// planVersion is the version of the plan's own format.
const planVersion = 1

// Input is one source object. It is read with its ETag: a changed one ends the job.
type Input struct {
	URL    string `json:"url"`
	Size   int64  `json:"size"`
	ETag   string `json:"etag"`
	Format string `json:"format"`
	Rows   int64  `json:"rows"` // records, as counted
	// Broken says why a file cannot be read at all. It has no part in the job, but in its exit code.
	Broken string `json:"broken,omitempty"`
}

// Segments are the pieces of input that make up one shard, in order.
type Segments []Segment

// Segment is a piece of one input.
type Segment struct {
	Input int         `json:"input"` // index into Plan.Inputs
	Cut   readers.Cut `json:"cut"`
	Limit int64       `json:"limit,omitempty"` // records to take; 0 = all
}

// seal computes the digest.
func (p *Plan) seal() error {
	data, err := json.Marshal(struct {
		Decides Decides
		Inputs  []Input
		Shards  []Segments
		Columns []row.Column
		Parent  *Parent `json:",omitempty"`
	}{p.Decides, p.Inputs, p.Shards, p.Columns, p.Parent})
	if err != nil {
		return fmt.Errorf("encode the plan: %w", err)
	}
	sum := sha256.Sum256(data)
	p.Digest = hex.EncodeToString(sum[:])
	return nil
}

// rows is the number of records that a segment takes.
func (s Segment) rows() int64 {
	if s.Limit > 0 {
		return s.Limit
	}
	return s.Cut.Rows
}

// rows is the number of records of the shards that mine selects.
func (p *Plan) rows(mine Shard) (n int64) {
	for i, segs := range p.Shards {
		if !mine.Has(i) {
			continue
		}
		for _, s := range segs {
			n += s.rows()
		}
	}
	return n
}

// compare names the first thing that decides results and differs between a stored plan and the present wish.
func (p *Plan) compare(now *Plan) error {
	then, err := fields(p.Decides)
	if err != nil {
		return err
	}
	wish, err := fields(now.Decides)
	if err != nil {
		return err
	}
	for _, f := range then {
		for _, g := range wish {
			if f.name == g.name && !bytes.Equal(f.value, g.value) {
				return Errorf(BadInput, "give the same value again, write to another --output, or start anew with --overwrite", "%w", differs(f.name, shorten(f.value), shorten(g.value)))
			}
		}
	}
	seen := map[string]Input{}
	for _, in := range now.Inputs {
		seen[in.URL] = in
	}
	for _, in := range p.Inputs {
		switch got, ok := seen[in.URL]; {
		case !ok:
			return Errorf(BadInput, "bring it back, or write to another --output", "input %s of the stored plan is not matched any more", in.URL)
		case got.ETag != in.ETag || got.Size != in.Size:
			return Errorf(BadInput, "bring the planned version back, or write to another --output", "input %s has changed since the job was planned", in.URL)
		}
	}
	return nil
}

// differs says in which field a job differs from the one that the output belongs to.
func differs(name, stored, asked string) error {
	return fmt.Errorf("the output belongs to another job: %q is %s in its plan, and %s is asked for", name, stored, asked)
}

type field struct {
	name  string
	value json.RawMessage
}

// fields lists the JSON members of a struct; members that are objects are listed by their own members.
func fields(v any) ([]field, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return members("", data)
}

func members(prefix string, data []byte) ([]field, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var out []field
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		name := prefix + fmt.Sprint(key)
		if len(value) > 0 && value[0] == '{' {
			sub, err := members(name+".", value)
			if err != nil {
				return nil, err
			}
			out = append(out, sub...)
			continue
		}
		out = append(out, field{name, value})
	}
	return out, nil
}

// shorten keeps a value readable inside a message.
func shorten(value []byte) string {
	const most = 80
	if len(value) <= most {
		return string(value)
	}
	return string(bytes.ToValidUTF8(value[:most], nil)) + "..."
}
