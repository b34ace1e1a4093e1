package infer

import (
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer/tokenizer"
	"github.com/batchmill/batchmill/internal/row"
)

func request(id int64, prompt int, change func(*Params)) *Request {
	q := &Request{ID: id, Params: DefaultParams(), Seed: id * 7}
	for i := range prompt {
		q.Tokens = append(q.Tokens, int32((int(id)*5+i*3)%fakeVocab))
	}
	q.Params.MaxTokens = 12
	if change != nil {
		change(&q.Params)
	}
	return q
}

// mixedRequests vary in length and in every parameter.
func mixedRequests(n int) []*Request {
	var list []*Request
	for i := range n {
		list = append(list, request(int64(i), 1+(i*37)%90, func(p *Params) {
			p.MaxTokens = 1 + (i*11)%70
			p.IgnoreEOS = i%3 == 0
			switch i % 5 {
			case 1:
				p.Temperature = 0.9
			case 2:
				p.Temperature, p.TopK, p.TopP, p.MinP = 1.5, 9, 0.9, 0.05
			case 3:
				p.RepetitionPenalty, p.FrequencyPenalty, p.PresencePenalty = 1.3, 0.2, 0.1
			case 4:
				p.Temperature, p.RepetitionPenalty = 0.7, 0.8
			}
			if i%4 == 0 {
				p.Stop = []string{"ab", "é", "q"}
			}
			if i%6 == 0 {
				p.Logprobs = i % 5
			}
		}))
	}
	return list
}

func TestEngineAgainstPlainDecoding(t *testing.T) {
	requests := mixedRequests(60)
	e := newFake(t, nil)
	reasons := map[string]int{}
	for id, c := range runAll(t, e, requests, 0) {
		want := expected(requests[id])
		if c.Logprobs != nil {
			want.Logprobs = c.Logprobs // checked below and in the sampling tests
		}
		if err := errors.Join(same(c, want), wellFormed(c)); err != nil {
			t.Error(err)
		}
		if (c.Logprobs != nil) != (requests[id].Params.Logprobs >= 0) {
			t.Errorf("row %d: logprobs %v", id, c.Logprobs)
		}
		for i, l := range c.Logprobs {
			if l.ID != c.TokenIDs[i] || l.Logprob > 0 || len(l.Top) != requests[id].Params.Logprobs {
				t.Errorf("row %d: logprob %d is %+v", id, i, l)
			}
		}
		reasons[c.StopReason]++
		if c.Attempts != 1 || c.CachedTokens >= c.PromptTokens {
			t.Errorf("row %d: attempts %d cached %d", id, c.Attempts, c.CachedTokens)
		}
	}
	if reasons[""] == 0 || reasons["</s>"] == 0 || reasons["é"]+reasons["ab"]+reasons["q"] == 0 {
		t.Errorf("rows ended by %v: the test covers too little", reasons)
	}
	st := e.Stats()
	prompt, completion := int64(0), int64(0)
	for _, q := range requests {
		prompt += int64(len(q.Tokens))
		completion += int64(len(expected(q).TokenIDs))
	}
	if st.PrefillTokens+st.CachedTokens != prompt || st.Completed != 60 || st.Failed != 0 || st.RecomputedTokens != 0 || st.KVUsed != 0 ||
		st.SampledTokens < completion || st.Fill <= 0 || st.Fill > 1 || st.Waste != 0 || st.KVPeak == 0 || st.Running+st.Waiting != 0 {
		t.Errorf("%d prompt and %d completion tokens, but stats %+v", prompt, completion, st)
	}
}

func TestStopTextIsCutAndTokensKept(t *testing.T) {
	q := request(1, 5, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 40, true })
	e := newFake(t, nil)
	full := runAll(t, e, []*Request{q}, 0)[1]
	if len(full.Text) < 10 {
		t.Fatalf("text %q is too short for the test", full.Text)
	}
	q.Params.Stop = []string{full.Text[6:9], "none of it"}
	c := runAll(t, e, []*Request{q}, 0)[1]
	want := expected(q)
	if err := same(c, want); err != nil {
		t.Error(err)
	}
	if c.Text != full.Text[:strings.Index(full.Text, full.Text[6:9])] || c.StopReason != full.Text[6:9] || len(c.TokenIDs) >= len(full.TokenIDs) {
		t.Errorf("%q stopped by %q is %q with %d tokens", full.Text, c.StopReason, c.Text, len(c.TokenIDs))
	}
}

