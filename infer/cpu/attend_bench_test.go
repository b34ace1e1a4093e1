package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
)

// BenchmarkAttention measures attention with heads as SmolLM2-135M has them, for each instruction set and kind of cache: prompts'
// chunks of 512 tokens with and without a long context behind them, and one token of each of many sequences, with pages of
// their own and with most of them shared.
func BenchmarkAttention(b *testing.B) {
	for _, c := range []struct{ seqs, tokens, past, shared int }{
		{1, 512, 0, 0}, {1, 512, 7680, 0}, {16, 1, 511, 0}, {64, 1, 511, 0}, {64, 1, 511, 384},
	} {
		for _, isa := range ISAs() {
			if isa == "portable" {
				continue
			}
			for _, a := range []Activations{ActivationsF32, ActivationsInt8} {
				b.Run(fmt.Sprintf("%dx%d+%d,shared=%d/%s/%s", c.seqs, c.past, c.tokens, c.shared, isa, a), func(b *testing.B) {
					benchAttention(b, Config{ISA: isa, Activations: a}, c.seqs, c.tokens, c.past, c.shared)
				})
			}
		}
	}
}

func benchAttention(b *testing.B, cfg Config, seqs, tokens, past, shared int) {
	const heads, kvHeads, dim = 9, 3, 64
	d, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	run, err := d.Runner(device.Shape{Hidden: 32, Intermediate: 32, Heads: heads, KVHeads: kvHeads, HeadDim: dim, Vocab: 1})
	if err != nil {
		b.Fatal(err)
	}
	r := run.(*runner)
	each := device.PagesFor(past + tokens)
	c, err := d.Cache(device.CacheShape{Layers: 1, KVHeads: kvHeads, HeadDim: dim, Pages: seqs * each})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	rnd := rand.New(rand.NewPCG(1, 1))
	step := func(past, tokens int) {
		batch := &device.Batch{}
		for s := range seqs {
			q := device.Seq{Start: len(batch.Tokens), Len: tokens, Past: past}
			for p := range each {
				if p < shared/device.PageTokens {
					q.Pages = append(q.Pages, int32(p))
				} else {
					q.Pages = append(q.Pages, int32(s*each+p))
				}
			}
			for i := range tokens {
				batch.Tokens = append(batch.Tokens, 0)
				batch.Positions = append(batch.Positions, int32(past+i))
			}
			batch.Seqs = append(batch.Seqs, q)
		}
		if err := r.Begin(c, batch); err != nil {
			b.Fatal(err)
		}
		for _, x := range [][]float32{r.q, r.kx, r.vx} {
			for i := range x {
				x[i] = float32(rnd.NormFloat64())
			}
		}
		r.writeKV(0, &device.QKV{})
	}
	for at := 0; at < past; at += 512 {
		step(at, min(512, past-at))
	}
	step(past, tokens)
	a := &device.Attention{Scale: 0.125}
	b.ReportAllocs()
	for b.Loop() {
		r.Attend(0, a)
	}
	seen := 0 // pairs of query and key
	for i := range tokens {
		seen += past + i + 1
	}
	b.ReportMetric(float64(4*dim*heads*seen*seqs*b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
}
