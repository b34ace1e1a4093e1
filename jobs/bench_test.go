package jobs

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/model"
	"github.com/batchmill/batchmill/internal/objstore"
)

// TestBench measures everything on a tiny model, in tiny sizes.
func TestBench(t *testing.T) {
	store := objstore.New(objstore.Options{})
	defer store.Close()
	var parts []string
	r, err := Bench(context.Background(), store, BenchOptions{
		Model: tinyModel, Threads: 2, Repeat: 2, PromptTokens: 64, Prompts: 2, Seqs: []int{1, 3}, DecodeTokens: 12, DecodePast: 5,
		PrefixRows: 6, PrefixTokens: 40, OwnTokens: 9, LongTokens: 128, Size: 0.02, Profiles: []string{"chat", "code"},
	}, func(part string) { parts = append(parts, part) })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ceilings", "prefill", "decode", "prefix", "speculation", "long", "jobs", "job chat", "job code"}; !slices.Equal(parts, want) {
		t.Errorf("parts %q, want %q", parts, want)
	}
	if c := r.Ceilings; c.ReadOne <= 0 || c.ReadAll <= 0 || c.ReadWeights <= 0 || c.BufferBytes <= 0 {
		t.Errorf("ceilings %+v", c)
	}
	if r.Prefill.Rate <= 0 || r.Prefill.Gops <= 0 || r.Long.Rate <= 0 || r.Long.ShortRate <= 0 {
		t.Errorf("prefill %+v, long %+v", r.Prefill, r.Long)
	}
	if len(r.Decode) != 2 {
		t.Fatalf("decode %+v", r.Decode)
	}
	for i, d := range r.Decode {
		if d.Seqs != []int{1, 3}[i] || d.Rate <= 0 || d.Bandwidth <= 0 || d.StepP50 <= 0 || d.StepP99 < d.StepP50 || d.StepMax < d.StepP99 || d.StepsMeasured < 2*12 {
			t.Errorf("decode %+v", d)
		}
		if d.AllocsPerStep <= 0 || d.AllocsPerStep > 1000 { // tokens that come out are kept, so it is not nothing
			t.Errorf("%g allocations a step", d.AllocsPerStep)
		}
	}
	// 5 of the 6 rows take the prefix from the first.
	if p := r.Prefix; !p.Equal || p.Cached != 5*40 || p.Shared <= 0 || p.Apart <= 0 || p.Analytic <= 1 || math.Abs(p.Gain-p.Apart/p.Shared) > 1e-9 {
		t.Errorf("prefix %+v", p)
	}
	if p := r.Speculation; !p.Equal || p.Rate <= 0 || p.Plain <= 0 || p.Accepted > p.Drafted || p.Steps <= 0 {
		t.Errorf("speculation %+v", p)
	}
	if len(r.Jobs) != 2 || r.Jobs[0].Profile != "chat" || r.Jobs[0].Rows != 3 || r.Jobs[0].CompletionTokens != 3*64 || r.Jobs[0].Seconds <= 0 || r.Jobs[0].PromptTokens < 3 {
		t.Errorf("jobs %+v", r.Jobs)
	}
}

func TestBenchRefuses(t *testing.T) {
	store := objstore.New(objstore.Options{})
	defer store.Close()
	for _, o := range []BenchOptions{
		{Model: tinyModel, Parts: []string{"lunch"}},
		{Model: tinyModel, Profiles: []string{"novel"}},
		{Model: tinyModel, DecodeTokens: 3},
		{Model: tinyModel, Seqs: []int{0}},
		{Model: tinyModel, PromptTokens: 512, Parts: []string{"prefill"}}, // the context is 512: no room for a token
	} {
		if _, err := Bench(context.Background(), store, o, nil); KindOf(err) != Usage {
			t.Errorf("%+v: %v, want a usage error", o, err)
		}
	}
}

// TestModelWork: the figures of SmolLM2-135M, counted by hand.
func TestModelWork(t *testing.T) {
	w := workOf(model.Config{Layers: 30, Hidden: 576, Intermediate: 1536, Heads: 9, KVHeads: 3, HeadDim: 64, VocabSize: 49152})
	if w.linear != 2*106168320 || w.head != 2*28311552 || w.attend != 69120 {
		t.Errorf("work %+v", w)
	}
	// The same tokens are the same work, however they are cut; without a prefix nothing is gained.
	if a, b := w.tokens(0, 500), w.tokens(0, 400)+w.tokens(400, 100); math.Abs(a-b) > 1e-6*a {
		t.Errorf("work %g in one piece, %g in two", a, b)
	}
	if a, b := w.shared(1, 400, 100), w.row(500, 1); math.Abs(a-b) > 1e-6*a {
		t.Errorf("work %g of a row that shares with nobody, %g alone", a, b)
	}
	gain := 500 * w.row(500, 1) / w.shared(500, 400, 100)
	if gain < 4 || gain > 5 {
		t.Errorf("gain %g; (p+s)/(p/N+s) is 4.96 without attention and head", gain)
	}
}

func TestStepMeter(t *testing.T) {
	m := stepMeter{rows: 2, from: 1, to: 2, times: make([]time.Duration, 0, 2)}
	for _, s := range []infer.StepStats{
		{Rows: 2, Prefill: 10, Duration: time.Second},
		{Rows: 2, Prefill: 1, Decode: 1, Duration: time.Second}, // a mixed step is prefill's
		{Rows: 2, Decode: 2, Duration: time.Millisecond},
		{Rows: 1, Decode: 1, Duration: time.Hour}, // not full
		{Rows: 2, Decode: 2, Duration: 3 * time.Millisecond},
		{Rows: 2, Decode: 1, Recomputed: 1, Duration: time.Hour},
	} {
		m.step(s)
	}
	if m.prefill != 11 || m.full != 2 || m.tokens != 4 || perSecond(m.tokens, m.fullTime) != 1000 || m.first.Mallocs == 0 || m.last.Mallocs < m.first.Mallocs {
		t.Errorf("meter %+v", m)
	}
	if s := sortedTimes(m.times); quantile(s, 0.5) != 3 || quantile(s, 0) != 1 || quantile(s, 1) != 3 || quantile(nil, 0.5) != 0 {
		t.Errorf("quantiles of %v", s)
	}
}

func TestLastCacheBytes(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]string{"index0": "48K", "index3": "480M\n", "index4": "many"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name, "size"), []byte(size))
	}
	if n := lastCacheBytes(dir); n != 480<<20 {
		t.Errorf("the last cache has %d bytes, want 480 MiB", n)
	}
	if n := lastCacheBytes(filepath.Join(dir, "none")); n != 0 {
		t.Errorf("a system without the folder has a cache of %d bytes", n)
	}
}
