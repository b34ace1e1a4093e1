package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
)

// BenchmarkWriteKV measures how a step's queries, keys and values come into the form that attention wants: a prompt's chunk, and one
// token of each of many sequences, whose pages are not in a cache of the processor since there are many layers.
func BenchmarkWriteKV(b *testing.B) {
	const heads, kvHeads, dim, layers = 9, 3, 64, 30
	for _, c := range []struct{ seqs, tokens, past int }{{1, 512, 0}, {64, 1, 257}} {
		for _, a := range []Activations{ActivationsF32, ActivationsInt8} {
			b.Run(fmt.Sprintf("%dx%d+%d/%s", c.seqs, c.past, c.tokens, a), func(b *testing.B) {
				d, err := New(Config{Activations: a})
				if err != nil {
					b.Fatal(err)
				}
				defer d.Close()
				run, err := d.Runner(device.Shape{Hidden: 32, Intermediate: 32, Heads: heads, KVHeads: kvHeads, HeadDim: dim, Vocab: 1})
				if err != nil {
					b.Fatal(err)
				}
				r := run.(*runner)
				each := device.PagesFor(c.past + c.tokens)
				kv, err := d.Cache(device.CacheShape{Layers: layers, KVHeads: kvHeads, HeadDim: dim, Pages: c.seqs * each})
				if err != nil {
					b.Fatal(err)
				}
				defer kv.Close()
				batch := &device.Batch{}
				for s := range c.seqs {
					q := device.Seq{Start: len(batch.Tokens), Len: c.tokens, Past: c.past}
					for p := range each {
						q.Pages = append(q.Pages, int32(s*each+p))
					}
					for i := range c.tokens {
						batch.Tokens, batch.Positions = append(batch.Tokens, 0), append(batch.Positions, int32(c.past+i))
					}
					batch.Seqs = append(batch.Seqs, q)
				}
				if err := r.Begin(kv, batch); err != nil {
					b.Fatal(err)
				}
				rnd := rand.New(rand.NewPCG(1, 1))
				for _, x := range [][]float32{r.q, r.kx, r.vx} {
					for i := range x {
						x[i] = float32(rnd.NormFloat64())
					}
				}
				layer := 0
				for range layers {
					r.writeKV(layer, &device.QKV{})
					layer++
				}
				for b.Loop() {
					layer = (layer + 1) % layers
					r.writeKV(layer, &device.QKV{})
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.seqs*c.tokens), "ns/token")
			})
		}
	}
}
