package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// prompts are sequences of many lengths, across page borders.
func prompts(vocab int) [][]int32 {
	r := rand.New(rand.NewPCG(11, 12))
	var all [][]int32
	for _, n := range []int{1, 2, 5, 31, 32, 33, 40, 64, 65, 97, 128, 145} {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(r.IntN(vocab))
		}
		all = append(all, ids)
	}
	return all
}

// alone computes a sequence by itself in one step; logits of every token.
func alone(t *testing.T, m *Model, ids []int32) [][]float32 {
	return newSequence(t, m, len(ids)).step(ids, true)
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: logit %d is %g, want %g to the bit", what, i, got[i], want[i])
		}
	}
}

// mixed computes all sequences in steps of random composition: chunks of random length of random sequences, in random order,
// on shuffled pages that were full of NaN before. Rows whose logits were not asked for are nil.
func mixed(t *testing.T, m *Model, all [][]int32, seed uint64, maxChunk int) [][][]float32 {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 99))
	total := 0
	for _, ids := range all {
		total += device.PagesFor(len(ids))
	}
	cache, err := m.NewCache(total + 3)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	poison(t, m, cache)
	free := r.Perm(total + 3)
	pages := make([][]int32, len(all))
	done := make([]int, len(all))
	out := make([][][]float32, len(all))
	for i, ids := range all {
		for range device.PagesFor(len(ids)) {
			pages[i] = append(pages[i], int32(free[0]))
			free = free[1:]
		}
		out[i] = make([][]float32, len(ids))
	}
	for {
		b := &device.Batch{}
		var rows [][]float32
		some := r.IntN(2) // 1: logits of some rows only, in any order
		for _, i := range r.Perm(len(all)) {
			left := len(all[i]) - done[i]
			if left == 0 || r.IntN(3) == 0 {
				continue
			}
			n := 1 + r.IntN(min(left, maxChunk))
			b.Seqs = append(b.Seqs, device.Seq{Start: len(b.Tokens), Len: n, Past: done[i], Pages: pages[i]})
			for j := range n {
				if some == 0 || r.IntN(3) == 0 {
					b.Logits = append(b.Logits, int32(len(b.Tokens)))
					out[i][done[i]+j] = make([]float32, m.Config().VocabSize)
					rows = append(rows, out[i][done[i]+j])
				}
				b.Tokens = append(b.Tokens, all[i][done[i]+j])
				b.Positions = append(b.Positions, int32(done[i]+j))
			}
			done[i] += n
		}
		if some == 1 {
			r.Shuffle(len(rows), func(i, j int) {
				rows[i], rows[j] = rows[j], rows[i]
				b.Logits[i], b.Logits[j] = b.Logits[j], b.Logits[i]
			})
		}
		if err := m.Forward(t.Context(), cache, b, rows); err != nil {
			t.Fatal(err)
		}
		finished := true
		for i := range all {
			finished = finished && done[i] == len(all[i])
		}
		if finished {
			return out
		}
	}
}

// poison fills all pages of a cache with NaN, by a model whose embedding is NaN: what a failed sequence leaves behind.
func poison(t *testing.T, m *Model, c *Cache) {
	t.Helper()
	nan := *m
	dev := newDevice(t, cpu.Config{Threads: 1})
	data := make([]byte, 4*m.config.VocabSize*m.config.Hidden)
	for i := range data {
		data[i] = 0xff
	}
	var err error
	if nan.embedding, err = dev.Table(t.Context(), device.MatrixSource{Name: "nan", Type: quant.F32, Out: m.config.VocabSize, In: m.config.Hidden, Data: data}); err != nil {
		t.Fatal(err)
	}
	var pages []int32
	for p := range c.Pages() {
		pages = append(pages, int32(p))
	}
	for p := range pages {
		n := device.PageTokens
		b := &device.Batch{Tokens: make([]int32, n), Seqs: []device.Seq{{Len: n, Pages: pages[p : p+1]}}, Logits: []int32{int32(n - 1)}}
		for i := range n {
			b.Positions = append(b.Positions, int32(i))
		}
		row := [][]float32{make([]float32, m.config.VocabSize)}
		if err := nan.Forward(t.Context(), c, b, row); err != nil {
			t.Fatal(err)
		}
		if !NonFinite(row[0]) {
			t.Fatal("a model of NaN gives finite logits, so the cache is not poisoned")
		}
	}
}

