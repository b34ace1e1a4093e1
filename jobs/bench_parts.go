package jobs

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/batchmill/batchmill/infer"
)

// measurePrefill: prompts, each with one completion token.
func (m *bench) measurePrefill(ctx context.Context) error {
	p := &BenchPrefill{PromptTokens: m.o.PromptTokens, Prompts: m.o.Prompts}
	rate, err := m.prefillRate(ctx, p.Prompts, p.PromptTokens)
	if err != nil {
		return err
	}
	p.Rate = rate
	p.Gops = rate / float64(p.PromptTokens) * m.work.row(p.PromptTokens, 1) / 1e9
	p.PeakShare = share(p.Gops, m.peak())
	m.res.Prefill = p
	return nil
}

// prefillRate is the best rate over the repeats.
func (m *bench) prefillRate(ctx context.Context, prompts, length int) (best float64, err error) {
	eng, err := m.engine(prompts, length+1, engineOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	rows := make([]benchRow, prompts)
	for i := range rows {
		rows[i] = benchRow{own: length, tokens: 1}
	}
	err = m.repeat(func() error {
		m.meter = stepMeter{}
		_, _, err := m.run(ctx, eng, rows)
		best = max(best, perSecond(m.meter.prefill, m.meter.prefillTime))
		return err
	})
	return best, err
}

// decodeLength is the length of a sequence of the decode measurement: those that begin first go on until the last has
// decoded its share beside all others.
func (m *bench) decodeLength(seqs int) int {
	return m.o.DecodePast + m.o.DecodeTokens + m.decodeLead(seqs)
}

// decodeLead is the number of steps in which prompts are still being read, at most.
func (m *bench) decodeLead(seqs int) int {
	batch := m.o.BatchTokens
	if batch == 0 {
		batch = infer.DefaultBatchTokens
	}
	return 2 + seqs*m.o.DecodePast/max(1, batch-seqs)
}

func (m *bench) measureDecode(ctx context.Context) error {
	for _, seqs := range m.o.Seqs {
		d, err := m.decode(ctx, seqs)
		if err != nil {
			return err
		}
		m.res.Decode = append(m.res.Decode, *d)
	}
	return nil
}

func (m *bench) decode(ctx context.Context, seqs int) (d *BenchDecode, err error) {
	length := m.decodeLength(seqs)
	eng, err := m.engine(seqs, length, engineOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	rows := make([]benchRow, seqs)
	for i := range rows {
		rows[i] = benchRow{own: m.o.DecodePast, tokens: length - m.o.DecodePast}
	}
	d = &BenchDecode{Seqs: seqs, Past: m.o.DecodePast}
	times := make([]time.Duration, 0, m.o.Repeat*(length+1))
	err = m.repeat(func() error {
		// The first quarter of the steps, in which buffers may still grow, is not counted.
		m.meter = stepMeter{rows: seqs, from: m.o.DecodeTokens / 4, to: m.o.DecodeTokens - 2, times: times}
		if _, _, err := m.run(ctx, eng, rows); err != nil {
			return err
		}
		t := &m.meter
		times = t.times
		if rate := perSecond(t.tokens, t.fullTime); rate > d.Rate {
			d.Rate = rate
			step := float64(t.full) / t.fullTime.Seconds()
			d.Bandwidth = step * float64(m.loaded.config.WeightFile) / 1e9
			seen := m.o.DecodePast + m.o.DecodeTokens/2
			d.Gops = rate * (m.work.tokens(seen, 1) + m.work.head) / 1e9
		}
		if steps := float64(t.to - t.from); t.last.Mallocs > 0 {
			d.AllocsPerStep = float64(t.last.Mallocs-t.first.Mallocs) / steps
			d.BytesPerStep = float64(t.last.TotalAlloc-t.first.TotalAlloc) / steps
		}
		return nil
	})
	d.PeakShare = share(d.Gops, m.peak())
	if m.ceilings.ReadWeights > 0 {
		d.BandwidthShare = ratio(d.Bandwidth, m.ceilings.ReadWeights)
	}
	sorted := sortedTimes(times)
	d.StepP50, d.StepP99, d.StepMax, d.StepsMeasured = quantile(sorted, 0.5), quantile(sorted, 0.99), quantile(sorted, 1), len(sorted)
	return d, err
}

// measurePrefix runs the same rows with prefixes shared and not.
func (m *bench) measurePrefix(ctx context.Context) error {
	p := &BenchPrefix{Rows: m.o.PrefixRows, PrefixTokens: m.o.PrefixTokens, OwnTokens: m.o.OwnTokens}
	rows := make([]benchRow, p.Rows)
	for i := range rows {
		rows[i] = benchRow{common: p.PrefixTokens, own: p.OwnTokens, tokens: 1}
	}
	var results [2][][]int32
	once := func(i int, shared bool, best *float64) (err error) {
		eng, err := m.engine(min(p.Rows, infer.DefaultMaxSeqs), p.PrefixTokens+p.OwnTokens+1, engineOptions{share: shared})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, eng.Close()) }()
		m.meter = stepMeter{}
		out, took, err := m.run(ctx, eng, rows)
		if *best == 0 || took < *best {
			*best = took
		}
		results[i] = out
		if shared {
			p.Cached = int(eng.Stats().CachedTokens)
		}
		return err
	}
	err := m.repeat(func() error {
		if err := once(0, true, &p.Shared); err != nil {
			return err
		}
		return once(1, false, &p.Apart)
	})
	if err != nil {
		return err
	}
	p.Equal = reflect.DeepEqual(results[0], results[1])
	p.Gain = p.Apart / p.Shared
	p.Analytic = float64(p.Rows) * m.work.row(p.PrefixTokens+p.OwnTokens, 1) / m.work.shared(p.Rows, p.PrefixTokens, p.OwnTokens)
	p.OfAnalytic = p.Gain / p.Analytic
	m.res.Prefix = p
	if !p.Equal {
		return Errorf(Internal, "please report it", "results differ with and without prefix sharing")
	}
	return nil
}

