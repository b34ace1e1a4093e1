package model

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/gguf"
)

// modelEnv names the environment variable with the path of SmolLM2-135M-Instruct.Q4_1.gguf. `make test` fetches the file
// and sets it.
const modelEnv = "BATCHMILL_TEST_MODEL"

// smollm2 opens the one real model of the tests, or skips.
func smollm2(t testing.TB) Source {
	t.Helper()
	path := os.Getenv(modelEnv)
	if path == "" {
		t.Skipf("%s is not set: it names SmolLM2-135M-Instruct.Q4_1.gguf, which make test fetches", modelEnv)
	}
	f, err := gguf.OpenPath(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return Source{Weights: f, Metadata: f}
}

func TestSmolLM2Perplexity(t *testing.T) {
	m := load(t, smollm2(t), newDevice(t, cpu.Config{}), Options{})
	var g struct {
		IDs        []int32   `json:"ids"`
		NLL        []float64 `json:"token_nll"`
		Perplexity float64   `json:"perplexity"`
		First      float64   `json:"first512_perplexity"`
	}
	readJSON(t, filepath.Join("testdata", "smollm2", "perplexity.json"), &g)
	if len(g.NLL) != len(g.IDs)-1 || len(g.IDs) < 1000 {
		t.Fatalf("the golden has %d tokens and %d log-probabilities", len(g.IDs), len(g.NLL))
	}
	s := newSequence(t, m, len(g.IDs))
	const chunk = 500
	sum, first, worst := 0.0, 0.0, 0.0
	for from := 0; from < len(g.IDs); from += chunk {
		for i, row := range s.step(g.IDs[from:min(from+chunk, len(g.IDs))], true) {
			i += from
			if i == len(g.NLL) {
				break
			}
			nll := logSumExp(row) - float64(row[g.IDs[i+1]])
			sum += nll
			if i < 511 {
				first += nll
			}
			worst = max(worst, math.Abs(nll-g.NLL[i]))
		}
	}
	perplexity, first512 := math.Exp(sum/float64(len(g.NLL))), math.Exp(first/511)
	t.Logf("perplexity %.5f (first 512: %.5f), largest difference of one token %.2g", perplexity, first512, worst)
	if math.Abs(perplexity-g.Perplexity) > 0.01 || math.Abs(perplexity-17.458) > 0.01 {
		t.Errorf("perplexity is %.5f, want %.5f", perplexity, g.Perplexity)
	}
	if math.Abs(first512-g.First) > 0.01 {
		t.Errorf("perplexity of the first 512 tokens is %.5f, want %.5f", first512, g.First)
	}
	// Values are given to 4 digits behind the point; float32 noise of one token is some 1e-4.
	if worst > 0.005 {
		t.Errorf("the log-probability of one token is off by %g", worst)
	}
}

func TestSmolLM2Greedy(t *testing.T) {
	m := load(t, smollm2(t), newDevice(t, cpu.Config{}), Options{})
	type generation struct {
		IDs       []int32   `json:"prompt_ids"`
		TopIDs    []int32   `json:"last_top10_ids"`
		TopLogits []float64 `json:"last_top10_logits"`
		LogSumExp float64   `json:"last_logsumexp"`
		Greedy    struct {
			IDs       []int32 `json:"ids"`
			Ambiguous []int   `json:"ambiguous_steps"`
		} `json:"greedy"`
	}
	var g struct{ Chats, Raw []generation }
	readJSON(t, filepath.Join("testdata", "smollm2", "generation.json"), &g)
	if len(g.Chats) == 0 || len(g.Raw) == 0 {
		t.Fatal("the golden holds nothing")
	}
	for _, c := range append(g.Chats, g.Raw...) {
		s := newSequence(t, m, len(c.IDs)+len(c.Greedy.IDs))
		row := s.step(c.IDs, false)[0]
		checkLast(t, row, c.TopIDs, c.TopLogits, c.LogSumExp, 1e-3)
		checkGreedy(t, s, row, c.Greedy.IDs, c.Greedy.Ambiguous)
	}
}

func TestSmolLM2Config(t *testing.T) {
	c := load(t, smollm2(t), newDevice(t, cpu.Config{}), Options{}).Config()
	if c.Architecture != "llama" || c.VocabSize != 49152 || c.MaxPositions != 8192 || c.Layers != 30 || c.BOS != 1 || len(c.EOS) != 1 || c.EOS[0] != 2 {
		t.Errorf("the description is %+v", c)
	}
}

// TestSmolLM2ISAs: the instruction sets agree to the bit on real weights; the portable one, which is slow, on two tokens.
func TestSmolLM2ISAs(t *testing.T) {
	src := smollm2(t)
	ids := []int32{504, 2365, 6354, 16438, 351, 253, 2365, 6354, 7012, 30, 198, 198, 504, 2798, 6330, 314, 253, 8170, 1183, 282}
	var want [][]float32
	for _, isa := range cpu.ISAs() {
		m := load(t, src, newDevice(t, cpu.Config{ISA: isa}), Options{})
		n := len(ids)
		if isa == "portable" {
			n = 2
		}
		got := alone(t, m, ids[:n])
		if want == nil {
			want = got
		}
		for i := range got {
			sameBits(t, isa, got[i], want[i])
		}
	}
}