// eachActivations runs a test for the two kinds of KV cache.
func eachActivations(t *testing.T, f func(t *testing.T, a cpu.Activations)) {
	for _, a := range []cpu.Activations{cpu.ActivationsF32, cpu.ActivationsInt8} {
		t.Run(string(a), func(t *testing.T) { f(t, a) })
	}
}

func TestBatchInvariance(t *testing.T) {
	for _, name := range goldenModels {
		t.Run(name, func(t *testing.T) {
			eachActivations(t, func(t *testing.T, a cpu.Activations) { testInvariance(t, name, a) })
		})
	}
}

func testInvariance(t *testing.T, name string, a cpu.Activations) {
	src := folder(t, name)
	ref := load(t, src, newDevice(t, cpu.Config{Threads: 1, Activations: a}), Options{})
	all := prompts(ref.Config().VocabSize)
	var want [][][]float32
	for _, ids := range all {
		want = append(want, alone(t, ref, ids))
	}
	compared := 0
	for _, isa := range cpu.ISAs() {
		seqs, chunks := all, []int{1, 7, 200}
		if isa == "portable" { // slow: one model, and prompts that cross one border of pages
			if name != "mistral" {
				continue
			}
			seqs, chunks = all[:6], []int{7}
		}
		for _, threads := range []int{1, 3} {
			m := load(t, src, newDevice(t, cpu.Config{Threads: threads, ISA: isa, Activations: a}), Options{})
			for seed, chunk := range chunks {
				got := mixed(t, m, seqs, uint64(seed), chunk)
				for i := range seqs {
					for j := range seqs[i] {
						if got[i][j] == nil {
							continue
						}
						compared++
						sameBits(t, fmt.Sprintf("%s, %d threads, chunks to %d, sequence %d, token %d", isa, threads, chunk, i, j), got[i][j], want[i][j])
					}
				}
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d rows were compared", compared)
	}
}

// TestSharedPages: sequences whose tables begin with the same pages give the same bits as alone, however many of them are in a
// step, whatever their lengths, and whether they want logits of all rows.
func TestSharedPages(t *testing.T) {
	for _, name := range []string{"mistral", "qwen3", "llama_bias_linear"} {
		t.Run(name, func(t *testing.T) {
			eachActivations(t, func(t *testing.T, a cpu.Activations) { testSharedPages(t, name, a) })
		})
	}
}

func testSharedPages(t *testing.T, name string, a cpu.Activations) {
	src := folder(t, name)
	ref := load(t, src, newDevice(t, cpu.Config{Threads: 1, Activations: a}), Options{})
	r := rand.New(rand.NewPCG(31, 32))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(r.IntN(ref.Config().VocabSize))
		}
		return ids
	}
	// Sequences of two families; what each has beyond its share differs in length, and may be nothing but its last token.
	prefix := [][]int32{random(6 * device.PageTokens), random(9 * device.PageTokens)}
	var all [][]int32
	var family []int
	var want [][][]float32
	for i := range 13 {
		f := i / 7
		family = append(family, f)
		all = append(all, slices.Concat(prefix[f], random([]int{1, 9, 40, 70}[i%4])))
		want = append(want, alone(t, ref, all[i]))
	}
	for _, isa := range cpu.ISAs() {
		if isa == "portable" {
			continue // its twins are compared in package cpu
		}
		m := load(t, src, newDevice(t, cpu.Config{Threads: 3, ISA: isa, Activations: a}), Options{})
		for _, chunk := range []int{1, 3, 100} {
			c, err := m.NewCache(9 + 9 + 4*len(all))
			if err != nil {
				t.Fatal(err)
			}
			poison(t, m, c)
			free := r.Perm(c.Pages())
			take := func(n int) (pages []int32) {
				for _, p := range free[:n] {
					pages = append(pages, int32(p))
				}
				free = free[n:]
				return pages
			}
			var shared [][]int32
			for _, ids := range prefix {
				pages := take(len(ids) / device.PageTokens)
				shared = append(shared, pages)
				b := &device.Batch{Tokens: ids, Seqs: []device.Seq{{Len: len(ids), Pages: pages}}}
				for i := range ids {
					b.Positions = append(b.Positions, int32(i))
				}
				if err := m.Forward(t.Context(), c, b, nil); err != nil {
					t.Fatal(err)
				}
			}
			pages, done := make([][]int32, len(all)), make([]int, len(all))
			for i := range all {
				pages[i] = slices.Concat(shared[family[i]], take(3))
				done[i] = len(prefix[family[i]])
			}
			for step := 0; ; step++ {
				b := &device.Batch{}
				var rows [][]float32
				var check []func()
				for i := range all {
					n := min(chunk, len(all[i])-done[i])
					if n == 0 || step%3 == 1 && i%5 == 0 {
						continue
					}
					b.Seqs = append(b.Seqs, device.Seq{Start: len(b.Tokens), Len: n, Past: done[i], Pages: pages[i]})
					for j := range n {
						at := done[i] + j
						b.Tokens, b.Positions = append(b.Tokens, all[i][at]), append(b.Positions, int32(at))
						if step%2 == 0 || j == n-1 {
							row := make([]float32, m.Config().VocabSize)
							b.Logits, rows = append(b.Logits, int32(len(b.Tokens)-1)), append(rows, row)
							check = append(check, func() {
								sameBits(t, fmt.Sprintf("%s, chunks of %d, step %d, sequence %d, token %d", isa, chunk, step, i, at), row, want[i][at])
							})
						}
					}
					done[i] += n
				}
				if len(b.Seqs) == 0 && step%3 != 1 {
					break
				}
				if len(b.Seqs) == 0 {
					continue
				}
				if err := m.Forward(t.Context(), c, b, rows); err != nil {
					t.Fatal(err)
				}
				for _, f := range check {
					f()
				}
			}
			c.Close()
		}
	}
}

