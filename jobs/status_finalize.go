package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

// Finalization is what Finalize came to.
type Finalization struct {
	Status   string    `json:"status"` // complete, incomplete
	ExitCode int       `json:"exit_code"`
	Output   string    `json:"output"`
	Written  bool      `json:"written"` // _SUCCESS, by this call
	Parts    int       `json:"parts"`   // of the plan
	Missing  []string  `json:"missing"` // parts that are not there yet
	Rows     RowCounts `json:"rows"`    // of those that are
	Message  string    `json:"message"`
}

// Err is the error that a command ends with.
func (f *Finalization) Err() error {
	if f.Status == "complete" {
		return nil
	}
	return Errorf(Interrupted, "run the job again, or wait for the processes that are at work", "%s", f.Message)
}

// Finalize marks a job complete whose parts are all there, as the run does that commits the last of them: it is for jobs
// whose processes ended between the last part and the marker. Nothing is changed where parts are missing.
func Finalize(ctx context.Context, store *objstore.Store, url string) (*Finalization, error) {
	o, err := openOutput(ctx, store, url)
	if err != nil {
		return nil, err
	}
	for _, in := range o.plan.Inputs {
		if in.Broken != "" {
			return nil, Errorf(BadInput, "bring a whole file and run it to another --output", "the job cannot be complete: input %s was left out: %s", in.URL, in.Broken)
		}
	}
	before, err := store.Stat(ctx, o.layout.plan())
	if err != nil {
		return nil, classify(err)
	}
	parts, err := existingParts(ctx, store, o.layout)
	if err != nil {
		return nil, err
	}
	facts, why, err := o.factsOf(ctx, parts)
	if err != nil {
		return nil, err
	}
	f := &Finalization{Status: "complete", Output: o.layout.shown(), Parts: len(o.plan.Shards), Missing: []string{}}
	total := Facts{Errors: map[row.Code]int64{}}
	all := make([]*Facts, len(o.plan.Shards))
	for n := range all {
		if why[n] != nil {
			return nil, why[n]
		}
		if all[n] = facts[n]; all[n] == nil {
			f.Missing = append(f.Missing, o.partName(n))
			f.Rows.NotStarted += o.plan.shardRows(n) * max(1, int64(o.plan.Decides.Samples))
			continue
		}
		if all[n].PlanDigest != o.plan.Digest {
			return nil, Errorf(BadInput, "", "%s belongs to another plan", o.layout.part(n))
		}
		total.merge(all[n])
	}
	missing := f.Rows.NotStarted
	f.Rows = total.Rows
	f.Rows.NotStarted, f.Rows.Total = missing, total.Rows.Total+missing
	if len(f.Missing) > 0 {
		f.Status, f.ExitCode = "incomplete", Interrupted.ExitCode()
		f.Message = fmt.Sprintf("%d of %d parts are missing: %s", len(f.Missing), f.Parts, few(f.Missing))
		return f, nil
	}
	if now, err := store.Stat(ctx, o.layout.plan()); err != nil && !errors.Is(err, objstore.ErrNotExist) {
		return nil, classify(err)
	} else if err != nil || now.ETag != before.ETag {
		return nil, Errorf(BadInput, "", "%s: %w", o.layout.shown(), errForeignPlan)
	}
	if f.Written, err = putJSON(ctx, store, o.layout.success(), success{PlanDigest: o.plan.Digest, Parent: o.plan.Parent, Parts: all}); err != nil {
		return nil, err
	}
	f.Message = "the job is complete"
	if !f.Written {
		f.Message = "the job was marked complete before"
	}
	return f, nil
}
