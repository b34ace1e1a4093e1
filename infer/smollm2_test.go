package infer

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/gguf"
	"github.com/batchmill/batchmill/infer/model"
	"github.com/batchmill/batchmill/infer/tokenizer"
	"github.com/batchmill/batchmill/internal/row"
)

// modelEnv names the environment variable with the path of SmolLM2-135M-Instruct.Q4_1.gguf, which `make test` sets.
const modelEnv = "BATCHMILL_TEST_MODEL"

func loadSmolLM2(t testing.TB, threads int) (Config, *tokenizer.Tokenizer) {
	t.Helper()
	return loadSmolLM2On(t, cpu.Config{Threads: threads})
}

func loadSmolLM2On(t testing.TB, on cpu.Config) (Config, *tokenizer.Tokenizer) {
	t.Helper()
	path := os.Getenv(modelEnv)
	if path == "" {
		t.Skipf("%s is not set: it names SmolLM2-135M-Instruct.Q4_1.gguf, which make test fetches", modelEnv)
	}
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	f, err := gguf.OpenPath(t.Context(), path)
	fail(err)
	t.Cleanup(func() { f.Close() })
	dev, err := cpu.New(on)
	fail(err)
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(t.Context(), model.Source{Weights: f, Metadata: f}, dev, model.Options{})
	fail(err)
	t.Cleanup(func() { m.Close() })
	tok, err := tokenizer.FromGGUF(f)
	fail(err)
	return Config{Model: FromModel(m), Tokenizer: FromTokenizer(tok), EOS: m.Config().EOS, KVMemory: 512 << 20, Threads: on.Threads}, tok
}

func TestSmolLM2Continuations(t *testing.T) {
	cfg, tok := loadSmolLM2(t, 0)
	data, err := os.ReadFile(filepath.Join("model", "testdata", "smollm2", "generation.json"))
	if err != nil {
		t.Fatal(err)
	}
	type item struct {
		IDs    []int32 `json:"prompt_ids"`
		Greedy struct {
			IDs       []int32
			Ambiguous []int `json:"ambiguous_steps"`
			Stopped   bool  `json:"stopped_at_eos"`
		}
	}
	var g struct{ Chats, Raw []item }
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	all := append(g.Chats, g.Raw...)
	if len(all) < 11 {
		t.Fatalf("only %d references", len(all))
	}
	var requests []*Request
	for i, it := range all {
		p := DefaultParams()
		p.MaxTokens = len(it.Greedy.IDs)
		requests = append(requests, &Request{ID: int64(i), Tokens: it.IDs, Params: p})
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	got := runAll(t, e, requests, 0)
	for i, it := range all {
		c, want := got[int64(i)], it.Greedy.IDs
		if len(it.Greedy.Ambiguous) > 0 { // from there on another answer is no mistake
			sure := it.Greedy.Ambiguous[0]
			if !slices.Equal(c.TokenIDs[:min(sure, len(c.TokenIDs))], want[:sure]) {
				t.Errorf("text %d: %v, want %v", i, c.TokenIDs, want[:sure])
			}
			continue
		}
		if it.Greedy.Stopped {
			want = want[:len(want)-1] // the end token is no part of the completion
		}
		if !slices.Equal(c.TokenIDs, want) || c.Text != tok.Decode(want, true) || (c.FinishReason == row.FinishStop) != it.Greedy.Stopped {
			t.Errorf("text %d: %v %q (%s), want %v", i, c.TokenIDs, c.Text, c.FinishReason, want)
		}
		if it.Greedy.Stopped && c.StopReason != "<|im_end|>" {
			t.Errorf("text %d was ended by %q", i, c.StopReason)
		}
	}
}

// BenchmarkEngine measures prefill of prompts and decode of many rows on a real model. share-outside is the part of the
// engine's time that is not the forward pass.
func BenchmarkEngine(b *testing.B) {
	for _, c := range []struct{ rows, prompt, tokens int }{{4, 512, 1}, {16, 16, 64}, {64, 16, 32}, {1, 16, 64}} {
		for _, temperature := range []float64{0, 0.8} {
			if temperature > 0 && c.tokens == 1 {
				continue
			}
			b.Run(fmt.Sprintf("rows=%d/prompt=%d/tokens=%d/temperature=%v", c.rows, c.prompt, c.tokens, temperature), func(b *testing.B) {
				cfg, _ := loadSmolLM2(b, 0)
				timed := &timedModel{Forwarder: cfg.Model}
				cfg.Model = timed
				var prefill, decode StepStats
				cfg.Events.OnStep = func(s StepStats) {
					sum := &decode
					if s.Prefill > 0 {
						sum = &prefill
					}
					sum.Prefill, sum.Decode, sum.Duration = sum.Prefill+s.Prefill, sum.Decode+s.Decode, sum.Duration+s.Duration
				}
				e, err := New(cfg)
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				for b.Loop() {
					var requests []*Request
					for i := range c.rows {
						q := &Request{ID: int64(i), Params: DefaultParams(), Seed: int64(i)}
						q.Params.MaxTokens, q.Params.IgnoreEOS, q.Params.Temperature = c.tokens, true, temperature
						for j := range c.prompt {
							q.Tokens = append(q.Tokens, int32((i*7919+j*104729)%40000+100))
						}
						requests = append(requests, q)
					}
					runAll(b, e, requests, 0)
				}
				if prefill.Prefill > 0 {
					b.ReportMetric(float64(prefill.Prefill)/prefill.Duration.Seconds(), "prefill-tok/s")
				}
				if decode.Decode > 0 {
					b.ReportMetric(float64(decode.Decode)/decode.Duration.Seconds(), "decode-tok/s")
				}
				total := e.Stats().EngineTime
				b.ReportMetric(1-timed.in.Seconds()/total.Seconds(), "share-outside")
			})
		}
	}
}

// timedModel adds up the time in the forward pass.
type timedModel struct {
	Forwarder
	in time.Duration
}

func (m *timedModel) NewCache(pages int) (Cache, error) {
	c, err := m.Forwarder.NewCache(pages)
	return timedCache{c, m}, err
}

type timedCache struct {
	Cache
	m *timedModel
}

func (c timedCache) Forward(ctx context.Context, b *device.Batch, logits [][]float32) error {
	began := time.Now()
	defer func() { c.m.in += time.Since(began) }()
	return c.Cache.Forward(ctx, b, logits)
}
