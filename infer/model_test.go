package infer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/infer/model"
	"github.com/batchmill/batchmill/infer/safetensors"
	"github.com/batchmill/batchmill/infer/tokenizer"
)

// tinyModels are reference models of random weights in the model package's test data. One tokenizer serves them all.
var tinyModels = []string{"llama", "llama_rope_llama3", "llama_bias_linear", "mistral", "qwen2", "qwen2_yarn", "qwen3"}

func loadTiny(t testing.TB, name string, threads int) (Config, *tokenizer.Tokenizer) {
	t.Helper()
	return loadTinyOn(t, name, cpu.Config{Threads: threads})
}

func loadTinyOn(t testing.TB, name string, on cpu.Config) (Config, *tokenizer.Tokenizer) {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	dir := filepath.Join("model", "testdata", name)
	path := filepath.Join(dir, "model.safetensors")
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(dir, "model.safetensors.index.json")
	}
	weights, err := safetensors.OpenPath(t.Context(), path)
	fail(err)
	t.Cleanup(func() { weights.Close() })
	src := model.Source{Weights: weights}
	src.ConfigJSON, err = os.ReadFile(filepath.Join(dir, "config.json"))
	fail(err)
	src.GenerationConfigJSON, err = os.ReadFile(filepath.Join(dir, "generation_config.json"))
	fail(err)
	dev, err := cpu.New(on)
	fail(err)
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(t.Context(), src, dev, model.Options{})
	fail(err)
	t.Cleanup(func() { m.Close() })
	data, err := os.ReadFile("testdata/tokenizer.json")
	fail(err)
	tok, err := tokenizer.FromJSON(data)
	fail(err)
	return Config{Model: FromModel(m), Tokenizer: FromTokenizer(tok), EOS: m.Config().EOS, KVMemory: 64 << 20, Threads: on.Threads}, tok
}

type tinyGolden struct {
	IDs    []int32 `json:"prompt_ids"`
	Text   string
	Greedy struct {
		IDs       []int32
		Ambiguous []int `json:"ambiguous_steps"`
		FirstEOS  *int  `json:"first_eos"`
	}
	GreedyText string `json:"greedy_text"`
}

func readTinyGoldens(t testing.TB, name string) (prompts, texts []tinyGolden) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("model", "testdata", name, "goldens.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct{ Prompts, Text []tinyGolden }
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Prompts) < 6 || len(g.Text) == 0 {
		t.Fatalf("%s: %d prompts and %d texts", name, len(g.Prompts), len(g.Text))
	}
	return g.Prompts, g.Text
}

// TestReferenceContinuations runs the reference prompts of every tiny model through the whole engine at once.
func TestReferenceContinuations(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			cfg, tok := loadTiny(t, name, 2)
			cfg.BatchTokens = 100 // so that prompts are cut
			e, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			prompts, texts := readTinyGoldens(t, name)
			all := append(slices.Clone(prompts), texts...)
			var requests []*Request
			for i, g := range all {
				ids := g.IDs
				if g.Text != "" {
					if ids, err = tok.Encode(g.Text, tokenizer.EncodeOptions{AddSpecial: true}); err != nil || !slices.Equal(ids, g.IDs) {
						t.Fatalf("%q became %v (%v), want %v", g.Text, ids, err, g.IDs)
					}
				}
				p := DefaultParams()
				p.MaxTokens, p.IgnoreEOS = len(g.Greedy.IDs), true
				requests = append(requests, &Request{ID: int64(i), Tokens: ids, Params: p})
				p.IgnoreEOS = false
				requests = append(requests, &Request{ID: int64(1000 + i), Tokens: ids, Params: p})
			}
			got := runAll(t, e, requests, 0)
			for i, g := range all {
				sure := len(g.Greedy.IDs)
				if len(g.Greedy.Ambiguous) > 0 {
					sure = g.Greedy.Ambiguous[0] // from there on another answer is no mistake
				}
				c := got[int64(i)]
				if !slices.Equal(c.TokenIDs[:sure], g.Greedy.IDs[:sure]) {
					t.Errorf("prompt %d: %v, want %v (sure: %d)", i, c.TokenIDs, g.Greedy.IDs, sure)
				}
				if g.Text != "" && sure == len(g.Greedy.IDs) && c.Text != g.GreedyText {
					t.Errorf("%q became %q, want %q", g.Text, c.Text, g.GreedyText)
				}
				stopped := got[int64(1000+i)]
				if end := g.Greedy.FirstEOS; end != nil && *end < sure {
					if stopped.CompletionTokens != *end || !stopped.HasStop {
						t.Errorf("prompt %d ended with %s after %d tokens, want an end token after %d", i, stopped.FinishReason, stopped.CompletionTokens, *end)
					}
				}
			}
		})
	}
}

