package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
)

// attendCase is one sequence's attention on a runner of its own, without weights: queries, keys and values are given.
type attendCase struct {
	heads, kvHeads, dim int
	window, tokens      int
	q, k, v             []float32 // [tokens][heads or kvHeads][dim]
}

func newAttendCase(r *rand.Rand, heads, kvHeads, dim, window, tokens int) *attendCase {
	c := &attendCase{heads: heads, kvHeads: kvHeads, dim: dim, window: window, tokens: tokens}
	normal := func(n int) []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = float32(r.NormFloat64())
		}
		return s
	}
	c.q, c.k, c.v = normal(tokens*heads*dim), normal(tokens*kvHeads*dim), normal(tokens*kvHeads*dim)
	return c
}

const attendScale = 0.2

// run computes it in chunks and gives [tokens][heads*dim].
func (c *attendCase) run(t testing.TB, cfg Config, chunk int) []float32 {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	run, err := d.Runner(device.Shape{Hidden: 32, Intermediate: 32, Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.dim, Vocab: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := device.PagesFor(c.tokens)
	kv, err := d.Cache(device.CacheShape{Layers: 2, KVHeads: c.kvHeads, HeadDim: c.dim, Pages: n + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer kv.Close()
	r := run.(*runner)
	pages := make([]int32, n)
	for i := range pages {
		pages[i] = int32(n - i)
	}
	out := make([]float32, 0, c.tokens*c.heads*c.dim)
	for past := 0; past < c.tokens; past += chunk {
		m := min(chunk, c.tokens-past)
		b := &device.Batch{Tokens: make([]int32, m), Seqs: []device.Seq{{Len: m, Past: past, Pages: pages}}}
		for i := range m {
			b.Positions = append(b.Positions, int32(past+i))
		}
		if err := r.Begin(kv, b); err != nil {
			t.Fatal(err)
		}
		for i := range m {
			copy(r.q[i*r.qdim:], c.q[(past+i)*c.heads*c.dim:][:c.heads*c.dim])
			copy(r.kx[i*r.kvdim:], c.k[(past+i)*c.kvHeads*c.dim:][:c.kvHeads*c.dim])
			copy(r.vx[i*r.kvdim:], c.v[(past+i)*c.kvHeads*c.dim:][:c.kvHeads*c.dim])
		}
		r.writeKV(1, &device.QKV{})
		r.Attend(1, &device.Attention{Scale: attendScale, Window: c.window})
		for i := range m {
			if cfg.Activations == ActivationsInt8 {
				out = append(out, r.attnRows[i*r.qdim:][:c.heads*c.dim]...)
				continue
			}
			strip, row := r.attn.place(i)
			for j := range c.heads * c.dim {
				out = append(out, r.attn.data[r.attn.at(strip, row, j/lanes*lanes)+j%lanes])
			}
		}
	}
	return out
}

// reference computes it in float64; in spans, the probabilities of each span of 128 keys are rounded to 7 bits on the way, times
// the scales of the values.
func (c *attendCase) reference(spans bool) []float64 {
	group := c.heads / c.kvHeads
	out := make([]float64, c.tokens*c.heads*c.dim)
	p, w := make([]float64, c.tokens), make([]float64, c.tokens)
	for i := range c.tokens {
		first := 0
		if c.window > 0 {
			first = max(0, i-c.window+1)
		}
		for h := range c.heads {
			to := out[(i*c.heads+h)*c.dim:][:c.dim]
			sum := 0.0
			clear(p)
			for j := first; j <= i; j++ {
				dot := 0.0
				for x := range c.dim {
					dot += float64(c.q[(i*c.heads+h)*c.dim+x]) * float64(c.k[(j*c.kvHeads+h/group)*c.dim+x])
				}
				p[j] = math.Exp(dot * attendScale)
				sum += p[j]
				w[j] = p[j] * amax(c.v[(j*c.kvHeads+h/group)*c.dim:][:c.dim]) / codeMax
			}
			if spans {
				for at := 0; at <= i; at += spanTokens {
					end := min(at+spanTokens, i+1)
					peak := 0.0
					for j := max(at, first); j < end; j++ {
						peak = max(peak, w[j])
					}
					for j := max(at, first); j < end; j++ {
						p[j] *= math.RoundToEven(w[j]*codeMax/peak) / (w[j] * codeMax / peak)
					}
				}
			}
			for j := first; j <= i; j++ {
				for x := range to {
					to[x] += p[j] * float64(c.v[(j*c.kvHeads+h/group)*c.dim+x])
				}
			}
			for x := range to {
				to[x] /= sum
			}
		}
	}
	return out
}

func amax(x []float32) float64 {
	m := 0.0
	for _, v := range x {
		m = max(m, math.Abs(float64(v)))
	}
	return m
}

// rounded is the case with its values as codes hold them.
func (c *attendCase) rounded() *attendCase {
	to := *c
	round := func(x []float32) []float32 {
		x = slices.Clone(x)
		for head := range slices.Chunk(x, c.dim) {
			m := amax(head)
			for i, v := range head {
				head[i] = float32(math.RoundToEven(float64(v)*codeMax/m) * m / codeMax)
			}
		}
		return x
	}
	to.q, to.k, to.v = round(c.q), round(c.k), round(c.v)
	return &to
}

// TestAttendMatchesReference: attention in float32 is exact to float32; with codes it is so but for probabilities that are rounded to
// the other side, where all that is rounded is known, and a few hundredths off what it is without.
func TestAttendMatchesReference(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, c := range []struct{ heads, kvHeads, dim, window, tokens int }{
		{9, 3, 64, 0, 300}, {4, 4, 128, 0, 140}, {8, 1, 32, 0, 150}, {4, 2, 80, 0, 140}, {2, 1, 24, 0, 40}, {40, 2, 96, 0, 70},
		{6, 2, 64, 33, 420}, {3, 1, 64, 150, 420}, {2, 2, 256, 0, 35},
	} {
		a := newAttendCase(r, c.heads, c.kvHeads, c.dim, c.window, c.tokens)
		exact, rounded := a.reference(false), a.rounded().reference(true)
		floats, codes := a.run(t, Config{Activations: ActivationsF32}, 200), a.run(t, Config{Activations: ActivationsInt8}, 200)
		for _, want := range []struct {
			what      string
			got       []float32
			reference []float64
			limit     float64
		}{{"float32", floats, exact, 1e-6}, {"codes", codes, rounded, 1e-3}, {"codes, with all rounding,", codes, exact, 0.03}} {
			var err, norm float64
			for i, x := range want.reference {
				err += (float64(want.got[i]) - x) * (float64(want.got[i]) - x)
				norm += x * x
			}
			t.Logf("%+v: the relative error of %s is %.2g", c, want.what, math.Sqrt(err/norm))
			if !(math.Sqrt(err/norm) < want.limit) {
				t.Errorf("%+v: the relative error of %s is %.2g, want below %g", c, want.what, math.Sqrt(err/norm), want.limit)
			}
		}
	}
}

// TestAttendInvariance: the same bits for all instruction sets, numbers of threads and ways to cut a prompt.
func TestAttendInvariance(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for _, c := range []struct{ heads, kvHeads, dim, window, tokens int }{{9, 3, 64, 0, 300}, {2, 1, 40, 70, 310}} {
		a := newAttendCase(r, c.heads, c.kvHeads, c.dim, c.window, c.tokens)
		for _, act := range []Activations{ActivationsF32, ActivationsInt8} {
			want := a.run(t, Config{ISA: "portable", Activations: act}, c.tokens)
			for _, isa := range ISAs() {
				for _, chunk := range []int{1, 5, 50, 128, 299} {
					if isa == "portable" && chunk < 50 {
						continue // slow
					}
					got := a.run(t, Config{ISA: isa, Activations: act, Threads: 1 + chunk%3}, chunk)
					same(t, fmt.Sprintf("%s, %s, chunks of %d", act, isa, chunk), got, want)
				}
			}
		}
	}
}

// TestAttendBadToken: with codes, a key or value that is not a number spoils the rows that see it, and no other; a bad query its own.
// In float32 it is the same, but for tokens before it in the same sequence, which fails anyway.
func TestAttendBadToken(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	const at, heads, dim = 140, 3, 64
	for _, act := range []Activations{ActivationsF32, ActivationsInt8} {
		for what, x := range map[string]float32{"NaN": float32(math.NaN()), "infinity": float32(math.Inf(1))} {
			for _, isa := range ISAs() {
				for _, which := range []string{"query", "key", "value"} {
					a := newAttendCase(r, heads, 1, dim, 0, 200)
					good := a.run(t, Config{ISA: isa, Activations: act}, 200)
					switch which {
					case "query":
						a.q[at*heads*dim] = x
					case "key":
						a.k[at*dim+7] = x
					case "value":
						a.v[at*dim+5] = x
					}
					bad := a.run(t, Config{ISA: isa, Activations: act}, 200)
					for i := range a.tokens {
						if act == ActivationsF32 && (which == "value" && i < at || which == "key") {
							continue
						}
						finite := true
						for _, v := range bad[i*heads*dim:][:dim] {
							finite = finite && v-v == 0
						}
						spoiled := i == at || i > at && which != "query"
						if finite == spoiled {
							t.Fatalf("%s, %s, %s as %s of token %d: token %d is finite: %t", act, isa, what, which, at, i, finite)
						}
						if !spoiled {
							same(t, "another token", bad[i*heads*dim:][:heads*dim], good[i*heads*dim:][:heads*dim])
						}
					}
				}
			}
		}
	}
}
