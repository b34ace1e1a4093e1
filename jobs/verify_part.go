package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
	"github.com/batchmill/batchmill/writers"
)

// maxPartLine bounds a line of a part: an input line may be long, and a completion with its logprobs stands behind it.
const maxPartLine = 1 << 30

// partProof is what was found in one part.
type partProof struct {
	findings
	facts Facts // counted from the data
	bytes int64
}

// part checks one part: its bytes, then its rows.
func (v *verifier) part(ctx context.Context, n int, info objstore.Info) (*partProof, error) {
	p := &partProof{facts: Facts{Errors: map[row.Code]int64{}}, bytes: info.Size}
	changed, err := v.bytesOf(ctx, n, info, &p.findings)
	if err != nil {
		return p, err
	}
	c := &partCheck{v: v, n: n, url: info.URL, proof: p, ledger: newLedger(v.plan, n), changed: changed}
	obj, err := v.store.Open(ctx, info)
	if err != nil {
		return p, classify(err)
	}
	c.letters, err = v.openLetters(ctx, n, &p.findings)
	if err != nil {
		return p, err
	}
	defer c.letters.close()
	check := c.rows
	if v.plan.Decides.Format == writers.OpenAI {
		check = c.openAI
	}
	if err := check(ctx, obj); err != nil {
		return p, err
	}
	if err := c.letters.end(); err != nil {
		return p, err
	}
	c.count()
	return p, nil
}

// partCheck goes through the rows of a part.
type partCheck struct {
	v       *verifier
	n       int
	url     string
	proof   *partProof
	ledger  *ledger
	letters *letterCheck
	changed bool  // the bytes are not those that were committed
	line    int64 // records read
	broken  bool  // the part could not be read to its end
	digest  string
}

func (c *partCheck) at(kind FindingKind, line int64, id *RowID, format string, args ...any) {
	c.proof.add(Finding{Kind: kind, File: c.url, Line: line, Row: id, Message: fmt.Sprintf(format, args...)})
}

// rows reads a part in Parquet or JSONL: each row's identity, and the result digest of all.
func (c *partCheck) rows(ctx context.Context, obj *objstore.Object) error {
	d := &c.v.plan.Decides
	opts := readers.Options{Format: d.Format, Carry: true, MaxLineBytes: maxPartLine}
	for _, name := range checkedColumns {
		if c.v.owns(name) {
			opts.Columns = append(opts.Columns, d.OutputPrefix+name)
		}
	}
	var schema *row.Schema
	if d.Format == writers.Parquet {
		var err error
		if schema, err = readers.Schema(ctx, obj, opts, 0); err != nil {
			return c.unreadable(err)
		}
		c.footer(schema)
	}
	in, err := readers.Open(ctx, obj, readers.Cut{}, opts)
	if err != nil {
		return c.unreadable(err)
	}
	defer in.Close()
	var failed error // of the store
	next := func() (*row.Record, error) {
		rec, err := in.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				failed = err
			}
			return nil, err
		}
		c.line++
		c.row(rec)
		return rec, nil
	}
	cfg := writers.Config{Format: d.Format, Prefix: d.OutputPrefix, Own: d.OutputColumns, Logprobs: d.Params.Logprobs >= 0, TokenIDs: d.Params.ReturnTokenIDs}
	stats, err := writers.Digest(cfg, schema, next)
	if err == nil {
		c.digest = stats.ResultDigest
	}
	for err != nil && failed == nil { // a row without a digest: the others' identities count all the same
		if _, err := next(); errors.Is(err, io.EOF) {
			break
		}
	}
	if failed != nil {
		return c.unreadable(failed)
	}
	return nil
}

// unreadable notes what is wrong with the part's form; errors of the store are returned.
func (c *partCheck) unreadable(err error) error {
	var fe *readers.FileError
	if !errors.As(err, &fe) {
		return classify(err)
	}
	c.broken = true
	c.at(UnreadablePart, 0, nil, "%v", fe)
	return nil
}

// footer compares what a Parquet file says about itself.
func (c *partCheck) footer(s *row.Schema) {
	for _, kv := range s.Metadata {
		if kv.Key == "batchmill.plan_digest" && kv.Value != c.v.plan.Digest {
			c.at(ForeignPlan, 0, nil, "its footer names the plan %.12s, the output's is %.12s", kv.Value, c.v.plan.Digest)
		}
	}
}

// checkedColumns are those of ours that a row is checked by.
var checkedColumns = []string{"source_file", "row_index", "sample_index", "status", "error_code", "error_message", "prompt_tokens", "cached_tokens",
	"completion_tokens", "total_tokens", "seed", "model_digest", "run_id"}

// cells are the checked columns of a row.
type cells struct {
	id      RowID
	whole   bool // the identity is there
	status  row.Status
	code    row.Code
	message string
	seed    *int64
}

// row checks one record of the part.
func (c *partCheck) row(rec *row.Record) {
	if rec.Err != nil {
		c.at(UnreadableRow, c.line, nil, "%v", rec.Err)
		return
	}
	x := c.cells(rec)
	if x.whole {
		if !c.identity(x.id, x.status == row.Failed) {
			return // not this part's: its counts and letters are not either
		}
	}
	f := &c.proof.facts
	f.Rows.Total++
	switch x.status {
	case row.OK:
		f.Rows.OK++
	case row.Skipped:
		f.Rows.Skipped++
	case row.Failed:
		f.Rows.Error++
		if x.code != "" {
			f.Errors[x.code]++
		}
		c.letters.row(c.line, &x)
	case "":
	default:
		c.at(WrongRow, c.line, &x.id, "its status is %q", x.status)
	}
}

