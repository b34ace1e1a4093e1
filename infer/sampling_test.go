package infer

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/batchmill/batchmill/internal/row"
)

type samplingGolden struct {
	Logits       string
	Params       map[string]float64
	PromptIDs    []int32 `json:"prompt_ids"`
	GeneratedIDs []int32 `json:"generated_ids"`
	Note         string
	Kept         []int32
	Probs        []float64
	TieAtBorder  bool `json:"tie_at_border"`
}

func paramsOf(t *testing.T, m map[string]float64) Params {
	p := DefaultParams()
	p.Temperature = 1
	for name, v := range m {
		switch name {
		case "temperature":
			p.Temperature = v
		case "top_k":
			p.TopK = int(v)
		case "top_p":
			p.TopP = v
		case "min_p":
			p.MinP = v
		case "repetition_penalty":
			p.RepetitionPenalty = v
		case "presence_penalty":
			p.PresencePenalty = v
		case "frequency_penalty":
			p.FrequencyPenalty = v
		default:
			t.Fatalf("a parameter that the test does not know: %s", name)
		}
	}
	return p
}

// probabilities runs the steps of sample up to the draw and gives the whole distribution.
func probabilities(s *sampler, logits []float32, p *Params, hist *history) []float64 {
	if hist != nil {
		s.undo = hist.penalise(logits, p, s.undo[:0])
		defer restore(logits, s.undo)
	}
	best := argmax(logits)
	probs := make([]float64, len(logits))
	if p.Temperature == 0 {
		probs[best] = 1
		return probs
	}
	d := s.distribution(logits, logits[best], p)
	z := sum4(d.weights)
	for i, w := range d.weights {
		id := i
		if d.ids != nil {
			id = int(d.ids[i])
		}
		probs[id] = w / z
	}
	return probs
}

func TestSamplingGoldens(t *testing.T) {
	var golden struct {
		Logits map[string][]*float64
		Cases  []samplingGolden
	}
	data, err := os.ReadFile("testdata/sampling.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) < 30 {
		t.Fatalf("only %d cases", len(golden.Cases))
	}
	var s sampler
	for i, c := range golden.Cases {
		t.Run(fmt.Sprintf("%d_%s", i, c.Note), func(t *testing.T) {
			var logits []float32
			for _, l := range golden.Logits[c.Logits] {
				if l == nil {
					logits = append(logits, float32(math.Inf(-1)))
				} else {
					logits = append(logits, float32(*l))
				}
			}
			before := slices.Clone(logits)
			p := paramsOf(t, c.Params)
			if err := p.check(); err != nil && p.RepetitionPenalty != 10 {
				t.Errorf("refused: %v", err)
			}
			var hist *history
			if p.penalises() {
				hist = newHistory(c.PromptIDs)
				for _, id := range c.GeneratedIDs {
					hist.add(id)
				}
			}
			got := probabilities(&s, logits, &p, hist)
			if !slices.Equal(logits, before) {
				t.Error("the logits were left changed")
			}
			want := c.Probs
			if c.TieAtBorder { // another choice among equals is as good
				got, want = slices.Clone(got), slices.Clone(want)
				sort.Float64s(got)
				sort.Float64s(want)
			}
			for id := range want {
				if math.Abs(got[id]-want[id]) > 1e-6 {
					t.Errorf("probability of %d is %.8f, want %.8f", id, got[id], want[id])
				}
			}
			if !c.TieAtBorder {
				for id := range want {
					if kept := slices.Contains(c.Kept, int32(id)); want[id] > 1e-9 && kept != (got[id] > 0) {
						t.Errorf("token %d kept: %v, want %v", id, !kept, kept)
					}
				}
			}
		})
	}
}

// plainDistribution is the textbook version: sort everything, filter by filter.
func plainDistribution(logits []float32, p *Params) []float64 {
	n := len(logits)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return logits[order[a]] > logits[order[b]] })
	probs := make([]float64, n)
	for i, l := range logits {
		probs[i] = math.Exp((float64(l) - float64(logits[order[0]])) / p.Temperature)
	}
	keep := order
	if p.TopK > 0 && p.TopK < n {
		k := p.TopK
		for k < n && logits[order[k]] == logits[order[p.TopK-1]] {
			k++
		}
		keep = order[:k]
	}
	sum := 0.0
	for _, id := range keep {
		sum += probs[id]
	}
	if p.TopP < 1 {
		cum, end := 0.0, 0
		for end < len(keep) && (end == 0 || cum < p.TopP*sum) {
			cum += probs[keep[end]]
			end++
		}
		keep = keep[:end]
	}
	out := make([]float64, n)
	sum = 0
	for _, id := range keep {
		if probs[id] >= p.MinP*probs[order[0]] {
			out[id] = probs[id]
			sum += probs[id]
		}
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func TestDistributionAgainstSorting(t *testing.T) {
	var s sampler
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n := rapid.IntRange(1, 3000).Draw(t, "vocabulary")
		scale := rapid.SampledFrom([]float64{0.001, 1, 8, 60}).Draw(t, "scale")
		step := rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "grid") // a grid makes many ties
		logits := make([]float32, n)
		for i := range logits {
			x := r.NormFloat64() * scale
			if step > 0 {
				x = math.Round(x/step) * step
			}
			logits[i] = float32(x)
		}
		p := DefaultParams()
		p.Temperature = rapid.SampledFrom([]float64{0.1, 0.7, 1, 3}).Draw(t, "temperature")
		p.TopK = rapid.SampledFrom([]int{0, 1, 2, 50, n - 1, n, n + 1}).Draw(t, "k")
		p.TopP = rapid.SampledFrom([]float64{1, 0.9999, 0.9, 0.5, 1e-9}).Draw(t, "p")
		p.MinP = rapid.SampledFrom([]float64{0, 0.01, 0.3, 1}).Draw(t, "min")
		got := probabilities(&s, logits, &p, nil)
		want := plainDistribution(logits, &p)
		for id := range want {
			if math.Abs(got[id]-want[id]) > 1e-9 {
				t.Fatalf("token %d (logit %v): %.12f, want %.12f", id, logits[id], got[id], want[id])
			}
		}
	})
}

