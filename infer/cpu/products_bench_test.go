package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// layerShapes are [in][out] of the products of small models, gate and up taken one by one.
var layerShapes = []struct {
	model  string
	shapes [][2]int
}{
	{"SmolLM2-135M", [][2]int{{576, 576}, {576, 1536}, {1536, 576}}},
	{"Qwen3-0.6B", [][2]int{{1024, 2048}, {2048, 1024}, {1024, 3072}, {3072, 1024}}},
	{"Llama-3.2-1B", [][2]int{{2048, 2048}, {2048, 8192}, {8192, 2048}}},
}

// BenchmarkProducts measures whole products on all threads, packed activations to results, as a share of what the tiles reach with
// everything in the first cache (Peak, taken right before).
func BenchmarkProducts(b *testing.B) {
	r := rand.New(rand.NewPCG(41, 42))
	for _, k := range available() {
		if k.q8 == &qPortable {
			continue
		}
		for _, typ := range []quant.Type{quant.F32, quant.Q8_0} {
			for _, m := range layerShapes {
				for _, tokens := range []int{32, 128, 512} {
					b.Run(fmt.Sprintf("%s/%v/%s/%d", k.name, typ, m.model, tokens), func(b *testing.B) {
						benchProducts(b, r, k, typ, m.shapes, tokens)
					})
				}
			}
		}
	}
}

func benchProducts(b *testing.B, r *rand.Rand, k *kernels, typ quant.Type, shapes [][2]int, tokens int) {
	d, err := New(Config{ISA: k.name, Activations: ActivationsInt8})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	var runs []func()
	ops := 0.0
	for _, s := range shapes {
		in, out := s[0], s[1]
		src := weight(r, "w", out, in)
		if typ != quant.F32 {
			src = anyBlocks(r, typ, out, in)
		}
		m, err := d.Matrix(b.Context(), src)
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close()
		made, err := d.Runner(device.Shape{Hidden: in, Intermediate: 32, Heads: 1, KVHeads: 1, HeadDim: 32, Vocab: 32})
		if err != nil {
			b.Fatal(err)
		}
		run := made.(*runner)
		run.resizeStrips(tokens)
		row := aligned(in)
		rowKinds[0](r, row)
		for i := range tokens {
			run.inputQ.row(&run.work[0].q8.quant, i, ptr(row, 0))
		}
		dst := make([]float32, tokens*out)
		runs = append(runs, func() {
			run.products(&run.input, &run.inputQ, in, nil, part(device.Linear{Weight: m}, dst, out, false))
		})
		ops += 2 * float64(in*out*tokens)
	}
	peak, int8 := d.Peak()
	if typ != quant.F32 {
		peak = int8
	}
	for b.Loop() {
		for _, run := range runs {
			run()
		}
	}
	rate := ops * float64(b.N) / b.Elapsed().Seconds() / 1e9
	b.ReportMetric(rate, "Gop/s")
	b.ReportMetric(100*rate/peak, "%peak")
}
