package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/internal/row"
)

// Feed yields the records of a job, in order, each with the number of the shard that it belongs to; io.EOF ends it. It is
// called from one goroutine.
type Feed interface {
	Next(ctx context.Context) (rec *row.Record, shard int, err error)
}

// Sink takes results. It is called from several goroutines, in any order: results of unusable rows and of copies come
// from the producing side, completions from the engine's.
//
// Announce comes before any result of a record and says how many it has; it returns the samples that are missing, in order:
// those that are done already are not run. The list is only valid until the next call.
type Sink interface {
	Announce(rec *row.Record, units int) (missing []int32, err error)
	Done(res *row.Result) error
}

// Engine is what the pipeline needs of infer.Engine.
type Engine interface {
	Run(ctx context.Context, src infer.Source, sink func(infer.Completion) error) error
}

// Options bound the window and say how work is saved; zero values are the defaults. None of them decides a result.
type Options struct {
	WindowRows  int
	WindowBytes int

	// OpenShards is how many shards may be unfinished at once; 0 = any number. Half of them are ordered together, so that
	// the first half can end, and make room for new ones, while the second is on its way.
	OpenShards int

	NoDedup         bool // equal requests are each run
	NoPrefixSharing bool // the engine shares no prefixes, so prompts are not grouped by them

	// Drain, once closed, ends the run early: nothing more is read, rows that wait are dropped, and those that the engine
	// has begun are done.
	Drain <-chan struct{}

	// ReturnTokenIDs keeps the ids of completions in the results.
	ReturnTokenIDs bool
}

// pipe is one call of Run.
type pipe struct {
	prep  *Preparer
	feed  Feed
	sink  Sink
	o     Options
	w     *window
	seen  *dedup // nil without dedup
	calib *calibrator
}

// Run carries every record of the feed to the sink. It returns when all are done, or all that a drain lets be done, at the
// first error of feed, engine or sink, or when ctx ends; rows that were on their way then have no result.
func Run(ctx context.Context, eng Engine, prep *Preparer, feed Feed, sink Sink, o Options) (WindowStats, error) {
	p := &pipe{prep: prep, feed: feed, sink: sink, o: o, calib: newCalibrator()}
	shards := 0
	if o.OpenShards > 0 {
		shards = max(1, o.OpenShards/2)
	}
	by := order{expect: p.calib.expect, flat: o.NoPrefixSharing}
	p.w = newWindow(o.WindowRows, o.WindowBytes, shards, by.arrange, p.calib.epoch)
	if !o.NoDedup {
		p.seen = newDedup(DedupBytes)
	}
	g, ctx := errgroup.WithContext(ctx)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	g.Go(func() error {
		err := p.produce(reading)
		if reading.Err() != nil && ctx.Err() == nil {
			err = nil // whatever it was: a drain stopped the reading
		}
		p.w.close(err)
		return err
	})
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-o.Drain:
			p.w.drop()
			stop()
		case <-ended:
		}
	}()
	g.Go(func() error {
		src := &source{w: p.w, running: map[int64]*Unit{}}
		return eng.Run(ctx, src, func(c infer.Completion) error { return p.complete(src.finish(c.ID), &c) })
	})
	err := g.Wait()
	close(ended)
	<-watched
	return p.w.stats, err
}

// produce prepares records and fills the window. It runs in one goroutine: tokenising is two orders of magnitude faster
// than any model, so more would only take cores from the engine.
func (p *pipe) produce(ctx context.Context) error {
	for {
		rec, shard, err := p.feed.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		units, id, rerr := p.prep.Prepare(rec)
		if rerr != nil {
			missing, err := p.sink.Announce(rec, 1)
			if err != nil {
				return err
			}
			for _, s := range missing { // one, unless other samples were done where there was more memory
				if err := p.sink.Done(failed(p.prep, rec, id, s, rerr)); err != nil {
					return err
				}
			}
			continue
		}
		missing, err := p.sink.Announce(rec, len(units))
		if err != nil {
			return err
		}
		for _, s := range missing {
			if int(s) >= len(units) {
				return fmt.Errorf("%s row %d has %d samples, and was journalled with more", rec.Source, rec.Row, len(units))
			}
			u := units[s]
			u.Shard = shard
			if err := p.enter(ctx, u); err != nil {
				return err
			}
		}
	}
}

// enter puts a unit into the window, unless an equal one runs, or ran, for it.
func (p *pipe) enter(ctx context.Context, u *Unit) error {
	u.Request.Entered = time.Now() // also of a copy, which may have to run after all
	for p.seen != nil {
		what, of, freed := p.seen.admit(u)
		switch what {
		case copyIt:
			return p.sink.Done(copied(of, u))
		case held:
			p.w.hold()
			return nil
		case full:
			select {
			case <-freed:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		break
	}
	return p.w.push(ctx, u)
}

// complete takes a completion from the engine and settles the copies that waited for it.
func (p *pipe) complete(u *Unit, c *infer.Completion) error {
	if c.Err == nil {
		p.calib.note(u.Request.Params.MaxTokens, c.PromptTokens, c.CompletionTokens)
	}
	res := result(u, c, p.o)
	if err := p.sink.Done(res); err != nil {
		return err
	}
	if p.seen == nil {
		return nil
	}
	units, same := p.seen.settle(u, res)
	if len(units) == 0 {
		return nil
	}
	if !same {
		p.w.release(len(units), units)
		return nil
	}
	for _, x := range units {
		if err := p.sink.Done(copied(res, x)); err != nil {
			return err
		}
	}
	p.w.release(len(units), nil)
	return nil
}

// failed is the result of a row that never reached the engine.
func failed(prep *Preparer, rec *row.Record, id *string, sample int32, rerr *row.Error) *row.Result {
	return &row.Result{
		Key:          row.UnitKey{Source: rec.Source, Row: rec.Row, Sample: sample},
		CustomID:     id,
		Status:       row.Failed,
		Err:          rerr,
		FinishReason: row.FinishError,
		Seed:         SampleSeed(prep.seed(rec, id), sample),
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
