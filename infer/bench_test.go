package infer

import (
	"context"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
)

// idleModel computes nothing: all logits are equal, so that what is measured is the engine. Tokens repeat for ever, and
// all drafts come true.
type idleModel struct{}

func (idleModel) Limits() ModelLimits {
	return ModelLimits{VocabSize: 64, MaxPositions: 1 << 30, KVBytesPerPage: 1}
}
func (idleModel) NewCache(int) (Cache, error)                               { return idleModel{}, nil }
func (idleModel) Forward(context.Context, *device.Batch, [][]float32) error { return nil }
func (idleModel) CopyPage(dst, src int32, tokens int)                       {}
func (idleModel) Close() error                                              { return nil }

// copySource hands out one request again and again, until stop.
type copySource struct {
	q    Request
	left func() bool
}

func (s *copySource) Next(context.Context, bool) (*Request, error) {
	if !s.left() {
		return nil, io.EOF
	}
	q := s.q
	return &q, nil
}

// BenchmarkStep measures a step of the engine without the model: one token of each row, tokens with drafts, and 64 tokens
// of a long prompt. Its allocations are 0: those of rows that start and end in between do not make one a step.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name         string
		rows, prompt int
		drafts       bool
	}{{"decode/rows=1", 1, 1, false}, {"decode/rows=64", 64, 1, false}, {"drafts/rows=1", 1, 4, true}, {"prefill", 1, 1 << 14, false}} {
		b.Run(c.name, func(b *testing.B) {
			steps := 0
			e, err := New(Config{Model: idleModel{}, Tokenizer: silentTokenizer{}, BatchTokens: 64, MaxSeqs: c.rows, Threads: 1, KVMemory: 1 << 22,
				NoPrefixSharing: true, NoSpeculation: !c.drafts, Events: Events{OnStep: func(StepStats) { steps++ }}})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			src := &copySource{q: Request{Tokens: make([]int32, c.prompt), Params: DefaultParams()}, left: func() bool { return steps < b.N }}
			src.q.Params.MaxTokens, src.q.Params.IgnoreEOS = 1<<15, true
			if c.prompt > 4 {
				src.q.Params.MaxTokens = 1
			}
			b.ReportAllocs()
			if err := e.Run(b.Context(), src, func(Completion) error { return nil }); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
		})
	}
}

func benchmarkSample(b *testing.B, change func(*Params)) {
	logits := make([]float32, 49152)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}
	p := DefaultParams()
	change(&p)
	var s sampler
	hist := newHistory([]int32{1, 2, 3})
	if !p.penalises() {
		hist = nil
	}
	b.ReportAllocs()
	for pos := 0; b.Loop(); pos++ {
		if _, err := s.sample(logits, &p, hist, nil, 1, pos); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	for _, c := range []struct {
		name   string
		change func(*Params)
	}{
		{"greedy", func(*Params) {}},
		{"penalty", func(p *Params) { p.RepetitionPenalty = 1.1 }},
		{"temperature", func(p *Params) { p.Temperature = 1 }},
		{"top_k", func(p *Params) { p.Temperature, p.TopK = 1, 50 }},
		{"top_p", func(p *Params) { p.Temperature, p.TopP = 1, 0.95 }},
		{"logprobs", func(p *Params) { p.Logprobs = 5 }},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkSample(b, c.change) })
	}
}
