package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
)

func TestLogSoftmax(t *testing.T) {
	got := logSoftmax(nil, []float32{0, float32(math.Log(3)), -1e30})
	for i, want := range []float64{math.Log(0.25), math.Log(0.75), -1e30} {
		if math.Abs(got[i]-want) > 1e-6*math.Abs(want) {
			t.Errorf("log-probability %d is %g, want %g", i, got[i], want)
		}
	}
}

func TestTally(t *testing.T) {
	var same, other tally
	p := logSoftmax(nil, []float32{1, 2, 0})
	q := logSoftmax(nil, []float32{2, 1, 0})
	same.add(p, p, 1)
	other.add(p, q, 1)
	if same.kl != 0 || same.agree != 1 || same.nll != -p[1] {
		t.Errorf("a prediction against itself: %+v", same)
	}
	// KL(p||q) = sum p (log p - log q): only the first two differ, by -1 and +1.
	if want := math.Exp(p[1]) - math.Exp(p[0]); math.Abs(other.kl-want) > 1e-12 || other.worst != other.kl || other.agree != 0 || other.nll != -q[1] {
		t.Errorf("two predictions: %+v, want a divergence of %g", other, want)
	}
}

// TestMeasure: the reference has the golden's perplexity and nothing between itself and itself.
func TestMeasure(t *testing.T) {
	file := os.Getenv("BATCHMILL_TEST_MODEL")
	if file == "" {
		t.Skip("BATCHMILL_TEST_MODEL is not set: it names SmolLM2-135M-Instruct.Q4_1.gguf, which make test fetches")
	}
	s, err := readSample(filepath.Join("..", "..", "infer", "model", "testdata", "smollm2", "perplexity.json"))
	if err != nil {
		t.Fatal(err)
	}
	s.IDs = s.IDs[:512] // first512_perplexity of the golden is 16.87721
	rs, err := measure(context.Background(), file, s, []cpu.Activations{cpu.ActivationsF32, cpu.ActivationsInt8}, 2)
	if err != nil {
		t.Fatal(err)
	}
	ref, fast := rs[0], rs[1]
	if math.Abs(ref.Perplexity-16.87721) > 0.01 || ref.Tokens != 511 || ref.MaxKL != 0 || ref.Agreement != 1 || ref.Change != 0 || ref.Windows <= 1 {
		t.Errorf("the reference: %+v", ref)
	}
	if fast.Mode != "int8" || math.Abs(fast.Change) > 0.05 || fast.MeanKL < 0 || fast.Agreement < 0.8 {
		t.Errorf("int8: %+v", fast)
	}
}
