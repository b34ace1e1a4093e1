package infer

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/infer/tokenizer"
)

// checkSpeculation holds rows to the same bytes with drafts of any length, in tight pools and with shared prefixes, as
// one token at a time. Some drafts must have come true, and some not.
func checkSpeculation(t *testing.T, base Config, requests []*Request, rows []int) {
	t.Helper()
	longest := 0
	for _, q := range requests {
		longest = max(longest, kv.PagesFor(len(q.Tokens)+q.Params.MaxTokens))
	}
	run := func(change func(*Config)) (map[int64]Completion, Stats) {
		cfg := base
		change(&cfg)
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		e.firstShare = 0
		return runAll(t, e, requests, 0), e.Stats()
	}
	want, plain := run(func(c *Config) { c.NoSpeculation, c.NoPrefixSharing = true, true })
	var accepted, rejected, preempted int64
	for i, n := range rows {
		for _, seqs := range []int{1, 3, 40} {
			tight := (i+seqs)%2 == 0
			got, st := run(func(c *Config) {
				c.SpeculationRows, c.MaxSeqs, c.NoPrefixSharing = n, seqs, i%2 == 0
				if tight {
					c.KVMemory = int64(longest+1) * base.Model.Limits().KVBytesPerPage
				}
			})
			for id, c := range got {
				if err := errors.Join(same(c, want[id]), wellFormed(c)); err != nil {
					t.Errorf("drafts to %d rows, %d sequences, tight %v: %v", n, seqs, tight, err)
				}
			}
			if st.DecodeTokens != plain.DecodeTokens || st.SampledTokens != plain.SampledTokens || st.Failed != plain.Failed {
				t.Errorf("with drafts %+v\nwithout %+v", st, plain)
			}
			accepted += st.AcceptedTokens
			rejected += st.DraftedTokens - st.AcceptedTokens
			preempted += st.Preemptions
		}
	}
	if accepted == 0 || rejected == 0 || preempted == 0 {
		t.Errorf("%d accepted, %d rejected, %d preemptions: the test covers too little", accepted, rejected, preempted)
	}
}

// TestTinySpeculationChangesNoByte is TestSpeculationChangesNoByte for real arithmetic: the rows of a draft must have
// the bits of rows computed one by one.
func TestTinySpeculationChangesNoByte(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			cfg, _ := loadTiny(t, name, 2)
			requests := tinyRequests(24, cfg.Model.Limits().VocabSize)
			for i, q := range requests {
				q.Tokens = append(q.Tokens, q.Tokens...)
				if i%3 == 0 { // so that the model repeats itself, and drafts come true
					q.Params.Temperature, q.Params.RepetitionPenalty = 0, 0.4
				}
			}
			checkSpeculation(t, cfg, requests, []int{2, 16, 50})
		})
	}
}

// TestTinySpeculationWithCodes is the same with keys and values as 8-bit codes.
func TestTinySpeculationWithCodes(t *testing.T) {
	cfg, _ := loadTinyOn(t, "qwen3", cpu.Config{Threads: 2, Activations: cpu.ActivationsInt8})
	requests := tinyRequests(24, cfg.Model.Limits().VocabSize)
	for i, q := range requests {
		q.Tokens = append(q.Tokens, q.Tokens...)
		if i%3 == 0 {
			q.Params.Temperature, q.Params.RepetitionPenalty = 0, 0.4
		}
	}
	checkSpeculation(t, cfg, requests, []int{3, 16})
}

// quotation is a prompt whose answer repeats it.
const quotation = "<|im_start|>user\nRepeat the following text word by word, without any change:\n\nThe lighthouse keeper, Mr. Abernathy, climbed the one " +
	"hundred and forty-two steps every evening at six. He carried a brass lantern, a flask of tea and the logbook, in which he wrote the direction of " +
	"the wind, the height of the waves and the names of all ships that had passed since noon.<|im_end|>\n<|im_start|>assistant\n"

