package infer

import (
	"slices"
	"time"

	"github.com/batchmill/batchmill/internal/row"
)

// expire ends the rows that have been in work for longer than Config.RowTimeout, counted from the start of their first
// step, preemptions included. The text so far is kept. It looks between steps: a step that hangs is InStep's to show.
func (r *run) expire() error {
	limit := r.e.cfg.RowTimeout
	if limit <= 0 {
		return nil
	}
	now := r.e.now()
	late := func(s *sequence) bool { return !s.scheduled.IsZero() && now.Sub(s.scheduled) > limit }
	out := func(s *sequence) outcome {
		return failed(row.Errorf(row.Timeout, "the row was in work for more than %v, with %d of at most %d completion tokens; raise --row-timeout, or retry it where less is going on",
			limit, s.generated(), s.params.MaxTokens))
	}
	for _, s := range slices.Clone(r.running) {
		if late(s) {
			r.end(s, false, out(s))
		}
	}
	for _, s := range slices.Clone(r.waiting) {
		if late(s) { // preempted: it has no pages
			r.waiting = remove(r.waiting, s)
			r.done = append(r.done, s.completion(out(s), now))
		}
	}
	return r.flush()
}

// InStep tells for how long the present step has been going on, handing out its completions included; 0 between steps.
// It may be called from any goroutine, also while a step hangs.
func (e *Engine) InStep() time.Duration {
	began := e.stepping.Load()
	if began == 0 {
		return 0
	}
	return max(1, time.Since(e.born)-time.Duration(began))
}

// enterStep and leaveStep keep what InStep tells.
func (e *Engine) enterStep() { e.stepping.Store(max(1, int64(time.Since(e.born)))) }
func (e *Engine) leaveStep() { e.stepping.Store(0) }
