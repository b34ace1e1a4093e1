package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// weight makes a source of random values.
func weight(r *rand.Rand, name string, out, in int) device.MatrixSource {
	data := make([]byte, 0, 4*out*in)
	for range out * in {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(r.NormFloat64())))
	}
	return device.MatrixSource{Name: name, Type: quant.F32, Out: out, In: in, Data: data}
}

// TestPackRefuses: sources that do not hold what they say.
func TestPackRefuses(t *testing.T) {
	d, err := New(Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	good := weight(rand.New(rand.NewPCG(1, 1)), "w", 8, 4)
	for want, spoil := range map[string]func(s *device.MatrixSource){
		"7 rows of data":  func(s *device.MatrixSource) { s.Data = s.Data[:7*16] },
		"invalid type":    func(s *device.MatrixSource) { s.Type = 0 },
		"multiple of 32":  func(s *device.MatrixSource) { s.Type = quant.Q8_0 },
		"rows named":      func(s *device.MatrixSource) { s.Rows = []int32{1} },
		"row 8 of 8 rows": func(s *device.MatrixSource) { s.Rows = []int32{0, 1, 2, 3, 4, 5, 6, 8} },
		"empty shape":     func(s *device.MatrixSource) { s.Out = 0 },
	} {
		s := good
		spoil(&s)
		for what, load := range map[string]func() error{
			"matrix": func() error { _, err := d.Matrix(t.Context(), s); return err },
			"table":  func() error { _, err := d.Table(t.Context(), s); return err },
		} {
			if err := load(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", what, err, want)
			}
		}
	}
}

// TestPackedLayout looks values up in the panels, also with rows in another order and edges that do not fill a panel.
func TestPackedLayout(t *testing.T) {
	d, err := New(Config{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := rand.New(rand.NewPCG(2, 2))
	for _, shape := range [][2]int{{1, 1}, {32, 32}, {33, 31}, {70, 48}, {95, 100}} {
		out, in := shape[0], shape[1]
		src := weight(r, "w", out, in)
		for _, order := range []bool{false, true} {
			src.Rows = nil
			if order {
				for _, o := range r.Perm(out) {
					src.Rows = append(src.Rows, int32(o))
				}
			}
			packed, err := d.Matrix(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			m := packed.(*matrix)
			if m.Bytes() != d.MatrixBytes(src.Type, out, in) {
				t.Errorf("%v: it holds %d bytes, foretold %d", shape, m.Bytes(), d.MatrixBytes(src.Type, out, in))
			}
			for o := range m.panels * panelCols {
				for k := range m.kpad {
					want := float32(0)
					if o < out && k < in {
						row := o
						if order {
							row = int(src.Rows[o])
						}
						want = math.Float32frombits(binary.LittleEndian.Uint32(src.Data[4*(row*in+k):]))
					}
					if got := m.packed[o/panelCols*m.kpad*panelCols+k*panelCols+o%panelCols]; got != want {
						t.Fatalf("%v: output %d, k %d is %g, want %g", shape, o, k, got, want)
					}
				}
			}
			m.Close()
		}
	}
}

// TestEvenGroup: items are spread over the threads with as little left at the end as their size allows.
func TestEvenGroup(t *testing.T) {
	for _, c := range []struct{ panels, blocks, workers, most, want int }{
		{18, 1, 2, 2, 1}, {18, 1, 2, 3, 3}, {30, 1, 2, 3, 3}, {48, 1, 2, 6, 6}, {1, 1, 8, 1, 1}, {18, 4, 2, 7, 6}, {1536, 1, 1, 7, 6},
	} {
		if got := evenGroup(c.panels, c.blocks, c.workers, c.most); got != c.want {
			t.Errorf("%d panels, %d blocks, %d threads: groups of %d, want %d", c.panels, c.blocks, c.workers, got, c.want)
		}
	}
}

// BenchmarkLinear measures a whole product on all threads, with packing of activations: SmolLM2-135M's down projection.
func BenchmarkLinear(b *testing.B) {
	for _, tokens := range []int{1, 16, 512} {
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			r := benchRunner(b, tokens)
			m, err := r.dev.Matrix(b.Context(), weight(rand.New(rand.NewPCG(1, 1)), "w", 576, 1536))
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			for b.Loop() {
				r.Down(device.Linear{Weight: m})
			}
			b.ReportMetric(float64(2*576*1536*tokens*b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
		})
	}
}

// BenchmarkAttend measures attention of a prompt, and of one token with a context behind it.
func BenchmarkAttend(b *testing.B) {
	for _, c := range []struct{ past, tokens int }{{0, 512}, {1023, 1}} {
		b.Run(fmt.Sprintf("%d+%d", c.past, c.tokens), func(b *testing.B) {
			r := benchRunner(b, c.past+c.tokens)
			pages := r.batch.Seqs[0].Pages
			batch := &device.Batch{Tokens: make([]int32, c.tokens), Seqs: []device.Seq{{Len: c.tokens, Past: c.past, Pages: pages}}}
			for i := range c.tokens {
				batch.Positions = append(batch.Positions, int32(c.past+i))
			}
			if err := r.Begin(r.cache, batch); err != nil {
				b.Fatal(err)
			}
			a := &device.Attention{Scale: 0.125}
			for b.Loop() {
				r.Attend(0, a)
			}
			seen := 0 // pairs of query and key
			for i := range c.tokens {
				seen += c.past + i + 1
			}
			b.ReportMetric(float64(4*64*9*seen*b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
		})
	}
}

// benchRunner makes a runner of SmolLM2-135M's shape with one sequence begun.
func benchRunner(b *testing.B, tokens int) *runner {
	d, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	run, err := d.Runner(device.Shape{Hidden: 576, Intermediate: 1536, Heads: 9, KVHeads: 3, HeadDim: 64, Vocab: 100})
	if err != nil {
		b.Fatal(err)
	}
	pages := device.PagesFor(tokens)
	c, err := d.Cache(device.CacheShape{Layers: 1, KVHeads: 3, HeadDim: 64, Pages: pages})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	batch := &device.Batch{Tokens: make([]int32, tokens), Seqs: []device.Seq{{Len: tokens}}}
	for p := range pages {
		batch.Seqs[0].Pages = append(batch.Seqs[0].Pages, int32(p))
	}
	for i := range tokens {
		batch.Positions = append(batch.Positions, int32(i))
	}
	if err := run.Begin(c, batch); err != nil {
		b.Fatal(err)
	}
	return run.(*runner)
}
