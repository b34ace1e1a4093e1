package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
)

// planner makes a runner that plans and computes nothing.
func planner(t *testing.T, a Activations) *runner {
	t.Helper()
	d, err := New(Config{Threads: 2, Activations: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	run, err := d.Runner(device.Shape{Hidden: 32, Intermediate: 32, Heads: 6, KVHeads: 2, HeadDim: 32, Vocab: 1})
	if err != nil {
		t.Fatal(err)
	}
	return run.(*runner)
}

// sequenceOf makes the next sequence of a batch: its table starts with so many pages of a family, and goes on with pages of its own.
func sequenceOf(b *device.Batch, family, shared, past, tokens int) {
	s := device.Seq{Start: len(b.Tokens), Len: tokens, Past: past}
	for p := range device.PagesFor(past + tokens) {
		page := 1000*family + p
		if p >= shared {
			page = 100000 + 1000*len(b.Seqs) + p
		}
		s.Pages = append(s.Pages, int32(page))
	}
	for i := range tokens {
		b.Tokens, b.Positions = append(b.Tokens, 0), append(b.Positions, int32(past+i))
	}
	b.Seqs = append(b.Seqs, s)
}

// TestPlanShares: who goes through pages with whom.
func TestPlanShares(t *testing.T) {
	type seq struct{ family, shared, past, tokens int }
	for _, c := range []struct {
		what   string
		a      Activations
		seqs   []seq
		shared []int // pages of each sequence that are computed with others
	}{
		{"decoding", ActivationsInt8, []seq{{1, 9, 300, 1}, {1, 9, 310, 1}, {1, 9, 290, 2}}, []int{8, 8, 8}},
		{"whole spans only", ActivationsInt8, []seq{{1, 7, 300, 1}, {1, 7, 310, 1}}, []int{4, 4}},
		{"whole pages only", ActivationsF32, []seq{{1, 7, 300, 1}, {1, 7, 310, 1}}, []int{7, 7}},
		{"only what all have behind them", ActivationsF32, []seq{{1, 7, 300, 1}, {1, 7, 7*32 - 1, 1}}, []int{6, 6}},
		{"no span in common", ActivationsInt8, []seq{{1, 3, 300, 1}, {1, 3, 310, 1}}, []int{0, 0}},
		{"alone", ActivationsInt8, []seq{{1, 8, 300, 1}}, []int{0}},
		{"two families", ActivationsInt8, []seq{{1, 8, 300, 1}, {1, 8, 300, 1}, {2, 4, 300, 1}, {2, 4, 300, 1}}, []int{8, 8, 4, 4}},
		{"one that shares little stays out", ActivationsInt8, []seq{{1, 20, 700, 1}, {1, 20, 700, 1}, {1, 4, 700, 1}, {2, 0, 700, 1}}, []int{20, 20, 0, 0}},
		{"a prompt has rows enough", ActivationsInt8, []seq{{1, 8, 300, 1}, {1, 8, 300, 100}, {1, 8, 300, 1}}, []int{0, 0, 0}},
	} {
		r := planner(t, c.a)
		b := &device.Batch{}
		for _, s := range c.seqs {
			sequenceOf(b, s.family, s.shared, s.past, s.tokens)
		}
		begin(t, r, c.a, b)
		for i, g := range r.attention.ranges {
			if g.pages != c.shared[i] {
				t.Errorf("%s: sequence %d shares %d pages, want %d", c.what, i, g.pages, c.shared[i])
			}
		}
	}
}

// begin starts a step with a cache that has no memory: nothing is computed.
func begin(t *testing.T, r *runner, a Activations, b *device.Batch) {
	t.Helper()
	c := newCache(device.CacheShape{Layers: 1, KVHeads: 2, HeadDim: 32, Pages: 1 << 20}, a)
	if err := r.Begin(c, b); err != nil {
		t.Fatal(err)
	}
}

// TestPlanCovers: every wanted row goes through each of its pages once, the shared ones first, and a strip's rows agree on the pages.
func TestPlanCovers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(41, 42))
	for _, a := range []Activations{ActivationsF32, ActivationsInt8} {
		r := planner(t, a)
		shared := 0
		for range 200 {
			b := &device.Batch{}
			family := 0
			for range 1 + rnd.IntN(12) {
				if rnd.IntN(4) == 0 {
					family++
				}
				pages := rnd.IntN(12)
				sequenceOf(b, family, pages, pages*device.PageTokens+rnd.IntN(40), 1+rnd.IntN(9)*rnd.IntN(9))
			}
			begin(t, r, a, b)
			if rnd.IntN(2) == 0 { // some rows, in any order
				for i := range b.Tokens {
					if rnd.IntN(3) == 0 {
						b.Logits = append(b.Logits, int32(i))
					}
				}
				rnd.Shuffle(len(b.Logits), func(i, j int) { b.Logits[i], b.Logits[j] = b.Logits[j], b.Logits[i] })
				r.attention.some(b.Logits)
				r.plan()
			} else {
				for i := range b.Tokens {
					b.Logits = append(b.Logits, int32(i))
				}
			}
			type key struct{ token, head int32 }
			next, carry := map[key]int{}, map[int32]key{}
			p := &r.attention
			for phase, strips := range [][]queryStrip{p.shared, p.own} {
				for _, s := range strips {
					for _, q := range p.rows[s.first:][:s.rows] {
						k := key{q.token, q.head}
						seq := b.Seqs[seqAt(b, int(q.token))]
						if next[k] != s.from || s.resume != (s.from > 0) || s.keep != (phase == 0) {
							t.Fatalf("row %v goes on at page %d, but %+v", k, next[k], s)
						}
						next[k] = s.to
						end := min(s.to, int(q.pos)/device.PageTokens+1)
						for i := s.from; i < end; i++ {
							if s.pages[i] != seq.Pages[i] {
								t.Fatalf("row %v goes through page %d, its sequence has %d", k, s.pages[i], seq.Pages[i])
							}
						}
						if phase == 0 {
							shared++
							if int(s.to)*device.PageTokens > seq.Past {
								t.Fatalf("row %v shares %d pages, %d tokens are behind it", k, s.to, seq.Past)
							}
						} else if int(q.pos)/device.PageTokens >= s.to {
							t.Fatalf("row %v ends before its own page", k)
						}
						if s.keep || s.resume {
							if had, ok := carry[q.carry]; ok && had != k {
								t.Fatalf("rows %v and %v wait in one place", had, k)
							}
							carry[q.carry] = k
						}
						if int(q.pos) < s.oldest || int(q.pos) > s.newest || b.Logits[q.out] != q.token {
							t.Fatalf("row %+v in strip %+v", q, s)
						}
					}
				}
			}
			if len(next) != len(b.Logits)*3 {
				t.Fatalf("%d rows for %d tokens", len(next), len(b.Logits))
			}
		}
		if shared == 0 {
			t.Error("no batch shared anything")
		}
	}
}

func seqAt(b *device.Batch, token int) int {
	for i := range b.Seqs {
		if token < b.Seqs[i].Start+b.Seqs[i].Len {
			return i
		}
	}
	return -1
}
