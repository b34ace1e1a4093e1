package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
)

// shardState follows one open shard from its first record to its part.
type shardState struct {
	number  int
	spool   *spool
	log     *shardLog
	resumed int64 // units that earlier attempts journalled
	records int64 // read so far
	units   int64 // to do in this attempt
	done    int64 // of them, with a result
	allRead bool
	broken  error // the source failed beyond a truncation: no part
}

// shardFeed opens the shards of this process one after the other, at most a number of them unfinished, hands the records
// that earlier attempts left to the pipeline and gathers their results. It is the pipeline's Feed and Sink.
type shardFeed struct {
	store   *objstore.Store
	plan    *Plan
	opts    readers.Options
	samples int64
	todo    []int // shard numbers
	slots   *semaphore.Weighted
	ready   chan<- *shardState // shards whose results are all there
	count   func(*row.Result)
	journal *journal
	cost    *overhead
	took    func(units int64)                                                     // tells how many units of a shard were journalled before
	resume  func(ctx context.Context, shard int, into *spool) ([]ChunkRef, error) // takes what is journalled; errCommitted

	cur     *shardState
	reader  *segmentReader
	missing []int32 // of the record announced last

	mu      sync.Mutex
	pending map[row.UnitKey]place // units without a result: at most a window and the engine's sequences
	settled int                   // shards that need no more work of the engine
}

type place struct {
	shard *shardState
	slot  int64
	units int // results of the record
}

// errCommitted says that a shard's part is there: somebody else was faster.
var errCommitted = errors.New("the part is there")

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
			if err := f.openShard(ctx); errors.Is(err, errCommitted) {
				f.settle()
				continue
			} else if err != nil {
				return nil, 0, err
			}
		}
		rec, err := f.reader.Read()
		if err == nil {
			whole, err := f.whole()
			if err != nil {
				return nil, 0, err
			}
			if whole {
				f.cur.records++
				continue
			}
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
	began := time.Now()
	err := f.slots.Acquire(ctx, 1)
	f.cost.slots.since(began)
	if err != nil {
		return err
	}
	n := f.todo[0]
	f.todo = f.todo[1:]
	s, err := newSpool()
	if err != nil {
		return err
	}
	refs, err := f.resume(ctx, n, s)
	if err != nil {
		s.close()
		f.slots.Release(1)
		return err
	}
	f.cur = &shardState{number: n, spool: s, log: f.journal.begin(n, refs)}
	f.cur.resumed = s.count()
	f.took(f.cur.resumed)
	f.reader = newSegmentReader(ctx, f.store, f.plan, n, f.opts)
	return nil
}

// known is how many results the present record has by what is journalled of it; 0 if nothing is.
func (f *shardFeed) known() (int, error) {
	at := f.cur.records * f.samples
	for s := range f.samples {
		res, units, err := f.cur.spool.get(at + s)
		if res != nil || err != nil {
			return units, err
		}
	}
	return 0, nil
}

// whole tells whether earlier attempts did all of the present record: then it is neither rendered nor tokenised.
func (f *shardFeed) whole() (bool, error) {
	if f.cur.resumed == 0 {
		return false, nil
	}
	at, n := f.cur.records*f.samples, int64(0)
	for n < f.samples && f.cur.spool.settled(at+n) {
		n++
	}
	if n == 0 || n == f.samples {
		return n > 0, nil
	}
	units, err := f.known() // an unusable row, and a request of its own, may have fewer results than the job's samples
	return int64(units) <= n, err
}

// Announce implements pipeline.Sink: it gives the record's units their slots.
func (f *shardFeed) Announce(rec *row.Record, units int) ([]int32, error) {
	at := f.cur.records * f.samples
	if f.cur.resumed > 0 {
		known, err := f.known()
		if err != nil {
			return nil, err
		}
		units = max(units, known)
	}
	f.missing = f.missing[:0]
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range units {
		if f.cur.spool.settled(at + int64(s)) {
			continue
		}
		key := row.UnitKey{Source: rec.Source, Row: rec.Row, Sample: int32(s)}
		if _, twice := f.pending[key]; twice {
			return nil, fmt.Errorf("%s row %d was read twice", rec.Source, rec.Row)
		}
		f.pending[key] = place{f.cur, at + int64(s), units}
		f.missing = append(f.missing, int32(s))
	}
	f.cur.records++
	f.cur.units += int64(len(f.missing))
	return f.missing, nil
}

// Done implements pipeline.Sink.
func (f *shardFeed) Done(res *row.Result) error {
	defer f.cost.sink.since(time.Now())
	f.mu.Lock()
	at, ok := f.pending[res.Key]
	delete(f.pending, res.Key)
	f.mu.Unlock()
	if !ok {
		return fmt.Errorf("a result for %s row %d sample %d, which nothing waits for", res.Key.Source, res.Key.Row, res.Key.Sample)
	}
	line, err := encodeResult(res, at.units)
	if err != nil {
		return fmt.Errorf("encode the result of %s row %d: %w", res.Key.Source, res.Key.Row, err)
	}
	flags := uint32(0)
	if res.Err != nil {
		flags = flagsOf(res.Status, res.Err.Code)
	}
	if err := at.shard.spool.put(at.slot, line, flags); err != nil {
		return fmt.Errorf("%s row %d sample %d: %w", res.Key.Source, res.Key.Row, res.Key.Sample, err)
	}
	if err := f.journal.add(at.shard.log, line); err != nil {
		return err
	}
	f.count(res)
	f.mu.Lock()
	at.shard.done++
	finished := at.shard.allRead && at.shard.done == at.shard.units
	f.mu.Unlock()
	if finished {
		f.settle()
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
		f.settle()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *shardFeed) settle() {
	f.mu.Lock()
	f.settled++
	f.mu.Unlock()
}