func TestCheck(t *testing.T) {
	e := newFake(t, func(c *Config) { c.MaxModelLen, c.KVMemory = 100, 64 })
	tokens := func(n int) Params { p := DefaultParams(); p.MaxTokens = n; return p }
	bad := DefaultParams()
	bad.Temperature = -1
	for _, c := range []struct {
		prompt int
		p      Params
		code   row.Code
		tokens int
		say    string
	}{
		{10, tokens(20), "", 20, ""},
		{10, tokens(55), "", 55, ""}, // 64 tokens computed, two pages
		{10, tokens(56), row.KVBudgetExceeded, 0, "raise kv-memory"},
		{10, tokens(0), row.KVBudgetExceeded, 0, "max_tokens 90"}, // the default does not shrink to the pool
		{64, tokens(1), "", 1, ""},
		{99, tokens(2), row.ContextExceeded, 0, "at most 1"},
		{100, tokens(0), row.ContextExceeded, 0, "no room"},
		{101, tokens(1), row.ContextExceeded, 0, "no room"},
		{math.MaxInt, tokens(math.MaxInt), row.ContextExceeded, 0, ""},
		{1, tokens(math.MaxInt), row.ContextExceeded, 0, "at most 99"},
		{0, tokens(1), row.EmptyPrompt, 0, "no tokens"},
		{5, bad, row.InvalidParams, 0, "temperature"},
		{5, tokens(-1), row.InvalidParams, 0, "max_tokens"},
	} {
		p := c.p
		err := e.Check(c.prompt, &p)
		var code row.Code
		message := ""
		if err != nil {
			code, message = err.Code, err.Message
		}
		if code != c.code || !strings.Contains(message, c.say) || (err == nil && p.MaxTokens != c.tokens) {
			t.Errorf("%d prompt tokens, max_tokens %d: %v, resolved to %d; want %q %q %d", c.prompt, c.p.MaxTokens, err, p.MaxTokens, c.code, c.say, c.tokens)
		}
	}
	large := newFake(t, nil)
	p := tokens(0)
	if err := large.Check(10, &p); err != nil || p.MaxTokens != DefaultMaxTokens {
		t.Errorf("default max_tokens %d, %v", p.MaxTokens, err)
	}
	p = tokens(0)
	if err := large.Check(990, &p); err != nil || p.MaxTokens != 10 {
		t.Errorf("default max_tokens %d near the end of the context, %v", p.MaxTokens, err)
	}
}

func TestTimes(t *testing.T) {
	e := newFake(t, func(c *Config) { c.BatchTokens = 16 })
	e.now = tick()
	requests := mixedRequests(8)
	requests[7].Entered = time.Unix(1_000_000, 0).Add(-time.Hour)
	requests[6].Entered = time.Unix(2_000_000, 0) // a caller's clock gone wrong
	for id, c := range runAll(t, e, requests, 0) {
		if err := wellFormed(c); err != nil {
			t.Error(err)
		}
		if c.Times.Prefill <= 0 || (c.CompletionTokens > 1) != (c.Times.Decode > 0) {
			t.Errorf("row %d with %d tokens: %+v", id, c.CompletionTokens, c.Times)
		}
		if (id == 7) != (c.Times.Queue >= time.Hour) {
			t.Errorf("row %d queued for %v", id, c.Times.Queue)
		}
	}
}

