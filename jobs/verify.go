package jobs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/writers"
)

// Verification is what Verify found out about an output. Rows and tokens are counted from the data.
type Verification struct {
	Status     string             `json:"status"` // ok, damaged, unfinished
	ExitCode   int                `json:"exit_code"`
	Output     string             `json:"output"`
	PlanDigest string             `json:"plan_digest"`
	Parts      VerifiedParts      `json:"parts"`
	Rows       RowCounts          `json:"rows"`
	Errors     map[row.Code]int64 `json:"errors"`
	Tokens     TokenCounts        `json:"tokens"`
	Findings   []Finding          `json:"findings"`
	NotProved  []string           `json:"not_proved"` // what this output's format or columns leave open
	Message    string             `json:"message"`
}

// VerifiedParts counts parts: those of the plan, those that are there, and those without a finding.
type VerifiedParts struct {
	Planned int   `json:"planned"`
	There   int   `json:"there"`
	Proved  int   `json:"proved"`
	Bytes   int64 `json:"bytes"`
}

// FindingKind classes what is wrong with an output.
type FindingKind string

// The kinds of findings.
const (
	MissingPart    FindingKind = "missing_part"    // the plan has it, the output does not
	ForeignPlan    FindingKind = "foreign_plan"    // of another plan than the output's
	ForeignData    FindingKind = "foreign_data"    // an object among the data, or the dead letters, that is not the plan's
	ChangedBytes   FindingKind = "changed_bytes"   // not the bytes that were committed
	UnreadablePart FindingKind = "unreadable_part" // breaks off, or is damaged
	UnreadableRow  FindingKind = "unreadable_row"
	MissingRow     FindingKind = "missing_row"
	DoubledRow     FindingKind = "doubled_row"
	ForeignRow     FindingKind = "foreign_row" // belongs to another part, or to no part of the plan
	RowOrder       FindingKind = "row_order"
	WrongRow       FindingKind = "wrong_row" // its columns contradict each other, or the plan
	OtherResults   FindingKind = "other_results"
	OtherCounts    FindingKind = "other_counts"
	DeadLetters    FindingKind = "dead_letters"
	MarkerMismatch FindingKind = "marker" // _SUCCESS, or what is known about a part, does not fit the plan
)

// Finding is one thing that is wrong. Line is the record's line, or for Parquet its row, counted from 1, in the file; Row
// is the row of the input, where it is known. More counts those of the same kind and file that are not listed.
type Finding struct {
	Kind    FindingKind `json:"kind"`
	File    string      `json:"file"`
	Line    int64       `json:"line,omitempty"`
	Row     *RowID      `json:"row,omitempty"`
	Rows    int64       `json:"rows,omitempty"` // rows from Row on, where it is more than that one
	More    int64       `json:"more,omitempty"`
	Message string      `json:"message"`
}

// RowID names a unit as the output does.
type RowID struct {
	SourceFile  string `json:"source_file"`
	RowIndex    int64  `json:"row_index"`
	SampleIndex int64  `json:"sample_index"`
}

// listedFindings bounds the findings of a kind that are listed for one file; the others are counted.
const listedFindings = 10

// maxVerifiers bounds the parts that are read at once: storage and decompression keep a few cores busy, memory is a page
// of every column for each.
const maxVerifiers = 8

// findings gathers what is wrong with one file.
type findings struct {
	list  []Finding
	count map[FindingKind]int64
	last  map[FindingKind]int
}

func (f *findings) add(x Finding) {
	if f.count == nil {
		f.count, f.last = map[FindingKind]int64{}, map[FindingKind]int{}
	}
	if f.count[x.Kind]++; f.count[x.Kind] > listedFindings {
		f.list[f.last[x.Kind]].More++
		return
	}
	f.last[x.Kind] = len(f.list)
	f.list = append(f.list, x)
}

func (f *findings) addf(kind FindingKind, file, format string, args ...any) {
	f.add(Finding{Kind: kind, File: file, Message: fmt.Sprintf(format, args...)})
}

