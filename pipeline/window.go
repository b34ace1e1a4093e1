package pipeline

import (
	"context"
	"io"
	"math/bits"
	"slices"
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
// while it is full. The engine takes units in generations: all that wait are sorted by length, longest first (long
// prompts start early, so that the end of a job is not one long row), and handed out before the next generation, so that
// no unit starves.
type window struct {
	maxRows, maxBytes int

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change that somebody may wait for
	next    []*Unit       // arriving
	current []*Unit       // sorted, being handed out
	bytes   int           // of both
	first   time.Time     // arrival of the oldest unit of next
	started bool          // the first generation has gone
	closed  bool          // no more pushes
	err     error         // why producing ended, if not well
	stats   WindowStats
}

// WindowStats counts what passed through the window.
type WindowStats struct {
	Generations int
	Buckets     map[int]int // units by bucket; the key is the bucket's upper length in tokens, a power of two
}

func newWindow(rows, bytes int) *window {
	if rows <= 0 {
		rows = DefaultWindowRows
	}
	if bytes <= 0 {
		bytes = DefaultWindowBytes
	}
	return &window{maxRows: rows, maxBytes: bytes, changed: make(chan struct{}), stats: WindowStats{Buckets: map[int]int{}}}
}

func (u *Unit) bytes() int { return unitOverhead + 4*len(u.Request.Tokens) }

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
			if len(w.next) == 0 {
				w.first = time.Now()
			}
			u.Request.Entered = time.Now() // the wait in the window is part of the row's queue time
			w.next = append(w.next, u)
			w.bytes += u.bytes()
			w.stats.Buckets[bucket(len(u.Request.Tokens))]++
			w.signal()
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

// close says that no unit will follow; err, if any, is what take reports after the last one.
func (w *window) close(err error) {
	w.mu.Lock()
	w.closed, w.err = true, err
	w.signal()
	w.mu.Unlock()
}

// take hands out the next unit. With wait it blocks until there is one; without it returns nil if none is ready. The end
// is io.EOF.
func (w *window) take(ctx context.Context, wait bool) (*Unit, error) {
	for {
		w.mu.Lock()
		if len(w.current) == 0 && w.ready() {
			w.current, w.next = w.next, nil
			w.started = true
			w.stats.Generations++
			slices.SortStableFunc(w.current, func(a, b *Unit) int { return len(b.Request.Tokens) - len(a.Request.Tokens) })
		}
		if len(w.current) > 0 {
			u := w.current[0]
			w.current[0] = nil
			w.current = w.current[1:]
			w.bytes -= u.bytes()
			w.signal()
			w.mu.Unlock()
			return u, nil
		}
		if w.closed && len(w.next) == 0 {
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
	}
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