func TestConfig(t *testing.T) {
	model := &fakeModel{vocab: fakeVocab, positions: 1000}
	for name, change := range map[string]func(*Config){
		"a model":        func(c *Config) { c.Model = nil },
		"a tokenizer":    func(c *Config) { c.Tokenizer = nil },
		"limits":         func(c *Config) { c.Model = &fakeModel{vocab: 0, positions: 3} },
		"batch-tokens":   func(c *Config) { c.BatchTokens = -1 },
		"max-model-len ": func(c *Config) { c.MaxModelLen = 1001 },
		"holds no page":  func(c *Config) { c.KVMemory = 31 },
	} {
		cfg := fakeConfig(model)
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		change        func(*Config)
		seqs, pages   int
		batchTokens   int
		logitsPerSeqs int64
	}{
		{func(c *Config) {}, 256, 256 * 32, 512, 160},
		{func(c *Config) { c.BatchTokens = 8 }, 8, 8 * 32, 8, 160},
		{func(c *Config) { c.KVMemory = 100 * 32 }, 100, 100, 512, 160},
		{func(c *Config) { c.MaxSeqs, c.MaxModelLen = 3, 65 }, 3, 9, 512, 160},
	} {
		e := newFake(t, c.change)
		st := e.Stats()
		if st.MaxSeqs != c.seqs || st.KVPages != c.pages || st.BatchTokens != c.batchTokens || e.LogitsBytes() != int64(max(c.seqs, min(DefaultSpeculationRows, c.batchTokens)))*c.logitsPerSeqs {
			t.Errorf("stats %+v, want %+v", st, c)
		}
	}
}

// TestSteadyStateAllocations: steps allocate nothing. What a row collects (ids, text, its page table) grows by doubling,
// so that a few allocations a row are left over hundreds of steps; only log-probabilities allocate with every token.
func TestSteadyStateAllocations(t *testing.T) {
	data, err := os.ReadFile("testdata/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	const rows, from, to = 128, 40, 240
	const vocab = 512 // of the tokenizer; with so many rows sampling is spread over goroutines
	for name, c := range map[string]struct {
		change           func(*Params)
		perRow, perToken float64
	}{
		"greedy":      {func(p *Params) {}, 12, 0},
		"temperature": {func(p *Params) { p.Temperature, p.TopP, p.TopK, p.MinP = 0.8, 0.9, 40, 0.01 }, 12, 0},
		"penalties":   {func(p *Params) { p.RepetitionPenalty, p.PresencePenalty = 1.1, 0.1 }, 24, 0},        // ids seen
		"stop":        {func(p *Params) { p.Stop = []string{"never to be found in it", "nor this"} }, 24, 0}, // beginnings of them
		"logprobs":    {func(p *Params) { p.Logprobs = 2 }, 12, 3*3 + 1},                                     // tokens' texts, part of the result
	} {
		t.Run(name, func(t *testing.T) {
			var list []*Request
			for i := range rows {
				list = append(list, request(int64(i), 20, func(p *Params) { p.MaxTokens, p.IgnoreEOS = to+20, true; c.change(p) }))
			}
			var before, after runtime.MemStats
			tokens, steps := 0, 0
			e := newFake(t, func(cfg *Config) {
				cfg.Tokenizer, cfg.Threads = FromTokenizer(tok), 2
				cfg.Model = &fakeModel{vocab: vocab, positions: 1000}
				cfg.SpeculationRows = 64 // drafts too
				cfg.Events.OnStep = func(s StepStats) {
					switch steps++; {
					case steps == from:
						runtime.ReadMemStats(&before)
					case steps == to:
						runtime.ReadMemStats(&after)
					case steps > from && steps < to:
						tokens += s.Sampled
					}
				}
			})
			runAll(t, e, list, 0)
			if got := float64(after.Mallocs - before.Mallocs); tokens < rows*(to-from-1) || got > c.perToken*float64(tokens)+c.perRow*rows {
				t.Errorf("%v allocations for %d tokens of %d rows", got, tokens, rows)
			}
		})
	}
}

type silentTokenizer struct{}

func (silentTokenizer) NewDecoder() Decoder { return silentTokenizer{} }

func (silentTokenizer) Token(int32) (string, bool) { return "", false }

func (silentTokenizer) Bytes(int32) []byte { return nil }

func (silentTokenizer) Push(int32) string { return "x" }

func (silentTokenizer) Flush() string { return "" }
