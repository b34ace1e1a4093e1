package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
)

// Bounds of the journal; none decides a result. What a kill costs is at most DefaultJournalUnits units or
// DefaultJournalEvery of work of each open shard, whichever is less.
const (
	DefaultJournalUnits = 256
	DefaultJournalEvery = 10 * time.Second
	// chunkBytes is the text at which a chunk is cut, whatever it counts.
	chunkBytes = 4 << 20
	// journalBytes bounds the text that waits to be stored, of all shards. Beyond it the engine waits for the store.
	journalBytes = 64 << 20
	// drainTime is how long a run that ends early may take to store what waits.
	drainTime = 5 * time.Second
)

// journal stores results as they come, in chunks, so that a run that is killed need not do them again. Results are added by
// the engine's goroutine and others; storing goes on beside them.
type journal struct {
	store  *objstore.Store
	layout layout
	head   chunkHeader // of all chunks: plan and attempt
	units  int
	every  time.Duration
	events *Events
	cost   *overhead

	mu     sync.Mutex
	open   map[int]*shardLog
	bytes  int // added and not yet stored
	room   chan struct{}
	chunks int64 // stored
	stored int64 // units in them

	wake chan struct{}
	done chan struct{} // closed when run has ended
}

// shardLog is the journal of one shard.
type shardLog struct {
	shard  int
	refs   []ChunkRef // whole chunks, in the order in which they count
	next   int
	lines  []byte // waiting
	units  int    // waiting
	since  time.Time
	flight chan struct{} // full while a chunk is on its way: one after the other
}

// ChunkRef names a chunk within its shard's folder of the journal.
type ChunkRef struct {
	Name   string `json:"name"`
	Units  int    `json:"units"`
	SHA256 string `json:"sha256"` // of the object
}

func newJournal(j *Job, units int, every time.Duration, cost *overhead) *journal {
	if units <= 0 {
		units = DefaultJournalUnits
	}
	if every <= 0 {
		every = DefaultJournalEvery
	}
	return &journal{
		store: j.store, layout: j.layout, head: chunkHeader{PlanDigest: j.plan.Digest, Attempt: j.runID}, units: units, every: every, events: &j.events, cost: cost,
		open: map[int]*shardLog{}, room: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// begin opens the journal of a shard, of which refs are there already.
func (j *journal) begin(shard int, refs []ChunkRef) *shardLog {
	l := &shardLog{shard: shard, refs: refs, flight: make(chan struct{}, 1)}
	j.mu.Lock()
	j.open[shard] = l
	j.mu.Unlock()
	return l
}

// add takes one result. It waits while too much waits to be stored, and fails once nothing is stored any more.
func (j *journal) add(l *shardLog, line []byte) error {
	j.mu.Lock()
	for j.bytes >= journalBytes {
		room := j.room
		j.mu.Unlock()
		select {
		case <-room:
		case <-j.done:
			return errors.New("the journal is closed")
		}
		j.mu.Lock()
	}
	if l.units == 0 {
		l.since = time.Now()
	}
	l.lines = append(append(l.lines, line...), '\n')
	l.units++
	j.bytes += len(line) + 1
	due := l.units >= j.units || len(l.lines) >= chunkBytes
	j.mu.Unlock()
	if due {
		select {
		case j.wake <- struct{}{}:
		default: // it is awake already
		}
	}
	return nil
}

// run stores what is due until stop is closed or ctx ends, or a chunk cannot be stored.
func (j *journal) run(ctx context.Context, stop <-chan struct{}) error {
	defer close(j.done)
	tick := time.NewTicker(max(j.every/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-j.wake:
		case <-tick.C:
		case <-stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, l := range j.due() {
			if err := j.flush(ctx, l); err != nil {
				return err
			}
		}
	}
}

func (j *journal) due() (due []*shardLog) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.open {
		if l.units >= j.units || len(l.lines) >= chunkBytes || l.units > 0 && time.Since(l.since) >= j.every {
			due = append(due, l)
		}
	}
	return due
}

// flush stores what waits of a shard as one chunk. Where that fails it waits on, so that it can be tried again.
func (j *journal) flush(ctx context.Context, l *shardLog) error {
	select {
	case l.flight <- struct{}{}:
		defer func() { <-l.flight }()
	case <-ctx.Done():
		return ctx.Err()
	}
	j.mu.Lock()
	lines, units := l.lines, l.units
	j.mu.Unlock()
	if units == 0 {
		return nil
	}
	h := j.head
	h.Shard, h.Number, h.Units = l.shard, l.next, units
	l.next++ // also if it fails: it may have been stored all the same, and then it counts beside the next one
	name := chunkName(h.Attempt, h.Number)
	url := j.layout.chunk(l.shard, name)
	var data []byte
	err := j.cost.journal.cpu(func() (err error) {
		if data, err = encodeChunk(h, lines); err != nil {
			return err
		}
		j.events.reached(ChunkBefore)
		if err := j.store.Put(ctx, url, data, objstore.CreateOptions{IfAbsent: true, ContentType: "application/zstd"}); err != nil {
			return classifyPut(fmt.Errorf("write the journal %s: %w", url, err))
		}
		j.events.reached(ChunkAfter)
		return nil
	})
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	l.refs = append(l.refs, ChunkRef{Name: name, Units: units, SHA256: hashBytes(data)})
	l.lines = append([]byte(nil), l.lines[len(lines):]...)
	l.units -= units
	l.since = time.Now()
	j.bytes -= len(lines)
	j.chunks++
	j.stored += int64(units)
	close(j.room)
	j.room = make(chan struct{})
	return nil
}

// end stores the rest of a shard of which no more results will come, and returns its chunks.
func (j *journal) end(ctx context.Context, l *shardLog) ([]ChunkRef, error) {
	if err := j.flush(ctx, l); err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.open, l.shard)
	return l.refs, nil
}

// drain stores what waits of all shards, once run has ended.
func (j *journal) drain(ctx context.Context) error {
	j.mu.Lock()
	var open []*shardLog
	for _, l := range j.open {
		open = append(open, l)
	}
	j.mu.Unlock()
	var errs []error
	for _, l := range open {
		errs = append(errs, j.flush(ctx, l))
	}
	return errors.Join(errs...)
}
