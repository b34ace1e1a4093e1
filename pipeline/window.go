package pipeline

import (
	"context"
	"io"
	"math/bits"
	"sync"
	"time"

	"github.com/batchmill/batchmill/infer"
)

// Window defaults. Rows: enough to sort a few hundred sequences' worth of lengths; more only costs memory. Bytes: bounds
// the window where prompts are long.
const (
	DefaultWindowRows  = 2048
	DefaultWindowBytes = 256 << 20

	// unitOverhead is what a waiting unit costs besides its tokens: request, key, bookkeeping.
	unitOverhead = 512
	// linger is how long the first units wait for company, so that the first batches are sorted too.
	linger = 100 * time.Millisecond
)

// window holds the units that wait for the engine, at most a number of rows and bytes of them. Producers push and block
// while it is full. The engine takes units in generations: all that wait are put in order and handed out before the next
// generation, so that no unit starves. Once no more will come, all that is left makes the last generation, so that
// the end of a job is ordered as a whole.
//
// A generation reaches over a number of shards at most: shards that were mixed in one generation end together, and where
// only few may be unfinished, nothing could be started meanwhile.
type window struct {
	maxRows, maxBytes int
	maxShards         int // in one generation; 0 = any number
	arrange           func([]*Unit) []*Unit
	epoch             func() int // what arrange knows; when it changes, what is left of a generation is arranged again

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change that somebody may wait for
	next    []*Unit       // arriving
	current []*Unit       // in order, being handed out
	bytes   int           // of both
	copies  int           // units that wait for an equal one, outside the window, and may still have to run
	first   time.Time     // arrival of the oldest unit of next
	started bool          // the first generation has gone
	closed  bool          // no more pushes
	last    bool          // the last generation is being handed out
	dropped bool          // nothing more is handed out
	learnt  int           // epoch in which current was arranged
	err     error         // why producing ended, if not well
	stats   WindowStats
}

// WindowStats counts what passed through the window.
type WindowStats struct {
	Generations int
	Starved     time.Duration  // that the engine waited for a unit, once it had had one, while more were to come
	Buckets     map[int]Bucket // units by length; the key is the bucket's upper length in tokens, a power of two
}

// Bucket counts the prompts of a range of lengths.
type Bucket struct {
	Rows   int64
	Tokens int64
}

func newWindow(rows, bytes, shards int, arrange func([]*Unit) []*Unit, epoch func() int) *window {
	if rows <= 0 {
		rows = DefaultWindowRows
	}
	if bytes <= 0 {
		bytes = DefaultWindowBytes
	}
	return &window{
		maxRows: rows, maxBytes: bytes, maxShards: shards, arrange: arrange, epoch: epoch,
		changed: make(chan struct{}), stats: WindowStats{Buckets: map[int]Bucket{}},
	}
}

func (u *Unit) bytes() int { return unitOverhead + len(u.Request.Tenant) + 4*len(u.Request.Tokens) }

