package jobs

import (
	"context"
	"time"
)

// A signal ends the context of Run. Then nothing new is started, what the engine has begun may end within the grace, and
// what is done is journalled.

// Bounds on an end that a signal asks for.
const (
	// DefaultGrace fits into the 30 seconds that container schedulers leave between SIGTERM and SIGKILL.
	DefaultGrace = 25 * time.Second
	// The last part of the grace is kept for the journal: a quarter, within these.
	leastReserve = 250 * time.Millisecond
	mostReserve  = 5 * time.Second
	// overGrace is how much longer than the grace the journal may take.
	overGrace = 500 * time.Millisecond
)

// reserve is the part of a grace in which the engine does nothing any more.
func reserve(grace time.Duration) time.Duration {
	return min(max(grace/4, leastReserve), mostReserve, grace)
}

// underGrace returns a context for the work, which goes on after a signal until the grace is nearly over.
func (r *runState) underGrace(signal context.Context) (context.Context, func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(signal))
	grace := r.job.spec.Grace
	stop := context.AfterFunc(signal, func() {
		r.mu.Lock()
		r.signalled = time.Now()
		r.mu.Unlock()
		if wait := grace - reserve(grace); wait > 0 {
			select {
			case <-time.After(wait):
			case <-work.Done():
			}
		}
		cancel()
	})
	return work, func() {
		stop()
		cancel()
	}
}

// lastWord returns a context for what must still be stored when the work has ended early: some seconds, or what is left of
// the grace.
func (r *runState) lastWord(ctx context.Context) (context.Context, context.CancelFunc) {
	r.mu.Lock()
	at := r.signalled
	r.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	if at.IsZero() {
		return context.WithTimeout(ctx, drainTime)
	}
	return context.WithDeadline(ctx, at.Add(r.job.spec.Grace+overGrace))
}
