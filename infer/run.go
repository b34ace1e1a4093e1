package infer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/internal/row"
)

// run is one call of Run. Only its own goroutine touches it, but for the samplers, each of which owns its slot of the
// step while it works.
type run struct {
	e    *Engine
	ctx  context.Context
	src  Source
	sink func(Completion) error
	pool *kv.Pool

	prefixes *kv.Prefixes // nil: nothing is shared

	running []*sequence // hold pages; in order of arrival
	packing []*sequence // the same, those that share pages next to each other
	waiting []*sequence // hold none: preempted, or not started yet; in order of arrival
	arrived int64
	eof     bool

	batch   device.Batch
	step    []slot
	planned int // tokens of the step so far
	logits  [][]float32
	chooser chooser
	done    []Completion // not handed out yet

	guessers    []*guesser // lent to nobody
	forecast    forecast
	preemptions int64 // since the last step
	cached      int   // prompt tokens taken from shared pages since the last step
}

// Run takes requests from src until io.EOF and hands each one's completion to sink, in the order in which they end. It
// returns nil once all are out. It returns early, dropping what is in flight, with ctx's error when ctx is done (looked
// at between layers and steps), or with the first error of src or sink. sink is called by Run's goroutine, so the engine
// stands still meanwhile. To drain, let src return io.EOF; then Run finishes what it has taken.
func (e *Engine) Run(ctx context.Context, src Source, sink func(Completion) error) error {
	if !e.busy.CompareAndSwap(false, true) {
		return errors.New("run requests: the engine is already running")
	}
	defer e.busy.Store(false)
	r := &run{e: e, ctx: ctx, src: src, sink: sink, pool: kv.NewPool(e.pages), forecast: forecast{share: e.firstShare}}
	if !e.cfg.NoPrefixSharing {
		r.prefixes = kv.NewPrefixes(r.pool)
	}
	r.chooser.start(&e.cfg)
	defer r.chooser.stop()
	defer func() {
		e.mu.Lock()
		e.stats.Running, e.stats.Waiting, e.stats.KVUsed = 0, 0, 0
		e.mu.Unlock()
	}()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.expire(); err != nil {
			return err
		}
		if err := r.plan(); err != nil {
			return err
		}
		if len(r.step) == 0 {
			if len(r.running)+len(r.waiting) > 0 {
				return fmt.Errorf("run requests: %d running and %d waiting rows, but none can go on", len(r.running), len(r.waiting))
			}
			return nil
		}
		if err := r.compute(); err != nil {
			return err
		}
	}
}

// compute runs the planned step, takes its tokens, and reports the rows that end.
func (r *run) compute() error {
	r.e.enterStep()
	defer r.e.leaveStep()
	started := r.e.now()
	for _, sl := range r.step {
		if sl.s.scheduled.IsZero() {
			sl.s.scheduled = started
		}
	}
	stats := StepStats{Rows: len(r.step)}
	if err := r.forward(); err != nil {
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		stats.Err = err
		r.failStep(err)
	} else {
		r.chooser.run(r.step, len(r.batch.Logits), r.e.limits.VocabSize)
		r.take(&stats)
	}
	r.account(&stats, started)
	return r.flush()
}

// forward runs the model over r.batch, a panic being an error like any other.
func (r *run) forward() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the forward pass: %v\n%s", p, debug.Stack())
		}
	}()
	return r.e.cache.Forward(r.ctx, &r.batch, r.logits[:len(r.batch.Logits)])
}

// failStep deals with a step that failed as a whole. A row that was alone in it is at fault, unless it had a draft. Others
// are repeated one by one, without drafts, from the start, since their pages are spoilt.
func (r *run) failStep(err error) {
	if f := r.e.cfg.Events.OnFailure; f != nil {
		f(err, len(r.step))
	}
	if len(r.step) == 1 && len(r.step[0].draft) == 0 {
		r.end(r.step[0].s, true, failed(row.Errorf(row.Internal, "the forward pass failed: %v; run the row again, and report it if it fails again", firstLine(err))))
		return
	}
	for _, sl := range r.step {
		sl.s.alone, sl.s.aloneUntil = true, sl.s.computed+sl.tokens
		sl.s.attempts++
		sl.s.spec.off = sl.s.spec.off || len(sl.draft) > 0
		r.retire(sl.s, true)
	}
}