func TestNonFiniteLogitsFailTheRow(t *testing.T) {
	var s sampler
	inf := float32(math.Inf(1))
	for _, bad := range []float32{float32(math.NaN()), inf, -inf} {
		for at := range 3 {
			logits := []float32{1, 2, 3}
			logits[at] = bad
			for _, temperature := range []float64{0, 1} {
				p := DefaultParams()
				p.Temperature = temperature
				c, err := s.sample(logits, &p, nil, nil, 1, 0)
				if err == nil || err.Code != row.NonFiniteLogits {
					t.Errorf("%v at %d: token %d, error %v", bad, at, c.id, err)
				}
			}
		}
	}
}

func TestGreedyTakesTheLowestIDAmongEquals(t *testing.T) {
	var s sampler
	p := DefaultParams()
	zero := float32(0)
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1, 3, 3, 2}, 1}, {[]float32{-5, -5}, 0}, {[]float32{zero, -zero}, 0}, {[]float32{-zero, zero}, 0}, {[]float32{2}, 0},
	} {
		if got, err := s.sample(c.logits, &p, nil, nil, 1, 0); err != nil || got.id != c.want {
			t.Errorf("%v: %d, %v; want %d", c.logits, got.id, err, c.want)
		}
	}
}

func TestDrawsFollowTheDistribution(t *testing.T) {
	var s sampler
	p := DefaultParams()
	p.Temperature = 1
	logits := []float32{0, 1, 2, -1, 0.5}
	want := plainDistribution(logits, &p)
	var count [5]float64
	const n = 50_000
	for pos := range n {
		c, err := s.sample(logits, &p, nil, nil, 11, pos)
		if err != nil {
			t.Fatal(err)
		}
		count[c.id]++
	}
	for id, c := range count {
		if math.Abs(c/n-want[id]) > 0.01 {
			t.Errorf("token %d was drawn in %.4f of all cases, want %.4f", id, c/n, want[id])
		}
	}
}

func TestDrawStaysInsideTheCandidates(t *testing.T) {
	for _, u := range []float64{0, 0.5, 1 - 0x1p-53} {
		d := dist{ids: []int32{3, 5, 8}, weights: []float64{0, 1, 0}}
		if got := d.draw(u); got != 5 {
			t.Errorf("u=%v drew %d, whose weight is 0", u, got)
		}
	}
}

func TestLogprobs(t *testing.T) {
	var s sampler
	p := DefaultParams()
	p.Logprobs = 3
	p.RepetitionPenalty = 100 // logprobs are of the raw logits
	hist := newHistory([]int32{1})
	logits := []float32{1, 4, 3, 3, -2}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	c, err := s.sample(logits, &p, hist, nil, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 - math.Log(sum); c.id != 2 || math.Abs(c.logprob-want) > 1e-14 {
		t.Errorf("token %d with %v, want token 2 with %v", c.id, c.logprob, want)
	}
	want := []int32{1, 2, 3}
	for i, o := range c.top {
		if o.id != want[i] || math.Abs(o.logprob-(float64(logits[o.id])-math.Log(sum))) > 1e-14 {
			t.Errorf("rank %d is token %d with %v", i, o.id, o.logprob)
		}
	}
	if len(c.top) != 3 {
		t.Errorf("%d top tokens, want 3", len(c.top))
	}
}

func TestTopLogprobsAgainstSorting(t *testing.T) {
	var s sampler
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		logits := make([]float32, 1+r.IntN(200))
		order := make([]int32, len(logits))
		for i := range logits {
			logits[i] = float32(r.IntN(40))
			order[i] = int32(i)
		}
		sort.SliceStable(order, func(a, b int) bool { return logits[order[a]] > logits[order[b]] })
		k := r.IntN(MaxTopLogprobs + 1)
		top := s.topLogprobs(logits, k, 0)
		if len(top) != min(k, len(logits)) {
			t.Fatalf("%d of %d", len(top), k)
		}
		for i, o := range top {
			if o.id != order[i] {
				t.Fatalf("rank %d is %d, want %d", i, o.id, order[i])
			}
		}
	}
}

type evenOnly struct{ none bool }

func (m evenOnly) Allowed(bits []uint64) {
	if !m.none {
		for i := range bits {
			bits[i] = 0x5555555555555555
		}
	}
}
func (evenOnly) Accept(int32) error { return nil }

func TestMask(t *testing.T) {
	var s sampler
	logits := make([]float32, 131)
	for i := range logits {
		logits[i] = float32(i % 100)
	}
	logits[129] = 500
	p := DefaultParams()
	c, err := s.sample(logits, &p, nil, evenOnly{}, 1, 0)
	if err != nil || c.id != 98 {
		t.Errorf("greedy under a mask: %d, %v; want 98", c.id, err)
	}
	p.Temperature = 50
	for pos := range 200 {
		if c, err := s.sample(logits, &p, nil, evenOnly{}, 1, pos); err != nil || c.id%2 != 0 {
			t.Fatalf("drew %d (%v), which the mask forbids", c.id, err)
		}
	}
	if _, err := s.sample(logits, &p, nil, evenOnly{none: true}, 1, 0); err == nil || err.Code != row.IncompleteOutput {
		t.Errorf("a mask that allows nothing: %v", err)
	}
}