// tinyRequests are rows as unlike each other as they come: 1 to 200 prompt tokens, 1 to 60 completion tokens, every way
// of sampling, stop strings and log-probabilities.
func tinyRequests(n, vocab int) []*Request {
	r := rand.New(rand.NewPCG(2024, 7))
	var list []*Request
	for i := range n {
		length := 1 + r.IntN(60)
		if i%5 == 0 {
			length = 100 + r.IntN(100)
		}
		q := &Request{ID: int64(i), Seed: r.Int64(), Params: DefaultParams()}
		for range length {
			q.Tokens = append(q.Tokens, int32(r.IntN(vocab)))
		}
		p := &q.Params
		p.MaxTokens = 1 + r.IntN(60)
		p.IgnoreEOS = i%2 == 0
		switch i % 4 {
		case 1:
			p.Temperature = 1
		case 2:
			p.Temperature, p.TopP, p.TopK = 0.8, 0.95, 40
		case 3:
			p.RepetitionPenalty, p.PresencePenalty = 1.2, 0.3
		}
		if i%6 == 1 {
			p.Stop = []string{"th", "e", "\ufffd\ufffd\ufffd"}
		}
		if i%7 == 0 {
			p.Logprobs = 3
		}
		list = append(list, q)
	}
	return list
}

// wholeGrid names the models that go through all settings, one per kind of attention; the others take the most telling
// ones, to keep the test short.
var wholeGrid = map[string]bool{"llama": true, "mistral": true, "qwen3": true}

// TestBatchInvariance: a row's completion is the same to the byte, token ids and log-probabilities included, whatever
// the number of rows in flight, their order, the threads, the step's budget, and whether rows are preempted.
func TestBatchInvariance(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			var want map[int64]Completion
			preemptions := int64(0)
			for _, threads := range []int{1, 2} {
				base, _ := loadTiny(t, name, threads)
				limits := base.Model.Limits()
				requests := tinyRequests(40, limits.VocabSize)
				longest := 0
				for _, q := range requests {
					longest = max(longest, kv.PagesFor(len(q.Tokens)+q.Params.MaxTokens))
				}
				for _, batch := range []int{1, 7, 40} {
					for _, budget := range []int{64, 4096} {
						for _, tight := range []bool{false, true} {
							if tight && batch == 1 {
								continue // a row alone is never preempted
							}
							if want != nil && !wholeGrid[name] && (threads == 1 || budget > 64) {
								continue
							}
							cfg := base
							cfg.MaxSeqs, cfg.BatchTokens = batch, budget
							if tight {
								cfg.KVMemory = int64(longest) * limits.KVBytesPerPage
							}
							e, err := New(cfg)
							if err != nil {
								t.Fatal(err)
							}
							if tight {
								e.firstShare = 0
							}
							if want != nil {
								r := rand.New(rand.NewPCG(uint64(batch), uint64(budget)))
								r.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
							}
							got := runAll(t, e, requests, 0)
							st := e.Stats()
							if err := e.Close(); err != nil {
								t.Error(err)
							}
							preemptions += st.Preemptions
							if want == nil {
								want = got
								continue
							}
							setting := fmt.Sprintf("%d threads, batch %d, budget %d, tight %v", threads, batch, budget, tight)
							for id := range want {
								if err := errors.Join(same(got[id], want[id]), wellFormed(got[id])); err != nil {
									t.Errorf("%s: %v", setting, err)
								}
							}
							if st.KVPeak > st.KVPages || st.Failed != 0 {
								t.Errorf("%s: %+v", setting, st)
							}
						}
					}
				}
			}
			if preemptions < 10 {
				t.Errorf("only %d preemptions: the test covers too little", preemptions)
			}
			distinct := map[string]bool{}
			for _, c := range want {
				distinct[c.Text] = true
			}
			if len(distinct) < 20 {
				t.Errorf("only %d different texts of 40 rows", len(distinct))
			}
		})
	}
}
