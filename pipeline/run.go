package pipeline

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/internal/row"
)

// Feed yields the records of a job, in order; io.EOF ends it. It is called from one goroutine.
type Feed interface {
	Next(ctx context.Context) (*row.Record, error)
}

// Sink takes results. It is called from several goroutines, in any order: a record's unusable rows come from the
// producing side, completions from the engine's. units tells, before any result of the record, how many will come.
type Sink interface {
	Announce(rec *row.Record, units int) error
	Done(res *row.Result) error
}

// Engine is what the pipeline needs of infer.Engine.
type Engine interface {
	Run(ctx context.Context, src infer.Source, sink func(infer.Completion) error) error
}

// Options bound the window; zero values are the defaults.
type Options struct {
	WindowRows  int
	WindowBytes int

	// ReturnTokenIDs keeps the ids of completions in the results.
	ReturnTokenIDs bool
}

// Run carries every record of the feed to the sink. It returns when all are done, at the first error of feed, engine or
// sink, or when ctx ends; rows that were on their way then have no result.
func Run(ctx context.Context, eng Engine, prep *Preparer, feed Feed, sink Sink, o Options) (WindowStats, error) {
	w := newWindow(o.WindowRows, o.WindowBytes)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := produce(ctx, prep, feed, sink, w)
		w.close(err)
		return err
	})
	g.Go(func() error {
		src := &source{w: w, running: map[int64]*Unit{}}
		return eng.Run(ctx, src, func(c infer.Completion) error {
			return sink.Done(result(src.finish(c.ID), &c, o))
		})
	})
	err := g.Wait()
	return w.stats, err
}

// produce prepares records and fills the window. It runs in one goroutine: tokenising is two orders of magnitude faster
// than any model, so more would only take cores from the engine.
func produce(ctx context.Context, prep *Preparer, feed Feed, sink Sink, w *window) error {
	for {
		rec, err := feed.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		units, id, rerr := prep.Prepare(rec)
		if rerr != nil {
			if err := sink.Announce(rec, 1); err != nil {
				return err
			}
			if err := sink.Done(failed(prep, rec, id, rerr)); err != nil {
				return err
			}
			continue
		}
		if err := sink.Announce(rec, len(units)); err != nil {
			return err
		}
		for _, u := range units {
			if err := w.push(ctx, u); err != nil {
				return err
			}
		}
	}
}

// failed is the result of a row that never reached the engine.
func failed(prep *Preparer, rec *row.Record, id *string, rerr *row.Error) *row.Result {
	seed, ok := rec.Fields[seedField].(int64)
	if !ok {
		seed = UnitSeed(prep.Seed, id, rec.Row, 0)
	}
	return &row.Result{
		Key:          row.UnitKey{Source: rec.Source, Row: rec.Row},
		CustomID:     id,
		Status:       row.Failed,
		Err:          rerr,
		FinishReason: row.FinishError,
		Seed:         seed,
	}
}

// result joins a completion with its unit.
func result(u *Unit, c *infer.Completion, o Options) *row.Result {
	res := &row.Result{
		Key:              u.Key,
		CustomID:         u.CustomID,
		Status:           row.OK,
		FinishReason:     c.FinishReason,
		PromptTokens:     int32(c.PromptTokens),
		CachedTokens:     int32(c.CachedTokens),
		CompletionTokens: int32(c.CompletionTokens),
		Attempts:         int32(c.Attempts),
		Seed:             u.Request.Seed,
		Logprobs:         c.Logprobs,
	}
	if c.Attempts > 0 { // a row that was refused before its first step has no times
		res.Times = &c.Times
	}
	if c.HasStop {
		res.StopReason = &c.StopReason
	}
	if c.Err != nil {
		res.Status, res.Err, res.FinishReason = row.Failed, c.Err, row.FinishError
	}
	if c.Err == nil || c.Text != "" { // text that came before an error is kept
		res.Completion = &c.Text
	}
	if o.ReturnTokenIDs {
		res.TokenIDs = c.TokenIDs
		if res.TokenIDs == nil {
			res.TokenIDs = []int32{}
		}
	}
	return res
}