// take brings the sequences up to date after a step that succeeded.
func (r *run) take(stats *StepStats) {
	now := r.e.now()
	for i := range r.step {
		sl := &r.step[i]
		s := sl.s
		tokens := sl.tokens + sl.accepted
		again := min(tokens, max(s.farthest-s.computed, 0))
		fresh := s.computed + again // first token computed for the first time
		if r.prefixes != nil && s.computed < s.prompt {
			r.prefixes.Computed(&s.table, s.computed, s.computed+tokens)
		}
		s.computed += tokens
		prefill := max(min(s.computed, s.prompt)-fresh, 0)
		stats.Recomputed += again
		stats.Prefill += prefill
		stats.Decode += tokens - again - prefill
		s.farthest = max(s.farthest, s.computed)
		if s.alone && s.computed >= s.aloneUntil {
			s.alone = false
		}
		stats.Drafted += len(sl.draft)
		s.spec.tried = s.spec.tried || len(sl.draft) > 0
		stats.Accepted += sl.accepted
		stats.Sampled += sl.sampled
		if sl.sampled > 0 {
			s.stamp(now, s.generated() > sl.before)
			s.spec.earn(len(r.step), len(sl.draft), sl.accepted)
		}
		r.settle(sl)
	}
}

// settle ends a row, or prepares it for the next step.
func (r *run) settle(sl *slot) {
	s, o := sl.s, sl.out
	switch {
	case sl.err != nil && sl.err.Code == row.NonFiniteLogits && s.spec.tried && !s.spec.off:
		// It may be a draft that overflows, of this step or of one before: its values lie in the page, and NaN times a weight of 0
		// is NaN. The row is repeated without, and fails if it has to.
		s.spec.off = true
		r.preempt(s, true)
		return
	case sl.err != nil:
		o = failed(sl.err)
	case o.reason != "":
		r.forecast.ended(s)
	default:
		if len(sl.draft) > 0 {
			s.spec.guess.draft = s.spec.guess.draft[:0]
			r.pool.Trim(&s.table, s.computed)
		}
		return
	}
	r.end(s, false, o)
}

// end takes a running row out and keeps its completion for flush. spoilt: as in retire.
func (r *run) end(s *sequence, spoilt bool, o outcome) {
	r.leave(s, spoilt)
	r.done = append(r.done, s.completion(o, r.e.now()))
}

// finish reports a row that is neither running nor waiting.
func (r *run) finish(s *sequence, o outcome) error {
	r.done = append(r.done, s.completion(o, r.e.now()))
	return r.flush()
}

// refuse keeps the completion of a request that cannot run.
func (r *run) refuse(q *Request, err *row.Error) {
	r.done = append(r.done, Completion{ID: q.ID, FinishReason: row.FinishError, PromptTokens: len(q.Tokens), Err: err})
}

// flush hands finished rows out.
func (r *run) flush() error {
	for _, c := range r.done {
		r.e.mu.Lock()
		r.e.stats.Completed++
		if c.Err != nil {
			r.e.stats.Failed++
		}
		r.e.mu.Unlock()
		if err := r.sink(c); err != nil {
			return fmt.Errorf("hand out the completion of row %d: %w", c.ID, err)
		}
	}
	clear(r.done)
	r.done = r.done[:0]
	return nil
}

// account adds a step to the engine's figures.
func (r *run) account(st *StepStats, started time.Time) {
	st.Running, st.Waiting = len(r.running), len(r.waiting)
	st.KVUsed, st.KVPages = r.pool.Used(), r.pool.Pages()
	st.Cached = r.cached
	st.Duration = r.e.now().Sub(started)
	r.e.mu.Lock()
	s := &r.e.stats
	s.Steps++
	st.Step = s.Steps
	if st.Err != nil {
		s.FailedSteps++
	}
	s.PrefillTokens += int64(st.Prefill)
	s.DecodeTokens += int64(st.Decode)
	s.RecomputedTokens += int64(st.Recomputed)
	s.SampledTokens += int64(st.Sampled)
	s.DraftedTokens += int64(st.Drafted)
	s.AcceptedTokens += int64(st.Accepted)
	if st.Err == nil && st.Decode > 0 && st.Prefill+st.Recomputed == 0 {
		r.e.decoded.add(st.Duration)
	}
	s.Preemptions += r.preemptions
	s.Running, s.Waiting, s.KVUsed = st.Running, st.Waiting, st.KVUsed
	s.CachedTokens += int64(st.Cached)
	s.KVPeak = max(s.KVPeak, r.pool.Peak())
	s.SharedPeak = max(s.SharedPeak, r.pool.SharedPeak())
	s.EngineTime += st.Duration
	r.e.mu.Unlock()
	r.preemptions, r.cached = 0, 0
	if f := r.e.cfg.Events.OnStep; f != nil {
		f(*st)
	}
}

// firstLine cuts a stack trace off an error's text: a row's message is for its owner.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