// Verify reads an output again, from storage alone, and proves that every part is what the job committed and holds
// exactly the plan's rows, once and in order. The error is nil, or says why the output could not be looked at; what is
// wrong with it is in the Verification, whose Err ends a command. each, if not nil, is called after every part.
func Verify(ctx context.Context, store *objstore.Store, url string, each func(part string, found int)) (*Verification, error) {
	o, err := openOutput(ctx, store, url)
	if err != nil {
		return nil, err
	}
	v := &verifier{output: o, index: newPlanIndex(o.plan), bySHA: map[string]int{}}
	rep := &Verification{Output: o.layout.shown(), PlanDigest: o.plan.Digest, Errors: map[row.Code]int64{}, Findings: []Finding{}, NotProved: v.leftOpen()}
	var head findings
	parts, done, err := v.prepare(ctx, &head)
	if err != nil {
		return nil, err
	}
	proofs := make([]*partProof, len(o.plan.Shards))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(min(maxVerifiers, runtime.GOMAXPROCS(0)))
	for n := range o.plan.Shards {
		info, ok := parts[o.layout.part(n)]
		if !ok {
			continue
		}
		g.Go(func() error {
			p, err := v.part(gctx, n, info)
			proofs[n] = p
			if err == nil && each != nil {
				v.mu.Lock()
				each(info.URL, len(p.list))
				v.mu.Unlock()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	rep.Parts.Planned = len(o.plan.Shards)
	rep.Findings = append(rep.Findings, head.list...)
	total := Facts{Errors: rep.Errors}
	missing := int64(0)
	for n, p := range proofs {
		if p == nil {
			missing += o.plan.shardRows(n) * max(1, int64(o.plan.Decides.Samples))
			if done {
				rep.Findings = append(rep.Findings, Finding{Kind: MissingPart, File: o.layout.part(n), Message: "the part is missing, although " + objstore.Base(o.layout.success()) + " says that the job is complete"})
			}
			continue
		}
		rep.Parts.There++
		rep.Parts.Bytes += p.bytes
		if len(p.list) == 0 {
			rep.Parts.Proved++
		}
		rep.Findings = append(rep.Findings, p.list...)
		total.merge(&p.facts)
	}
	rep.Rows, rep.Tokens = total.Rows, total.Tokens
	rep.Rows.NotStarted = missing
	rep.Rows.Total += missing
	rep.conclude(done)
	return rep, nil
}

// conclude sets status, exit code and message.
func (v *Verification) conclude(done bool) {
	v.Status = "ok"
	v.Message = fmt.Sprintf("%d parts hold %d rows, each once and in order", v.Parts.Proved, v.Rows.Total)
	if err := v.Err(); err == nil && !done {
		v.Status, v.ExitCode = "unfinished", Interrupted.ExitCode()
		v.Message = fmt.Sprintf("the job is not complete: %d of %d parts are there, and nothing is wrong with them", v.Parts.There, v.Parts.Planned)
		if v.Parts.There == v.Parts.Planned {
			v.Message = "all parts are there, and nothing is wrong with them, but _SUCCESS is missing: `batchmill finalize` writes it"
		}
	} else if err != nil {
		v.Status, v.ExitCode, v.Message = "damaged", KindOf(err).ExitCode(), firstLine(err.Error())
	}
}

// Err is the error that a command ends with.
func (v *Verification) Err() error {
	switch {
	case len(v.Findings) > 0:
		files := map[string]bool{}
		for _, f := range v.Findings {
			files[f.File] = true
		}
		return Errorf(BadInput, "", "the output is damaged: something is wrong with %d of its files", len(files))
	case v.Status == "unfinished":
		return Errorf(Interrupted, "", "%s", v.Message)
	}
	return nil
}

// verifier checks the parts of one output.
type verifier struct {
	*output
	index *planIndex
	want  []*Facts       // by shard, nil where nothing is known
	why   map[int]error  // why nothing is known of a part that is there
	bySHA map[string]int // which part has these bytes
	mu    sync.Mutex     // one report of a part at a time
}

// prepare gathers what should be there, and looks for what should not. done tells whether the job is marked complete.
func (v *verifier) prepare(ctx context.Context, head *findings) (parts map[string]objstore.Info, done bool, err error) {
	if parts, err = existingParts(ctx, v.store, v.layout); err != nil {
		return nil, false, err
	}
	v.want = make([]*Facts, len(v.plan.Shards))
	mark, err := v.success(ctx)
	if KindOf(err) == BadInput && err != nil {
		head.addf(MarkerMismatch, v.layout.success(), "%s", firstLine(err.Error()))
	} else if err != nil {
		return nil, false, err
	}
	sealed, why, err := v.factsOf(ctx, parts)
	if err != nil {
		return nil, false, err
	}
	if mark != nil {
		v.fromMarker(mark, head)
		v.compareSeals(sealed, why, head)
	} else {
		for n, f := range sealed {
			v.want[n] = f
		}
		v.why = why
	}
	for n, f := range v.want {
		if f != nil {
			v.bySHA[f.ObjectSHA256] = n
		}
	}
	strange, err := v.strangers(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, url := range strange {
		head.addf(ForeignData, url, "the object is not part of the plan, but readers of the folder take it for data")
	}
	return parts, mark != nil, nil
}

// fromMarker takes what _SUCCESS says about the parts.
func (v *verifier) fromMarker(mark *success, head *findings) {
	if mark.PlanDigest != v.plan.Digest {
		head.addf(ForeignPlan, v.layout.success(), "it belongs to the plan %.12s, the output's is %.12s", mark.PlanDigest, v.plan.Digest)
	}
	byName := map[string]*Facts{}
	for _, f := range mark.Parts {
		byName[f.Part] = f
	}
	for n := range v.want {
		if v.want[n] = byName[v.partName(n)]; v.want[n] == nil {
			head.addf(MarkerMismatch, v.layout.success(), "it does not name %s", v.partName(n))
		}
		delete(byName, v.partName(n))
	}
	for _, f := range mark.Parts {
		if byName[f.Part] != nil {
			head.addf(MarkerMismatch, v.layout.success(), "it names %s, which the plan does not have", f.Part)
		}
	}
}

// compareSeals holds the marker to the seals: both say what the parts are. A part that does not fit its seal is looked at
// later, against the marker.
func (v *verifier) compareSeals(sealed map[int]*Facts, why map[int]error, head *findings) {
	for n, want := range v.want {
		if want == nil {
			continue
		}
		url := v.layout.seal(n)
		f := sealed[n]
		switch {
		case f != nil && (f.ObjectSHA256 != want.ObjectSHA256 || f.ResultDigest != want.ResultDigest || f.Rows != want.Rows || f.Tokens != want.Tokens):
			head.addf(MarkerMismatch, url, "the seal and _SUCCESS do not say the same about %s", v.partName(n))
		case why[n] != nil && !errors.Is(why[n], errNotAsSealed):
			head.addf(MarkerMismatch, url, "%s", firstLine(why[n].Error()))
		}
	}
}

// leftOpen says what cannot be proved about this output, whatever its bytes are.
func (v *verifier) leftOpen() []string {
	open := []string{}
	if v.plan.Decides.Format == writers.OpenAI {
		return append(open, "the result digest and token counts: this format does not hold all result columns; its bytes, rows and dead letters are checked")
	}
	for _, name := range []string{"source_file", "row_index"} {
		if !v.owns(name) {
			return append(open, fmt.Sprintf("which rows the parts hold: the output has no column %s; their number, bytes and result digest are checked", name))
		}
	}
	if !v.owns("sample_index") && v.plan.Decides.Samples > 1 {
		open = append(open, "which samples of a row the parts hold: the output has no column sample_index")
	}
	if !v.owns("status") {
		open = append(open, "counts of ok and error rows, and dead letters: the output has no column status")
	}
	return open
}

// owns tells whether the output has a column of ours.
func (v *verifier) owns(name string) bool {
	own := v.plan.Decides.OutputColumns
	if own != nil {
		return slices.Contains(own, name)
	}
	return !slices.ContainsFunc(writers.Columns(), func(c writers.Column) bool { return c.Name == name && c.OnAsking })
}

// bytesOf compares a part's bytes with what was committed. changed tells that they are others.
func (v *verifier) bytesOf(ctx context.Context, n int, info objstore.Info, found *findings) (changed bool, err error) {
	want := v.want[n]
	if want == nil {
		if why := v.why[n]; why != nil {
			found.addf(MarkerMismatch, info.URL, "%s", firstLine(why.Error()))
		}
		return false, nil
	}
	if want.PlanDigest != v.plan.Digest {
		found.addf(ForeignPlan, info.URL, "it was written for the plan %.12s, the output's is %.12s", want.PlanDigest, v.plan.Digest)
	}
	sum, err := hashObject(ctx, v.store, info)
	if err != nil {
		return false, classify(err)
	}
	if sum == want.ObjectSHA256 {
		return false, nil
	}
	other, known := v.bySHA[sum]
	switch {
	case known:
		found.addf(ChangedBytes, info.URL, "it holds the bytes of %s", v.partName(other))
	case info.Size < want.Size:
		found.addf(ChangedBytes, info.URL, "it has %d of its %d bytes", info.Size, want.Size)
	case info.Size > want.Size:
		found.addf(ChangedBytes, info.URL, "it has %d bytes, %d were committed", info.Size, want.Size)
	default:
		found.addf(ChangedBytes, info.URL, "its SHA-256 is %.16s..., that of what was committed is %.16s...", sum, want.ObjectSHA256)
	}
	meta, err := v.store.Metadata(ctx, info.URL)
	if err != nil && !errors.Is(err, objstore.ErrNotExist) {
		return false, classify(err)
	}
	if p := meta["batchmill-plan"]; p != "" && p != v.plan.Digest {
		found.addf(ForeignPlan, info.URL, "it was written for the plan %.12s, the output's is %.12s", p, v.plan.Digest)
	}
	return true, nil
}
