package jobs

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/batchmill/batchmill/internal/row"
)

// Defaults of a job's policies.
const (
	// DefaultMinRows is how many rows must be done before --max-error-rate can stop a run: a file that begins with a few
	// bad lines is no reason.
	DefaultMinRows = 100
	// DefaultStallTimeout is how long one step may take: minutes, where the longest on the slowest machine takes seconds,
	// and more than the time for which storage is retried.
	DefaultStallTimeout = 10 * time.Minute
)

// validatePolicies refuses what cannot be meant.
func (s *Spec) validatePolicies() error {
	switch {
	case s.MaxErrorRate != nil && !(*s.MaxErrorRate >= 0 && *s.MaxErrorRate <= 1):
		return Errorf(Usage, "0.01 is one row in a hundred, 1 switches it off", "--max-error-rate must be between 0 and 1, not %v", *s.MaxErrorRate)
	case s.MinRows < 0:
		return Errorf(Usage, "", "--min-rows must not be negative")
	case s.RowTimeout < 0 || s.StallTimeout < 0 || s.Heartbeat < 0:
		return Errorf(Usage, "0 switches it off", "--row-timeout, --stall-timeout and --heartbeat must not be negative")
	}
	return nil
}

// tooMany is the error of a run of which too many rows failed, nil where they are within the limit.
func (s *Spec) tooMany(rows RowCounts, least int64) error {
	done := rows.OK + rows.Error
	if s.MaxErrorRate == nil || done == 0 || done < least || float64(rows.Error) <= *s.MaxErrorRate*float64(done) {
		return nil
	}
	return Errorf(TooManyErrors, "look at the error rows; run the same command with a higher --max-error-rate to go on, or start anew",
		"%d of %d rows failed, more than --max-error-rate %v allows", rows.Error, done, *s.MaxErrorRate)
}

// halted carries the error that stopped a run through its context.
type halted struct{ err error }

func (h *halted) Error() string { return h.err.Error() }
func (h *halted) Unwrap() error { return h.err }

// supervise does the work under the job's policies: an error that a policy stops it with comes in place of the
// interruption that it caused.
func (r *runState) supervise(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.mu.Lock()
	r.before = RowCounts{}
	for _, f := range r.facts {
		r.before.OK += f.Rows.OK
		r.before.Error += f.Rows.Error
		r.before.Skipped += f.Rows.Skipped
	}
	r.halt = func(err error) { cancel(&halted{err}) }
	r.mu.Unlock()
	defer r.watchSteps()()
	defer r.beat(ctx)()
	err := work(ctx)
	var h *halted
	if errors.As(context.Cause(ctx), &h) {
		return h.err
	}
	return err
}

// tookOver counts what a shard's spool holds of earlier attempts, before anything is added to it.
func (r *runState) tookOver(s *spool) {
	good, failed := s.tally()
	r.mu.Lock()
	r.before.OK += good
	r.before.Error += failed
	r.mu.Unlock()
}

// tally counts the results that stand, good ones and errors.
func (s *spool) tally() (good, failed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot := range int64(len(s.offset)) {
		switch {
		case !s.holds(slot):
		case s.length[slot]&failedFlag != 0:
			failed++
		default:
			good++
		}
	}
	return good, failed
}

// judge stops the run when too many of its rows failed. r.mu is held.
func (r *runState) judge() {
	if r.halt == nil {
		return
	}
	rows := r.before
	rows.OK += r.live.Rows.OK
	rows.Error += r.live.Rows.Error
	if err := r.job.spec.tooMany(rows, r.job.spec.MinRows); err != nil {
		r.halt(err)
		r.halt = nil
	}
}

const (
	// stallGrace is how long a stalled run may take to end by itself.
	stallGrace = 10 * time.Second
	// stallChecks is how often in a stall timeout steps are looked at.
	stallChecks = 8
	// maxStacks bounds a dump of all stacks.
	maxStacks = 4 << 20
)

// errStalled says that a run was given up.
var errStalled = errors.New("the engine hangs")

// watchSteps gives the run up when one step of the engine takes longer than the job allows: it hands out the stacks of
// all goroutines, stops the run, and lets Run return even if the step never does.
func (r *runState) watchSteps() (stop func()) {
	limit := r.job.spec.StallTimeout
	if limit <= 0 {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(max(limit/stallChecks, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			e := r.stepping.Load()
			if e == nil {
				continue
			}
			if d := e.InStep(); d > limit {
				r.giveUp(d)
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

func (r *runState) giveUp(after time.Duration) {
	if f := r.job.events.Stalled; f != nil {
		buf := make([]byte, maxStacks)
		f(buf[:runtime.Stack(buf, true)])
	}
	err := Errorf(Internal, "report it with the stacks above; the same command goes on with what is missing", "%w: no step for %v", errStalled, after.Round(time.Millisecond))
	r.mu.Lock()
	halt := r.halt
	r.halt = nil
	r.mu.Unlock()
	if halt != nil {
		halt(err)
	}
	r.stalled <- err
}

// unlessStalled runs the job. lost tells that it hangs and was left behind: nothing of r may be touched then.
func (r *runState) unlessStalled(ctx context.Context) (err error, lost bool) {
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	select {
	case err := <-done:
		return err, false
	case err = <-r.stalled:
	}
	select {
	case err := <-done:
		return err, false
	case <-time.After(min(stallGrace, r.job.spec.StallTimeout)):
		return err, true
	}
}

// lostSummary is the summary of a run that hangs.
func (r *runState) lostSummary(err error) *Summary {
	return &Summary{
		Status: "error", ExitCode: KindOf(err).ExitCode(), RunID: r.job.runID, Errors: map[row.Code]int64{},
		Output: OutputSummary{URL: r.job.layout.shown()}, Message: firstLine(err.Error()),
	}
}
