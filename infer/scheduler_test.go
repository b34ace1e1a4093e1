package infer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/internal/row"
)

// TestSchedulerMetamorphic runs random requests through random configurations, with sources that stutter, steps that
// fail and pools that hardly hold a row, and checks what must hold in each: every request completes exactly once and
// with the result of plain decoding; no step is over its budget; nothing holds a page at the end; prefill and decode
// tokens are those of the requests, and what is computed again is counted apart.
func TestSchedulerMetamorphic(t *testing.T) {
	preempted, failures := int64(0), 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "rows")
		requests := mixedRequests(n) // every eighth begins alike
		if rapid.Bool().Draw(t, "share") {
			requests = sharingRequests(n, rapid.Uint64().Draw(t, "rows"), fakeVocab, 80)
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shuffle"), 1))
		r.Shuffle(n, func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		budget := rapid.SampledFrom([]int{1, 2, 7, 64, 4096}).Draw(t, "batch-tokens")
		seqs := rapid.SampledFrom([]int{0, 1, 3, 40}).Draw(t, "max-seqs")
		pages := rapid.SampledFrom([]int{5, 6, 9, 30, 1000}).Draw(t, "pages") // the largest row needs 5
		failEvery := rapid.SampledFrom([]int{0, 0, 5, 17}).Draw(t, "fail")
		model := &fakeModel{vocab: fakeVocab, positions: 1000}
		steps := 0
		model.broken = func(b *device.Batch) error {
			if steps++; failEvery > 0 && len(b.Seqs) > 1 && steps%failEvery == 0 {
				failures++
				return errors.New("a step fails")
			}
			return nil
		}
		var fault error
		model.step = func(b *device.Batch) {
			// Pages that the step writes to belong to one sequence; full ones before them may be shared.
			owner := map[int32]int{}
			for i, s := range b.Seqs {
				for _, page := range s.Pages[s.Past/kv.PageTokens:] {
					if other, taken := owner[page]; taken {
						fault = fmt.Errorf("page %d belongs to sequences %d and %d", page, other, i)
					}
					owner[page] = i
				}
				if s.Past+s.Len > len(s.Pages)*kv.PageTokens {
					fault = errors.New("a sequence ends beyond its pages")
				}
			}
			fault = errors.Join(fault, neighbours(b))
			for i, s := range b.Seqs {
				for _, page := range s.Pages[:s.Past/kv.PageTokens] {
					if other, taken := owner[page]; taken {
						fault = fmt.Errorf("page %d of sequence %d is written to by %d", page, i, other)
					}
				}
			}
			if len(b.Tokens) > budget || len(b.Tokens) == 0 {
				fault = fmt.Errorf("a step of %d tokens, the budget is %d", len(b.Tokens), budget)
			}
		}
		e, err := New(Config{Model: model, Tokenizer: FromTokenizer(fakeTokenizer{}), EOS: []int32{fakeEOS}, Threads: 1,
			BatchTokens: budget, MaxSeqs: seqs, KVMemory: int64(pages) * kv.PageTokens,
			NoPrefixSharing: rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "no-sharing"),
			Events: Events{OnStep: func(s StepStats) {
				if s.KVUsed > s.KVPages || s.Running > min(budget, 256) || (seqs > 0 && s.Running > seqs) {
					fault = fmt.Errorf("step %+v", s)
				}
			}}})
		if err != nil {
			t.Fatal(err)
		}
		e.firstShare = rapid.SampledFrom([]float64{0, 0, 1}).Draw(t, "first-share")
		got, err := tryAll(e, requests, rapid.SampledFrom([]int{0, 2, 3}).Draw(t, "stutter"))
		if err = errors.Join(err, fault); err != nil {
			t.Fatal(err)
		}
		prompt, completion := int64(0), int64(0)
		for _, q := range requests {
			c, want := got[q.ID], expected(q)
			want.Logprobs = c.Logprobs
			if err := errors.Join(same(c, want), wellFormed(c)); err != nil {
				t.Fatal(err)
			}
			prompt += int64(c.PromptTokens)
			completion += int64(c.CompletionTokens)
		}
		st := e.Stats()
		if st.PrefillTokens+st.CachedTokens != prompt || st.DecodeTokens > completion || st.KVUsed != 0 || st.KVPeak > st.KVPages ||
			st.Completed != int64(n) || st.Failed != 0 || st.RecomputedTokens > 0 && st.Preemptions+st.FailedSteps == 0 {
			t.Fatalf("%d prompt and %d completion tokens, but stats %+v", prompt, completion, st)
		}
		preempted += st.Preemptions
	})
	// In short mode rapid makes a fifth of the checks, too few to be sure of both.
	if !testing.Short() && (preempted == 0 || failures == 0) {
		t.Errorf("%d preemptions and %d failed steps: the test covers too little", preempted, failures)
	}
}

