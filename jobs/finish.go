package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

// success is what _SUCCESS holds: every part with its digests and counts.
type success struct {
	PlanDigest string   `json:"plan_digest"`
	Parent     *Parent  `json:"parent,omitempty"` // of a retry
	Parts      []*Facts `json:"parts"`
}

// finish writes _SUCCESS if every part of the job is there, also those of other processes.
func (r *runState) finish(ctx context.Context) error {
	j := r.job
	parts, err := existingParts(ctx, j.store, j.layout)
	if err != nil {
		return err
	}
	for n := range j.plan.Shards {
		_, ok := parts[j.layout.part(n)]
		if !ok && r.facts[n] != nil {
			return Errorf(BadInput, "only one job may use an output; run this one to another --output", "%s was removed while the job ran", j.layout.part(n))
		}
		if !ok {
			return nil // others are still at work; whoever comes last writes the marker
		}
	}
	all := make([]*Facts, len(j.plan.Shards))
	err = each(len(all), func(n int) error {
		if all[n] = r.facts[n]; all[n] != nil {
			return nil
		}
		s, err := trust(ctx, j.store, j.layout, j.plan, n, parts[j.layout.part(n)])
		if err == nil {
			all[n] = &s.Facts
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := sweepJournal(ctx, j.store, j.layout, func(int) bool { return true }, &j.events); err != nil {
		return err
	}
	if err := r.guard(ctx); err != nil {
		return err
	}
	j.events.reached(SuccessBefore)
	if _, err = putJSON(ctx, j.store, j.layout.success(), success{PlanDigest: j.plan.Digest, Parent: j.plan.Parent, Parts: all}); err != nil {
		return err
	}
	j.events.reached(SuccessAfter)
	return nil
}

// summary says what came of the attempt. Rows that were done but not committed count as not started: the next run does
// them again.
func (r *runState) summary(err error) *Summary {
	j := r.job
	sum := &Summary{Status: "ok", RunID: j.runID, Errors: map[row.Code]int64{}, Output: OutputSummary{URL: j.layout.shown(), Parts: len(r.facts)}}
	sum.Inputs = InputSummary{Files: len(j.plan.Inputs), LeftOut: r.leftOut}
	for _, in := range j.plan.Inputs {
		if in.Broken != "" {
			sum.Inputs.Broken++
		}
	}
	total := Facts{Errors: sum.Errors}
	for _, f := range r.facts {
		total.merge(f)
	}
	sum.Rows, sum.Tokens = total.Rows, total.Tokens
	sum.Worked = err == nil || !r.began.IsZero()
	if err != nil && len(r.facts) < r.mine() {
		planned := j.plan.rows(j.spec.Shard) * int64(j.spec.Samples)
		sum.Rows.NotStarted = max(0, planned-sum.Rows.Total)
		sum.Rows.Total += sum.Rows.NotStarted
	}
	wall := time.Since(j.start).Seconds()
	sum.Time = TimeSummary{
		Wall: seconds(wall), Load: seconds(r.load.Seconds()), Journal: seconds(r.cost.journal.total().Seconds()),
		Commit: seconds(r.cost.commit.total().Seconds()), CommitWait: seconds(r.cost.waited().Seconds()),
	}
	sum.Memory.PeakRSS = peakRSS()
	if r.journal != nil {
		sum.Journal = JournalSummary{Resumed: r.resumed, Units: r.journal.stored, Chunks: r.journal.chunks}
	}
	sum.Batch.Buckets = bucketSummaries(r.window.Buckets)
	sum.Sharing = SharingSummary{
		PromptShare: ratio(float64(total.Tokens.Cached), float64(total.Tokens.Prompt-total.Copied.Prompt)),
		Copies:      total.Copied.Rows, CopiedPrompt: total.Copied.Prompt, CopiedCompletion: total.Copied.Completion,
	}
	if r.engine != nil {
		s := r.last
		busy := s.EngineTime.Seconds()
		sum.Time.Engine = seconds(busy)
		sum.Throughput = Throughput{
			Prefill: ratio(float64(s.PrefillTokens), busy),
			Decode:  ratio(float64(s.SampledTokens), busy),
			Rows:    ratio(float64(r.live.Rows.Total), busy),
		}
		sum.Batch.Steps, sum.Batch.Preemptions, sum.Batch.Recomputed = s.Steps, s.Preemptions, s.RecomputedTokens
		sum.Speculated = SpeculationSummary{Drafted: s.DraftedTokens, Accepted: s.AcceptedTokens}
		if s.Steps > 0 {
			sum.Batch.Fill, sum.Batch.Waste = &s.Fill, &s.Waste
		}
		sum.KV = KVSummary{Pages: int64(s.KVPages), PeakBytes: s.KVPeakBytes()}
	}
	if v := r.verdict(err); v != nil {
		sum.ExitCode, sum.Message, sum.Status = ExitCode(v), firstLine(v.Error()), "error"
		switch KindOf(v) {
		case Interrupted:
			sum.Status = "interrupted"
		case RowErrors, NothingToDo:
			sum.Status = "ok"
		}
	}
	return sum
}

// mine is the number of shards of this process.
func (r *runState) mine() int {
	n := 0
	for i := range r.job.plan.Shards {
		if r.job.spec.Shard.Has(i) {
			n++
		}
	}
	return n
}

// verdict is the error that a run ends with: its own, or what its rows came to.
func (r *runState) verdict(err error) error {
	if err != nil {
		return err
	}
	total := Facts{Errors: map[row.Code]int64{}}
	for _, f := range r.facts {
		total.merge(f)
	}
	where := ""
	if total.Rows.Error > 0 {
		where = fmt.Sprintf("their records and reasons are in %s", objstore.Join(r.job.layout.base, "_errors/"))
	}
	switch {
	case total.Errors[row.SourceTruncated] > 0:
		return Errorf(BadInput, where, "%d input file(s) broke off before their end; the rows before are done", total.Errors[row.SourceTruncated])
	case total.Rows.Error > 0 && total.Rows.OK == 0:
		return Errorf(TooManyErrors, where, "no row was ok: %s", errorList(total.Errors))
	case r.job.spec.tooMany(total.Rows, 0) != nil:
		return Errorf(TooManyErrors, where, "%w", r.job.spec.tooMany(total.Rows, 0).(*Error).Err)
	case total.Rows.Error > 0 && r.job.spec.StrictExit:
		return Errorf(RowErrors, where, "%d rows failed: %s", total.Rows.Error, errorList(total.Errors))
	}
	return nil
}

// errorList prints error counts in a stable order.
func errorList(errs map[row.Code]int64) string {
	data, _ := json.Marshal(errs) // maps are sorted
	return string(data)
}

// seconds rounds to milliseconds.
func seconds(s float64) float64 { return math.Round(s*1000) / 1000 }