// cells takes the checked columns out of a record.
func (c *partCheck) cells(rec *row.Record) (x cells) {
	get := func(name string) any { return rec.Fields[c.v.plan.Decides.OutputPrefix+name] }
	str := func(name string) string { s, _ := get(name).(string); return s }
	num := func(name string) (int64, bool) { n, ok := get(name).(int64); return n, ok }
	x.status, x.code, x.message = row.Status(str("status")), row.Code(str("error_code")), str("error_message")
	if n, ok := num("seed"); ok {
		x.seed = &n
	}
	if c.v.owns("source_file") && c.v.owns("row_index") {
		source, ok := get("source_file").(string)
		index, ok2 := num("row_index")
		sample, ok3 := num("sample_index")
		if x.whole = ok && ok2 && (ok3 || !c.v.owns("sample_index")); !x.whole {
			c.at(UnreadableRow, c.line, nil, "the row does not say which row of the input it is")
		} else if !c.v.owns("sample_index") && c.v.plan.Decides.Samples > 1 {
			x.whole = false // samples cannot be told apart
		}
		x.id = RowID{source, index, sample}
	}
	prompt, a := num("prompt_tokens")
	cached, _ := num("cached_tokens")
	completion, b := num("completion_tokens")
	c.proof.facts.Tokens.Prompt += prompt
	c.proof.facts.Tokens.Cached += cached
	c.proof.facts.Tokens.Completion += completion
	if total, ok := num("total_tokens"); a && b && ok && total != prompt+completion {
		c.at(WrongRow, c.line, &x.id, "its total_tokens are %d, but %d and %d are their parts", total, prompt, completion)
	}
	if want := c.v.plan.Decides.ModelDigest; c.v.owns("model_digest") && str("model_digest") != want {
		c.at(WrongRow, c.line, &x.id, "it was made by the model %.12s, the plan's is %.12s", str("model_digest"), want)
	}
	if want := c.v.want[c.n]; c.changed && want != nil && want.RunID != "" && c.v.owns("run_id") && str("run_id") != want.RunID {
		c.at(ForeignPlan, c.line, &x.id, "it was written by the run %s, the part was committed by %s", str("run_id"), want.RunID)
	}
	if c.v.owns("status") && c.v.owns("error_code") && (x.status == row.Failed) != (x.code != "") {
		c.at(WrongRow, c.line, &x.id, "its status is %s, its error_code %q", x.status, x.code)
	}
	return x
}

// identity notes that a row was met. It reports whether the row is this part's, met for the first time.
func (c *partCheck) identity(id RowID, failed bool) bool {
	shard, at, ok := c.v.index.find(id.SourceFile, id.RowIndex)
	switch {
	case !ok || id.SampleIndex < 0 || id.SampleIndex >= c.ledger.samples:
		c.at(ForeignRow, c.line, &id, "the plan has no such row")
		return false
	case shard != c.n:
		c.at(ForeignRow, c.line, &id, "the row belongs to %s", c.v.partName(shard))
		return false
	}
	switch c.ledger.mark(at, id.SampleIndex, failed) {
	case metTwice:
		c.at(DoubledRow, c.line, &id, "the row is there a second time")
		return false
	case metLate:
		c.at(RowOrder, c.line, &id, "the row stands behind one that follows it in the input")
	}
	return true
}

// count compares what the rows came to with what was committed.
func (c *partCheck) count() {
	got, want := &c.proof.facts, c.v.want[c.n]
	identified := c.v.plan.Decides.Format == writers.OpenAI || c.v.owns("source_file") && c.v.owns("row_index") && (c.v.owns("sample_index") || c.ledger.samples == 1)
	if identified {
		gaps, total := c.ledger.gaps(listedFindings, want != nil && got.Rows.Total < want.Rows.Total)
		for _, g := range gaps {
			f := Finding{Kind: MissingRow, File: c.url, Row: &RowID{g.source, g.first, g.sample}, Message: "the row is missing"}
			if g.sample > 0 {
				f.Message = "samples of the row are missing"
			}
			if g.rows > 1 {
				f.Rows, f.Message = g.rows, fmt.Sprintf("%d rows are missing, up to row %d", g.rows, g.first+g.rows-1)
			}
			total -= g.rows
			c.proof.add(f)
		}
		if total > 0 {
			c.proof.list[len(c.proof.list)-1].More += total
		}
	} else if n := c.ledger.records; want == nil && c.ledger.samples == 1 && got.Rows.Total != n && !c.broken {
		c.at(OtherCounts, 0, nil, "it has %d rows, the plan %d", got.Rows.Total, n)
	}
	if want == nil {
		return
	}
	if c.digest != "" && c.digest != want.ResultDigest {
		c.at(OtherResults, 0, nil, "its result digest is %.16s..., that of what was committed is %.16s...", c.digest, want.ResultDigest)
	}
	if got.Rows.Total != want.Rows.Total {
		c.at(OtherCounts, 0, nil, "it has %d rows, %d were committed", got.Rows.Total, want.Rows.Total)
	} else if c.v.owns("status") && got.Rows != want.Rows {
		c.at(OtherCounts, 0, nil, "%d rows are ok and %d failed, where %d and %d were committed", got.Rows.OK, got.Rows.Error, want.Rows.OK, want.Rows.Error)
	}
	if c.v.plan.Decides.Format == writers.OpenAI {
		return
	}
	t, u := got.Tokens, want.Tokens
	for _, x := range []struct {
		column string
		a, b   int64
	}{{"prompt_tokens", t.Prompt, u.Prompt}, {"cached_tokens", t.Cached, u.Cached}, {"completion_tokens", t.Completion, u.Completion}} {
		if c.v.owns(x.column) && x.a != x.b && !c.broken {
			c.at(OtherCounts, 0, nil, "its %s sum up to %d, %d were committed", x.column, x.a, x.b)
		}
	}
}