// bucket is the upper length of the power-of-two bucket that a prompt of n tokens falls into.
func bucket(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

func (w *window) signal() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// push adds a unit, waiting while the window is full. One unit always fits, however large.
func (w *window) push(ctx context.Context, u *Unit) error {
	for {
		w.mu.Lock()
		n := len(w.next) + len(w.current)
		if n == 0 || n < w.maxRows && w.bytes+u.bytes() <= w.maxBytes {
			u.Request.Entered = time.Now() // the wait in the window is part of the row's queue time
			w.add(u)
			w.mu.Unlock()
			return nil
		}
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *window) add(u *Unit) {
	if len(w.next) == 0 {
		w.first = time.Now()
	}
	w.next = append(w.next, u)
	w.bytes += u.bytes()
	n := len(u.Request.Tokens)
	b := w.stats.Buckets[bucket(n)]
	w.stats.Buckets[bucket(n)] = Bucket{Rows: b.Rows + 1, Tokens: b.Tokens + int64(n)}
	w.signal()
}

// hold counts a unit that waits for an equal one: the end is not reached before it is released.
func (w *window) hold() {
	w.mu.Lock()
	w.copies++
	w.mu.Unlock()
}

// release ends the wait of held units; those that have to run after all are taken in, whatever the bounds: they are in
// memory already, and it is the engine's side that calls.
func (w *window) release(n int, rerun []*Unit) {
	w.mu.Lock()
	w.copies -= n
	for _, u := range rerun {
		w.add(u)
	}
	w.signal()
	w.mu.Unlock()
}

// close says that no unit will follow; err, if any, is what take reports after the last one.
func (w *window) close(err error) {
	w.mu.Lock()
	w.closed, w.err = true, err
	w.signal()
	w.mu.Unlock()
}

// drop ends the handing out: what waits will not be run.
func (w *window) drop() {
	w.mu.Lock()
	w.dropped = true
	w.signal()
	w.mu.Unlock()
}

// take hands out the next unit. With wait it blocks until there is one; without it returns nil if none is ready. The end
// is io.EOF.
func (w *window) take(ctx context.Context, wait bool) (*Unit, error) {
	for {
		w.mu.Lock()
		if w.dropped {
			w.mu.Unlock()
			return nil, io.EOF
		}
		w.generation()
		if len(w.current) > 0 {
			u := w.current[0]
			w.current[0] = nil
			w.current = w.current[1:]
			w.bytes -= u.bytes()
			w.signal()
			w.mu.Unlock()
			return u, nil
		}
		if w.closed && len(w.next) == 0 && w.copies == 0 {
			err := w.err
			w.mu.Unlock()
			if err == nil {
				err = io.EOF
			}
			return nil, err
		}
		changed, pending := w.changed, len(w.next) > 0
		w.mu.Unlock()
		if !wait {
			return nil, nil
		}
		began := time.Now()
		var timer <-chan time.Time
		if pending {
			timer = time.After(linger)
		}
		select {
		case <-changed:
		case <-timer:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		w.mu.Lock()
		if w.started {
			w.stats.Starved += time.Since(began)
		}
		w.mu.Unlock()
	}
}

// generation makes the next generation where the last one is handed out, and the last one as soon as all has arrived.
func (w *window) generation() {
	switch {
	case w.closed && !w.last:
		w.last = true
		w.next, w.current = append(w.current, w.next...), nil
		w.begin(len(w.next))
	case len(w.current) == 0 && w.ready():
		w.begin(w.whole())
	case len(w.current) > 1 && w.epoch() != w.learnt:
		w.learnt = w.epoch()
		w.current = w.arrange(w.current)
	}
}

// begin makes a generation of the n units that arrived first.
func (w *window) begin(n int) {
	if n == 0 {
		return
	}
	w.learnt = w.epoch()
	w.current = w.arrange(w.next[:n:n])
	w.next = append([]*Unit(nil), w.next[n:]...)
	w.started = true
	w.stats.Generations++
}

// whole is how many of the arriving units may form one generation.
func (w *window) whole() int {
	if w.maxShards <= 0 {
		return len(w.next)
	}
	seen := map[int]bool{}
	for i, u := range w.next {
		if seen[u.Shard] = true; len(seen) > w.maxShards {
			return i
		}
	}
	return len(w.next)
}

// ready tells whether the arriving units may become a generation. Only the first one waits, a moment, for company: later
// ones have gathered while their predecessor ran.
func (w *window) ready() bool {
	if len(w.next) == 0 {
		return false
	}
	return w.started || w.closed || len(w.next) >= w.maxRows || w.bytes >= w.maxBytes || time.Since(w.first) >= linger
}

// source presents a window to the engine and remembers which unit has which id.
type source struct {
	w       *window
	nextID  int64
	running map[int64]*Unit // touched by the engine's goroutine only
}

// Next implements infer.Source.
func (s *source) Next(ctx context.Context, wait bool) (*infer.Request, error) {
	u, err := s.w.take(ctx, wait)
	if u == nil || err != nil {
		return nil, err
	}
	u.Request.ID = s.nextID
	s.nextID++
	s.running[u.Request.ID] = u
	return &u.Request, nil
}

// finish returns the unit of a completion and forgets it.
func (s *source) finish(id int64) *Unit {
	u := s.running[id]
	delete(s.running, id)
	return u
}