// TestStreamedWeights: a model that does not fit unpacked gives the same bits.
func TestStreamedWeights(t *testing.T) {
	src := folder(t, "llama")
	src.Weights = quantised{Weights: src.Weights, t: t} // with float32 activations, codes take more than the file
	dev := newDevice(t, cpu.Config{Threads: 2})
	ref := load(t, src, dev, Options{})
	mem, err := Estimate(t.Context(), src, dev)
	if err != nil {
		t.Fatal(err)
	}
	if mem.Unpacked != ref.Config().WeightBytes || mem.File != ref.Config().WeightFile || ref.Config().Streamed != 0 {
		t.Errorf("estimated %+v, the model has %+v", mem, ref.Config())
	}
	m := load(t, src, dev, Options{WeightMemory: mem.File})
	if c := m.Config(); c.Streamed == 0 || c.WeightBytes > mem.File {
		t.Errorf("%d weights streamed, %d bytes held of %d", c.Streamed, c.WeightBytes, mem.File)
	}
	for _, ids := range prompts(m.Config().VocabSize) {
		got, want := alone(t, m, ids), alone(t, ref, ids)
		for j := range ids {
			sameBits(t, fmt.Sprintf("token %d of %d", j, len(ids)), got[j], want[j])
		}
	}
}

// TestCopyPage: a sequence that goes on from a copied, partly filled page gives the same bits as one that computed it.
func TestCopyPage(t *testing.T) { eachActivations(t, testCopyPage) }

func testCopyPage(t *testing.T, a cpu.Activations) {
	m := load(t, folder(t, "qwen3"), newDevice(t, cpu.Config{Activations: a}), Options{})
	ids := prompts(m.Config().VocabSize)[9]
	want := alone(t, m, ids)
	const shared = 32 + 11
	s := newSequence(t, m, 2*len(ids))
	poison(t, m, s.cache)
	s.step(ids[:shared+20], false) // the donor goes on beyond the shared prefix
	m.CopyPage(s.cache, s.pages[4], s.pages[1], shared%device.PageTokens)
	s.pages = []int32{s.pages[0], s.pages[4], s.pages[2], s.pages[3]}
	s.past = shared
	got := s.step(ids[shared:shared+3], true) // the rest of the page keeps what it was given
	got = append(got, s.step(ids[shared+3:], true)...)
	for i := range got {
		sameBits(t, fmt.Sprintf("token %d", shared+i), got[i], want[shared+i])
	}
}