func quotationRequests(t testing.TB, tok *tokenizer.Tokenizer, n, tokens int) []*Request {
	t.Helper()
	ids, err := tok.Encode(quotation, tokenizer.EncodeOptions{ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	var list []*Request
	for i := range n {
		q := &Request{ID: int64(i), Tokens: slices.Clone(ids), Params: DefaultParams(), Seed: int64(i)}
		q.Params.MaxTokens = tokens
		switch i % 4 {
		case 1:
			q.Params.Temperature = 0.7
		case 2:
			q.Params.Logprobs = 2
		case 3:
			q.Params.RepetitionPenalty, q.Params.Stop = 1.1, []string{"flask", "logbook"}
		}
		list = append(list, q)
	}
	return list
}

// TestSmolLM2SpeculationChangesNoByte runs through a quotation in few steps, to the same bytes.
func TestSmolLM2SpeculationChangesNoByte(t *testing.T) {
	for _, a := range []cpu.Activations{cpu.ActivationsF32, cpu.ActivationsInt8} {
		t.Run(string(a), func(t *testing.T) {
			cfg, tok := loadSmolLM2On(t, cpu.Config{Activations: a})
			requests := quotationRequests(t, tok, 4, 40)
			var want map[int64]Completion
			for _, off := range []bool{true, false} {
				cfg.NoSpeculation = off
				e, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				got, st := runAll(t, e, requests, 0), e.Stats()
				e.Close()
				if off {
					want = got
					continue
				}
				for id, c := range got {
					if err := errors.Join(same(c, want[id]), wellFormed(c)); err != nil {
						t.Error(err)
					}
				}
				if st.AcceptedTokens == 0 {
					t.Errorf("no draft came true: %+v", st)
				}
			}
		})
	}
}

// BenchmarkSpeculation measures the answer to one request, and to eight at once, with drafts and without, one after the
// other in the same process: seconds of engine time without over those with ("gain"), tokens a step, and the share of
// drafted tokens that were right. The first text is repeated word by word; the second is written freely.
func BenchmarkSpeculation(b *testing.B) {
	for _, text := range []struct{ name, prompt string }{{"quotation", quotation}, {"free", freeText}} {
		for _, n := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/rows=%d", text.name, n), func(b *testing.B) {
				cfg, tok := loadSmolLM2On(b, cpu.Config{Activations: cpu.ActivationsInt8})
				var took [2]time.Duration // with drafts, without
				var steps [2]int64
				var drafted, accepted, tokens int64
				for b.Loop() {
					for i, off := range []bool{false, true} {
						cfg.NoSpeculation = off
						cfg.Events.OnStep = func(s StepStats) {
							if s.Prefill == 0 {
								took[i] += s.Duration
								steps[i]++
							}
						}
						e, err := New(cfg)
						if err != nil {
							b.Fatal(err)
						}
						ids, err := tok.Encode(text.prompt, tokenizer.EncodeOptions{ParseSpecial: true})
						if err != nil {
							b.Fatal(err)
						}
						var requests []*Request
						for j := range n {
							q := &Request{ID: int64(j), Tokens: ids, Params: DefaultParams(), Seed: int64(j)}
							q.Params.MaxTokens = 200
							if j > 0 {
								q.Params.Temperature = 0.6
							}
							requests = append(requests, q)
						}
						runAll(b, e, requests, 0)
						st := e.Stats()
						drafted, accepted = drafted+st.DraftedTokens, accepted+st.AcceptedTokens
						if !off {
							tokens += st.DecodeTokens
						}
						e.Close()
					}
				}
				b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "gain")
				b.ReportMetric(float64(tokens)/float64(steps[0]), "tokens/step")
				b.ReportMetric(float64(accepted)/float64(max(drafted, 1)), "right")
			})
		}
	}
}

const freeText = "<|im_start|>user\nWrite a story about a sailor who finds an island.<|im_end|>\n<|im_start|>assistant\n"
