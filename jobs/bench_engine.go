package jobs

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/device"
)

// engineOptions are off where a figure is per computed token: rows of random ids end in loops, through which speculation
// would run.
type engineOptions struct{ share, speculate bool }

// engine makes an engine for so many rows of some length at once.
func (m *bench) engine(rows, length int, opt engineOptions) (*infer.Engine, error) {
	c := m.loaded.config
	one := int64(device.PagesFor(length)) * c.KVBytesPerPage
	memory := max(one, min(one*int64(rows), defaultKVMemory(0)))
	eng, err := infer.New(infer.Config{
		Model: m.loaded.forwarder(), Tokenizer: infer.FromTokenizer(m.bundle.Tokenizer), BatchTokens: m.o.BatchTokens, MaxSeqs: rows, MaxModelLen: length,
		KVMemory: memory, Threads: m.o.Threads, Events: infer.Events{OnStep: m.meter.step}, NoPrefixSharing: !opt.share, NoSpeculation: !opt.speculate,
	})
	if err != nil {
		return nil, Errorf(Config, "", "start the engine: %w", err)
	}
	return eng, nil
}

// run completes rows of synthetic tokens and returns the ids that came out, and the seconds it took.
func (m *bench) run(ctx context.Context, eng *infer.Engine, rows []benchRow) ([][]int32, float64, error) {
	out := make([][]int32, len(rows))
	src := &benchSource{rows: rows, vocab: m.loaded.config.VocabSize}
	began := time.Now()
	err := eng.Run(ctx, src, func(c infer.Completion) error {
		if c.Err != nil {
			return fmt.Errorf("a synthetic row failed: %w", c.Err)
		}
		out[c.ID] = c.TokenIDs
		return nil
	})
	return out, time.Since(began).Seconds(), err
}

// repeat runs f until the repeats are done or the budget is.
func (m *bench) repeat(f func() error) error {
	began := time.Now()
	for i := range m.o.Repeat {
		if i > 0 && time.Since(began) > m.o.Budget {
			return nil
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// benchRow is a synthetic prompt: common tokens that all rows begin with, own ones, and the tokens to complete. With a
// period the prompt repeats itself after so many tokens.
type benchRow struct{ common, own, tokens, period int }

// benchSource makes requests of pseudo-random ids.
type benchSource struct {
	rows  []benchRow
	vocab int
	made  int
}

// Next implements infer.Source.
func (s *benchSource) Next(ctx context.Context, _ bool) (*infer.Request, error) {
	if s.made == len(s.rows) {
		return nil, io.EOF
	}
	q := s.rows[s.made]
	r := &infer.Request{ID: int64(s.made), Tokens: make([]int32, q.common+q.own), Params: infer.DefaultParams()}
	r.Params.MaxTokens, r.Params.IgnoreEOS, r.Params.ReturnTokenIDs = q.tokens, true, true
	for i := range r.Tokens {
		row := uint64(0)
		if i >= q.common {
			row = uint64(s.made) + 1
		}
		at := i
		if q.period > 0 {
			at %= q.period
		}
		r.Tokens[i] = int32(mix(row<<32|uint64(at)) % uint64(s.vocab))
	}
	s.made++
	return r, ctx.Err()
}

// mix scrambles bits (the finaliser of splitmix64), so that prompts hold no pattern that anything could profit from.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// stepMeter adds up what steps took. Full steps are those in which all of so many rows decode and nothing else happens.
type stepMeter struct {
	prefill     int
	prefillTime time.Duration

	rows        int // of a full step
	from, to    int // between the full steps with these numbers allocations are counted
	full        int
	tokens      int
	fullTime    time.Duration
	times       []time.Duration // of full steps; its capacity is set beforehand, so that appending allocates nothing
	first, last runtime.MemStats
}

func (m *stepMeter) step(s infer.StepStats) {
	if s.Prefill > 0 {
		m.prefill += s.Prefill
		m.prefillTime += s.Duration
		return
	}
	if m.rows == 0 || s.Rows != m.rows || s.Recomputed > 0 {
		return
	}
	m.full++
	m.tokens += s.Decode
	m.fullTime += s.Duration
	if len(m.times) < cap(m.times) {
		m.times = append(m.times, s.Duration)
	}
	switch m.full { // between steps: the clock of none runs
	case m.from:
		runtime.ReadMemStats(&m.first)
	case m.to:
		runtime.ReadMemStats(&m.last)
	}
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// quantile is the value below which the share q of sorted times lies, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := min(len(sorted)-1, int(q*float64(len(sorted))))
	return float64(sorted[i].Nanoseconds()) / 1e6
}

func sortedTimes(t []time.Duration) []time.Duration {
	t = slices.Clone(t)
	slices.Sort(t)
	return t
}