// TestDecodeComesBeforePrefill: while a long prompt is computed in chunks, rows that decode get a token in every step.
func TestDecodeComesBeforePrefill(t *testing.T) {
	requests := []*Request{
		request(0, 4, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 30, true }),
		request(1, 600, func(p *Params) { p.MaxTokens = 2 }),
	}
	model := &fakeModel{vocab: fakeVocab, positions: 1000}
	var shapes []string
	model.step = func(b *device.Batch) {
		shape := ""
		for _, s := range b.Seqs {
			shape += fmt.Sprintf("%d@%d ", s.Len, s.Past)
		}
		shapes = append(shapes, fmt.Sprintf("%slogits %d", shape, len(b.Logits)))
	}
	e := newFake(t, func(c *Config) { c.Model, c.BatchTokens = model, 100 })
	runAll(t, e, requests, 0)
	want := []string{"4@0 96@0 logits 1", "1@4 99@96 logits 1", "1@5 99@195 logits 1"}
	for i, w := range want {
		if shapes[i] != w {
			t.Errorf("step %d is %q, want %q", i, shapes[i], w)
		}
	}
	if st := e.Stats(); st.Steps != 30 {
		t.Errorf("%d steps, want 30", st.Steps)
	}
}

// TestYoungestIsPreempted: with room for one and a half rows the older one never waits for the younger.
func TestYoungestIsPreempted(t *testing.T) {
	requests := []*Request{
		request(0, 30, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 100, true }),
		request(1, 30, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 100, true }),
	}
	var victims []int64
	var order []int64
	e := newFake(t, func(c *Config) {
		c.KVMemory = 5 * kv.PageTokens
		c.Events.OnPreempt = func(id int64, tokens int) { victims = append(victims, id) }
	})
	e.firstShare = 0
	src := &listSource{requests: requests}
	err := e.Run(t.Context(), src, func(c Completion) error {
		order = append(order, c.ID)
		return same(c, expected(requests[c.ID]))
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(victims) == 0 || victims[0] != 1 || len(order) != 2 || order[0] != 0 {
		t.Errorf("preempted %v, completed %v", victims, order)
	}
	st := e.Stats()
	if st.KVPeak > 5 || st.Preemptions != int64(len(victims)) || st.RecomputedTokens == 0 || st.Waste <= 0 || st.Waste >= 1 {
		t.Errorf("stats %+v", st)
	}
}

// TestPreemptedRowsComeBackInOrder: equal rows end in the order of their arrival, however often they were preempted.
func TestPreemptedRowsComeBackInOrder(t *testing.T) {
	var requests []*Request
	for i := range 6 {
		requests = append(requests, request(int64(i), 30, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 200, true }))
	}
	e := newFake(t, func(c *Config) { c.KVMemory = 10 * kv.PageTokens })
	e.firstShare = 0
	var order []int64
	err := e.Run(t.Context(), &listSource{requests: requests}, func(c Completion) error {
		order = append(order, c.ID)
		return same(c, expected(requests[c.ID]))
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(order) || len(order) != 6 || e.Stats().Preemptions < 3 {
		t.Errorf("order %v after %d preemptions", order, e.Stats().Preemptions)
	}
}

// TestSamplingOnSeveralGoroutines compares one with many, on a vocabulary large enough for the parallel path.
func TestSamplingOnSeveralGoroutines(t *testing.T) {
	requests := mixedRequests(24)
	run := func(threads int) map[int64]Completion {
		e := newFake(t, func(c *Config) {
			c.Model = &fakeModel{vocab: 20_000, positions: 1000}
			c.Tokenizer = FromTokenizer(fakeTokenizer{})
			c.Threads = threads
		})
		return runAll(t, e, requests, 0)
	}
	one, many := run(1), run(4)
	for id := range one {
		if err := same(many[id], one[id]); err != nil {
			t.Error(err)
		}
		if one[id].FinishReason == row.FinishError {
			t.Errorf("row %d: %v", id, one[id].Err)
		}
	}
}
