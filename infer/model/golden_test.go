package model

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/safetensors"
)

// goldens is a reference file: a model of random weights, computed in float32 by transformers without a KV cache.
type goldens struct {
	Noise   float64 `json:"float32_vs_float64_max_abs_logit_diff"`
	Prompts []struct {
		IDs         []int32   `json:"prompt_ids"`
		TopIDs      []int32   `json:"last_top10_ids"`
		TopLogits   []float64 `json:"last_top10_logits"`
		Mean        float64   `json:"last_logits_mean"`
		Std         float64   `json:"last_logits_std"`
		LogSumExp   float64   `json:"last_logsumexp"`
		Logprobs    []float64 `json:"prompt_token_logprobs"`
		MeanLogprob *float64  `json:"mean_prompt_logprob"`
		Greedy      struct {
			IDs       []int32 `json:"ids"`
			MinGap    float64 `json:"min_gap"`
			Ambiguous []int   `json:"ambiguous_steps"`
		} `json:"greedy"`
	} `json:"prompts"`
}

// goldenModels are the folders of testdata.
var goldenModels = []string{"llama", "llama_rope_llama3", "llama_bias_linear", "mistral", "qwen2", "qwen2_yarn", "qwen3"}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func newDevice(t testing.TB, c cpu.Config) *cpu.Device {
	t.Helper()
	d, err := cpu.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// folder opens a model folder of testdata.
func folder(t testing.TB, name string) Source {
	t.Helper()
	dir := filepath.Join("testdata", name)
	weights := filepath.Join(dir, "model.safetensors")
	if _, err := os.Stat(weights); err != nil {
		weights = filepath.Join(dir, "model.safetensors.index.json")
	}
	f, err := safetensors.OpenPath(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s := Source{Weights: f}
	for name, dst := range map[string]*[]byte{"config.json": &s.ConfigJSON, "generation_config.json": &s.GenerationConfigJSON} {
		if *dst, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func load(t testing.TB, src Source, dev device.Device, o Options) *Model {
	t.Helper()
	m, err := Load(t.Context(), src, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// sequence feeds one sequence through a model, in steps.
type sequence struct {
	t     testing.TB
	m     *Model
	cache *Cache
	pages []int32
	past  int
}

func newSequence(t testing.TB, m *Model, tokens int) *sequence {
	t.Helper()
	n := device.PagesFor(tokens)
	c, err := m.NewCache(n + 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s := &sequence{t: t, m: m, cache: c}
	for i := range n { // in an order of their own, so that a mix-up of page numbers shows
		s.pages = append(s.pages, int32((i*7+3)%(n+2)))
	}
	slices.Sort(s.pages)
	s.pages = slices.Compact(s.pages)
	for p := int32(0); len(s.pages) < n; p++ {
		if !slices.Contains(s.pages, p) {
			s.pages = append(s.pages, p)
		}
	}
	slices.Reverse(s.pages)
	return s
}

// step computes tokens and gives the logits of all of them, or of the last one.
func (s *sequence) step(ids []int32, all bool) [][]float32 {
	s.t.Helper()
	b := &device.Batch{Tokens: ids, Seqs: []device.Seq{{Len: len(ids), Past: s.past, Pages: s.pages}}}
	var logits [][]float32
	for i := range ids {
		b.Positions = append(b.Positions, int32(s.past+i))
		if all || i == len(ids)-1 {
			b.Logits = append(b.Logits, int32(i))
			logits = append(logits, make([]float32, s.m.Config().VocabSize))
		}
	}
	if err := s.m.Forward(context.Background(), s.cache, b, logits); err != nil {
		s.t.Fatal(err)
	}
	s.past += len(ids)
	return logits
}

func argmax(row []float32) int32 {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return int32(best)
}

func logSumExp(row []float32) float64 {
	peak := float64(slices.Max(row))
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(float64(v) - peak)
	}
	return peak + math.Log(sum)
}

func meanStd(row []float32) (mean, std float64) {
	for _, v := range row {
		mean += float64(v) / float64(len(row))
	}
	for _, v := range row {
		std += (float64(v) - mean) * (float64(v) - mean) / float64(len(row))
	}
	return mean, math.Sqrt(std)
}

// checkLast compares the logits after a prompt with a reference.
func checkLast(t *testing.T, row []float32, ids []int32, logits []float64, lse, tolerance float64) {
	t.Helper()
	for i, id := range ids {
		if d := math.Abs(float64(row[id]) - logits[i]); !(d <= tolerance) {
			t.Errorf("logit of token %d is %g, want %g (difference %.2g, tolerance %.2g)", id, row[id], logits[i], d, tolerance)
		}
	}
	if got := logSumExp(row); !(math.Abs(got-lse) <= tolerance) {
		t.Errorf("logsumexp is %g, want %g", got, lse)
	}
}

// checkGreedy runs on from logits and compares tokens up to the first step at which two answers are right.
func checkGreedy(t *testing.T, s *sequence, row []float32, want []int32, ambiguous []int) {
	t.Helper()
	for i, id := range want {
		if slices.Contains(ambiguous, i) {
			return
		}
		if got := argmax(row); got != id {
			t.Errorf("greedy step %d gives token %d, want %d", i, got, id)
			return
		}
		row = s.step([]int32{id}, false)[0]
	}
}

func TestGoldens(t *testing.T) {
	for _, name := range goldenModels {
		t.Run(name, func(t *testing.T) {
			var g goldens
			readJSON(t, filepath.Join("testdata", name, "goldens.json"), &g)
			if len(g.Prompts) < 6 || g.Noise <= 0 {
				t.Fatalf("the golden has %d prompts and noise %g", len(g.Prompts), g.Noise)
			}
			tolerance := min(20*g.Noise, 1e-3)
			m := load(t, folder(t, name), newDevice(t, cpu.Config{}), Options{})
			for _, p := range g.Prompts {
				s := newSequence(t, m, len(p.IDs)+len(p.Greedy.IDs))
				rows := s.step(p.IDs, true)
				last := rows[len(rows)-1]
				checkLast(t, last, p.TopIDs, p.TopLogits, p.LogSumExp, tolerance)
				if mean, std := meanStd(last); math.Abs(mean-p.Mean) > tolerance || math.Abs(std-p.Std) > tolerance {
					t.Errorf("logits have mean %g and deviation %g, want %g and %g", mean, std, p.Mean, p.Std)
				}
				if len(p.Logprobs) != len(p.IDs)-1 {
					t.Fatalf("%d log-probabilities for %d tokens", len(p.Logprobs), len(p.IDs))
				}
				sum := 0.0
				for i, want := range p.Logprobs {
					got := float64(rows[i][p.IDs[i+1]]) - logSumExp(rows[i])
					sum += got
					if !(math.Abs(got-want) <= tolerance+1e-5) { // written with five digits behind the point
						t.Errorf("log-probability of token %d is %g, want %g", i+1, got, want)
					}
				}
				if p.MeanLogprob != nil && !(math.Abs(sum/float64(len(p.Logprobs))-*p.MeanLogprob) <= tolerance) {
					t.Errorf("mean log-probability is %g, want %g", sum/float64(len(p.Logprobs)), *p.MeanLogprob)
				}
				checkGreedy(t, s, last, p.Greedy.IDs, p.Greedy.Ambiguous)
			}
		})
	}
}
