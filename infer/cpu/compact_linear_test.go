package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// TestCompactProducts: products with compact weights, expanded in pieces for few tokens and whole for many, are those with the
// same values as float32, on every instruction set.
func TestCompactProducts(t *testing.T) {
	const width, vocab = 512, 70 // five pieces and a rest; a panel that is not full
	for _, k := range available() {
		for _, typ := range []quant.Type{quant.Q4_0, quant.Q4_K, quant.Q6_K, quant.Q8_0} {
			for _, tokens := range []int{1, k.strip + 2, fewStrips * k.strip, fewStrips*k.strip + 1} {
				t.Run(fmt.Sprintf("%s/%v/%d", k.name, typ, tokens), func(t *testing.T) {
					var results [2][]float32
					for i := range results {
						results[i] = products(t, k, typ, i == 0, tokens, width, vocab)
					}
					same(t, "product", results[0], results[1])
				})
			}
		}
	}
}

// products runs each kind of product on random values of a fixed seed.
func products(t *testing.T, k *kernels, typ quant.Type, compact bool, tokens, width, vocab int) []float32 {
	r := rand.New(rand.NewPCG(17, uint64(tokens)))
	d, err := New(Config{Threads: 2, ISA: k.name})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	load := func(out int) device.Linear {
		src := anyBlocks(r, typ, out, width)
		if !compact {
			src = asFloat32(src)
		}
		m, err := d.Matrix(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}
		if (m.(*matrix).form != nil) != compact {
			t.Fatal("the weight has not the form that is to be tested")
		}
		t.Cleanup(func() { m.Close() })
		return device.Linear{Weight: m}
	}
	made, err := d.Runner(device.Shape{Hidden: width, Intermediate: width, Heads: 8, KVHeads: 8, HeadDim: 64, Vocab: vocab})
	if err != nil {
		t.Fatal(err)
	}
	pages := device.PagesFor(tokens)
	c, err := d.Cache(device.CacheShape{Layers: 1, KVHeads: 8, HeadDim: 64, Pages: pages})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := &device.Batch{Tokens: make([]int32, tokens), Positions: make([]int32, tokens), Seqs: []device.Seq{{Len: tokens}}}
	for p := range pages {
		b.Seqs[0].Pages = append(b.Seqs[0].Pages, int32(p))
	}
	logits := make([][]float32, tokens)
	for i := range logits {
		logits[i] = make([]float32, vocab)
		b.Positions[i] = int32(i)
		b.Logits = append(b.Logits, int32(i))
	}
	if err := made.Begin(c, b); err != nil {
		t.Fatal(err)
	}
	run := made.(*runner)
	// Token by token, since the layout of strips is the instruction set's own.
	for token := range tokens {
		strip, row := run.input.place(token)
		for col := 0; col < width; col += lanes {
			for i := range lanes {
				run.input.data[run.input.at(strip, row, col)+i] = float32(r.NormFloat64())
			}
		}
	}
	run.GateUp(load(width), load(width))
	var all []float32
	for token := range tokens {
		strip, row := run.mlp.place(token)
		for col := 0; col < width; col += lanes {
			x := run.mlp.data[run.mlp.at(strip, row, col):][:lanes]
			all = append(all, x...)
			for i := range x { // what huge scales have made is of no use to the next product
				x[i] = float32(r.NormFloat64())
			}
		}
	}
	run.QKV(0, &device.QKV{Q: load(width), K: load(width), V: load(width)})
	all = append(all, run.q[:tokens*width]...)
	run.Down(load(width))
	all = append(all, run.stream[:tokens*width]...)
	for i := range run.stream {
		run.stream[i] = float32(r.NormFloat64())
	}
	ones, err := d.Vector(onesOf(width))
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Head(device.Norm{Weight: ones, Eps: 1e-5}, load(vocab), logits); err != nil {
		t.Fatal(err)
	}
	for _, l := range logits {
		all = append(all, l...)
	}
	return all
}

// asFloat32 is a source of the same values.
func asFloat32(src device.MatrixSource) device.MatrixSource {
	v := make([]float32, src.Out*src.In)
	quant.Dequantize(src.Type, v, src.Data)
	src.Type, src.Data = quant.F32, nil
	for _, x := range v {
		src.Data = binary.LittleEndian.AppendUint32(src.Data, math.Float32bits(x))
	}
	return src
}

func onesOf(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = 1
	}
	return v
}
