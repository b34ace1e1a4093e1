package infer

import (
	"math/rand/v2"
	"testing"
)

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
