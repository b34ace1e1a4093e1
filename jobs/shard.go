package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
)

// shardState follows one open shard from its first record to its part.
type shardState struct {
	number  int
	spool   *spool
	records int64 // read so far
	units   int64 // announced
	done    int64 // with a result
	allRead bool
	broken  error // the source failed beyond a truncation: no part
}

// shardFeed opens the shards of this process one after the other, at most a number of them unfinished, hands their
// records to the pipeline and gathers their results. It is the pipeline's Feed and Sink.
type shardFeed struct {
	store   *objstore.Store
	plan    *Plan
	opts    readers.Options
	samples int64
	todo    []int // shard numbers
	slots   *semaphore.Weighted
	ready   chan<- *shardState // shards whose results are all there
	count   func(*row.Result)

	cur    *shardState
	reader *segmentReader

	mu      sync.Mutex
	pending map[row.UnitKey]place // units without a result: at most a window and the engine's sequences
}

type place struct {
	shard *shardState
	slot  int64
}

// Next implements pipeline.Feed.
func (f *shardFeed) Next(ctx context.Context) (*row.Record, int, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		if f.cur == nil {
			if len(f.todo) == 0 {
				return nil, 0, io.EOF
			}
			if err := f.openShard(ctx); err != nil {
				return nil, 0, err
			}
		}
		rec, err := f.reader.Read()
		if err == nil {
			return rec, f.cur.number, nil
		}
		shard := f.cur
		f.cur = nil
		switch {
		case errors.Is(err, io.EOF):
		case KindOf(err) == BadInput: // a broken file costs its shard, not the others
			shard.broken = err
		default:
			return nil, 0, err
		}
		if err := f.endOfShard(ctx, shard); err != nil {
			return nil, 0, err
		}
	}
}

func (f *shardFeed) openShard(ctx context.Context) error {
	if err := f.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	s, err := newSpool()
	if err != nil {
		return err
	}
	f.cur = &shardState{number: f.todo[0], spool: s}
	f.todo = f.todo[1:]
	f.reader = newSegmentReader(ctx, f.store, f.plan, f.cur.number, f.opts)
	return nil
}

// Announce implements pipeline.Sink: it gives the record's units their slots.
func (f *shardFeed) Announce(rec *row.Record, units int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range units {
		key := row.UnitKey{Source: rec.Source, Row: rec.Row, Sample: int32(s)}
		if _, twice := f.pending[key]; twice {
			return fmt.Errorf("%s row %d was read twice", rec.Source, rec.Row)
		}
		f.pending[key] = place{f.cur, f.cur.records*f.samples + int64(s)}
	}
	f.cur.records++
	f.cur.units += int64(units)
	return nil
}

// Done implements pipeline.Sink.
func (f *shardFeed) Done(res *row.Result) error {
	f.mu.Lock()
	at, ok := f.pending[res.Key]
	delete(f.pending, res.Key)
	f.mu.Unlock()
	if !ok {
		return fmt.Errorf("a result for %s row %d sample %d, which nothing waits for", res.Key.Source, res.Key.Row, res.Key.Sample)
	}
	if err := at.shard.spool.put(at.slot, res); err != nil {
		return err
	}
	f.count(res)
	f.mu.Lock()
	at.shard.done++
	finished := at.shard.allRead && at.shard.done == at.shard.units
	f.mu.Unlock()
	if finished {
		f.ready <- at.shard
	}
	return nil
}

// endOfShard notes that all records are read; the shard may be complete by then.
func (f *shardFeed) endOfShard(ctx context.Context, s *shardState) error {
	f.mu.Lock()
	s.allRead = true
	finished := s.done == s.units
	f.mu.Unlock()
	if !finished {
		return nil
	}
	select {
	case f.ready <- s:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