// measureSpeculation decodes one sequence whose prompt repeats itself, with drafts and without.
func (m *bench) measureSpeculation(ctx context.Context) error {
	p := &BenchSpeculation{Period: speculationPeriod, Tokens: m.o.DecodeTokens}
	rows := []benchRow{{own: 3 * p.Period, tokens: p.Tokens, period: p.Period}}
	var results [2][][]int32
	once := func(i int, speculate bool, best *float64) (err error) {
		eng, err := m.engine(1, 3*p.Period+p.Tokens, engineOptions{speculate: speculate})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, eng.Close()) }()
		m.meter = stepMeter{}
		if results[i], _, err = m.run(ctx, eng, rows); err != nil {
			return err
		}
		s := eng.Stats()
		*best = max(*best, perSecond(p.Tokens-1, s.EngineTime-m.meter.prefillTime))
		if speculate {
			p.Drafted, p.Accepted, p.Steps = s.DraftedTokens, s.AcceptedTokens, s.Steps
		}
		return nil
	}
	err := m.repeat(func() error {
		if err := once(0, true, &p.Rate); err != nil {
			return err
		}
		return once(1, false, &p.Plain)
	})
	if err != nil {
		return err
	}
	p.Equal = reflect.DeepEqual(results[0], results[1])
	p.Gain = p.Rate / p.Plain
	m.res.Speculation = p
	if !p.Equal {
		return Errorf(Internal, "please report it", "results differ with and without speculation")
	}
	return nil
}

// speculationPeriod is the number of tokens after which the prompt repeats itself.
const speculationPeriod = 40

// measureLong: one long prompt, and one of the usual length right beside it.
func (m *bench) measureLong(ctx context.Context) error {
	l := &BenchLong{PromptTokens: m.o.LongTokens, ShortTokens: min(m.o.PromptTokens, m.o.LongTokens)}
	var err error
	if l.ShortRate, err = m.prefillRate(ctx, m.o.Prompts, l.ShortTokens); err != nil {
		return err
	}
	if l.Rate, err = m.prefillRate(ctx, 1, l.PromptTokens); err != nil {
		return err
	}
	l.Ratio = l.Rate / l.ShortRate
	m.res.Long = l
	return nil
}
