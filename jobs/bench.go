package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/batchmill/batchmill/infer/bundle"
	"github.com/batchmill/batchmill/internal/objstore"
)

// BenchParts are the parts of a measurement, in their order.
var BenchParts = []string{"ceilings", "prefill", "decode", "prefix", "speculation", "long", "jobs"}

// BenchOptions size a measurement. Zero values are the defaults in parentheses.
type BenchOptions struct {
	Model       string
	Activations string // as for a job (auto)
	ISA         string // as for a job (auto)
	Threads     int    // (all cores)
	BatchTokens int    // (the engine's own)
	Parts       []string
	Repeat      int           // the best of so many runs counts (3)
	Budget      time.Duration // no figure's runs are repeated any more once they took so long (2 minutes)

	PromptTokens int   // length of a prompt of the prefill measurement (512)
	Prompts      int   // such prompts (4)
	Seqs         []int // numbers of sequences that decode at once (1, 4, 16, 64)
	DecodeTokens int   // steps with all of them (64)
	DecodePast   int   // prompt tokens of each of them (32)
	PrefixRows   int   // rows with a common beginning (64)
	PrefixTokens int   // its length (400)
	OwnTokens    int   // what each row has besides (100)
	LongTokens   int   // length of the long prompt (8,191, or what the model allows)
	Size         float64
	Profiles     []string // whole jobs: chat, longdoc, code (all)
}

func (o BenchOptions) withDefaults() BenchOptions {
	for _, d := range []struct {
		p *int
		v int
	}{{&o.PromptTokens, 512}, {&o.Prompts, 4}, {&o.DecodeTokens, 64}, {&o.DecodePast, 32}, {&o.Repeat, 3}, {&o.PrefixRows, 64}, {&o.PrefixTokens, 400}, {&o.OwnTokens, 100}} {
		if *d.p == 0 {
			*d.p = d.v
		}
	}
	if len(o.Seqs) == 0 {
		o.Seqs = []int{1, 4, 16, 64}
	}
	if len(o.Parts) == 0 {
		o.Parts = BenchParts
	}
	if o.Size == 0 {
		o.Size = 1
	}
	if o.Budget == 0 {
		o.Budget = 2 * time.Minute
	}
	if o.Activations == "" {
		o.Activations = "auto"
	}
	return o
}

func (o *BenchOptions) validate() error {
	for _, p := range o.Parts {
		if !slices.Contains(BenchParts, p) {
			return Errorf(Usage, "known: "+strings.Join(BenchParts, ", "), "unknown part %q", p)
		}
	}
	for _, p := range o.Profiles {
		if !slices.ContainsFunc(benchProfiles, func(q benchProfile) bool { return q.name == p }) {
			return Errorf(Usage, "known: chat, longdoc, code", "unknown profile %q", p)
		}
	}
	for _, n := range append(slices.Clone(o.Seqs), o.PromptTokens, o.Prompts, o.DecodeTokens, o.DecodePast, o.PrefixRows, o.PrefixTokens, o.OwnTokens, o.Repeat) {
		if n < 1 {
			return Errorf(Usage, "", "a size of %d; all sizes must be at least 1", n)
		}
	}
	if o.DecodeTokens < 8 {
		return Errorf(Usage, "the first and last steps are not counted", "--decode-tokens must be at least 8")
	}
	if o.Size < 0 {
		return Errorf(Usage, "", "--size must be above 0")
	}
	return nil
}

// bench is one measurement.
type bench struct {
	o        BenchOptions
	store    *objstore.Store
	bundle   *bundle.Bundle
	loaded   *loaded
	meter    stepMeter
	work     modelWork
	ceilings BenchCeilings
	res      *BenchResult
	progress func(part string)
}

// Bench measures the engine on synthetic rows, and whole jobs on synthetic files, which it writes to a temporary folder.
// progress is told which part begins; it may be nil.
func Bench(ctx context.Context, store *objstore.Store, o BenchOptions, progress func(part string)) (res *BenchResult, err error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	m := &bench{o: o, store: store, progress: progress}
	if m.progress == nil {
		m.progress = func(string) {}
	}
	if m.bundle, err = OpenModel(ctx, o.Model, store, nil); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.bundle.Close()) }()
	if err := m.load(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.unload()) }()
	if err := m.fits(); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"ceilings", m.measureCeilings}, {"prefill", m.measurePrefill}, {"decode", m.measureDecode}, {"prefix", m.measurePrefix}, {"speculation", m.measureSpeculation}, {"long", m.measureLong}, {"jobs", m.measureJobs}} {
		if !slices.Contains(o.Parts, part.name) {
			continue
		}
		m.progress(part.name)
		if err := part.run(ctx); err != nil {
			return nil, fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	m.res.PeakRSS = peakRSS()
	return m.res, nil
}

func (m *bench) load(ctx context.Context) error {
	began := time.Now()
	var err error
	if m.loaded, err = loadModel(ctx, m.bundle, deviceOptions{m.o.Threads, m.o.ISA, m.o.Activations}); err != nil {
		return err
	}
	c := m.loaded.config
	m.work = workOf(c)
	m.res = &BenchResult{
		Model: m.bundle.Name, ModelDigest: m.bundle.Digest, Device: m.loaded.dev.Name(), CPU: cpuName(), Activations: resolveActivations(m.bundle, m.o.Activations),
		Repeat: m.o.Repeat, WeightBytes: c.WeightBytes, FileBytes: c.WeightFile, Load: seconds(time.Since(began).Seconds()),
	}
	return nil
}

func (m *bench) unload() error {
	if m.loaded == nil {
		return nil
	}
	err := m.loaded.close()
	m.loaded = nil
	return err
}

// fits checks lengths against the model's context, and takes the long prompt down to it.
func (m *bench) fits() error {
	most := m.loaded.config.MaxPositions
	o := &m.o
	for _, part := range []struct {
		name   string
		length int
	}{{"prefill", o.PromptTokens + 1}, {"decode", m.decodeLength(slices.Max(o.Seqs))}, {"prefix", o.PrefixTokens + o.OwnTokens + 1}, {"speculation", 3*speculationPeriod + o.DecodeTokens}, {"long", o.LongTokens + 1}} {
		if part.length > most && slices.Contains(o.Parts, part.name) {
			return Errorf(Usage, "use shorter prompts", "part %s needs %d tokens a sequence, the model has %d", part.name, part.length, most)
		}
	}
	if o.LongTokens == 0 {
		o.LongTokens = min(longTokens, most-1)
	}
	return nil
}

// longTokens is the default length of the long prompt: with its one completion token it fills a context of 8,192.
const longTokens = 8191
