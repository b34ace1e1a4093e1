package infer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer/device"
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
		if c.Attempts != 1 || c.CachedTokens != 0 {
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
	if st.PrefillTokens != prompt || st.Completed != 60 || st.Failed != 0 || st.RecomputedTokens != 0 || st.KVUsed != 0 ||
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

func TestBadRowsFailAlone(t *testing.T) {
	requests := mixedRequests(12)
	requests[3].Tokens = nil
	requests[4].Tokens = make([]int32, 5000)
	requests[5].Tokens = []int32{1, fakeVocab, 2}
	requests[6].Tokens = []int32{-1}
	requests[7].Params.MaxTokens = 999
	requests[8].Params.Stop = []string{""}
	codes := map[int64]row.Code{3: row.EmptyPrompt, 4: row.ContextExceeded, 5: row.InvalidParams, 6: row.InvalidParams, 7: row.ContextExceeded, 8: row.InvalidParams}
	for id, c := range runAll(t, newFake(t, nil), requests, 3) {
		if code, bad := codes[id]; bad {
			if c.Err == nil || c.Err.Code != code || c.Attempts != 0 || c.Times != (row.Times{}) || c.FinishReason != row.FinishError {
				t.Errorf("row %d: %+v, want %s", id, c, code)
			}
			continue
		}
		want := expected(requests[id])
		want.Logprobs = c.Logprobs
		if err := errors.Join(same(c, want), wellFormed(c)); err != nil {
			t.Error(err)
		}
	}
}

func TestNonFiniteLogitsKeepTheTextSoFar(t *testing.T) {
	requests := mixedRequests(9)
	requests[4] = request(4, 20, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 30, true })
	model := &fakeModel{vocab: fakeVocab, positions: 1000}
	prompt := fmt.Sprint(requests[4].Tokens)
	model.spoil = func(_ int32, seq []int32, logits []float32) {
		if len(seq) == 27 && fmt.Sprint(seq[:20]) == prompt {
			logits[fakeVocab-1] = float32(math.NaN())
		}
	}
	e := newFake(t, func(c *Config) { c.Model = model })
	for id, c := range runAll(t, e, requests, 0) {
		want := expected(requests[id])
		want.Logprobs = c.Logprobs
		if id == 4 {
			short := *requests[4]
			short.Params.MaxTokens = 7
			want = expected(&short)
			want.FinishReason, want.Err = row.FinishError, row.Errorf(row.NonFiniteLogits, "")
		}
		if err := errors.Join(same(c, want), wellFormed(c)); err != nil {
			t.Error(err)
		}
	}
}

func TestFailedStepsAreRepeatedRowByRow(t *testing.T) {
	for _, panics := range []bool{false, true} {
		requests := mixedRequests(14)
		culprit := requests[6]
		culprit.Tokens = []int32{38, 38, 38, 1}
		culprit.Params = DefaultParams()
		culprit.Params.MaxTokens, culprit.Params.IgnoreEOS = 20, true
		// No other row has this id at position 7.
		poison := expected(culprit).TokenIDs[3]
		once := true
		model := &fakeModel{vocab: fakeVocab, positions: 1000}
		model.broken = func(b *device.Batch) error {
			bad := once && len(b.Seqs) > 8 // one failure that is nobody's
			if bad {
				once = false
			}
			for _, s := range b.Seqs {
				// the token at position 7, the culprit's fourth, fails whatever chunk it comes in
				at := 7 - s.Past
				bad = bad || (at >= 0 && at < s.Len && b.Tokens[s.Start+at] == poison)
			}
			if bad && panics {
				panic("broken")
			}
			if bad {
				return errors.New("broken")
			}
			return nil
		}
		failures := 0
		e := newFake(t, func(c *Config) { c.Model = model; c.Events.OnFailure = func(error, int) { failures++ } })
		got := runAll(t, e, requests, 0)
		short := *culprit
		short.Params.MaxTokens = 4
		retried := 0
		for id, c := range got {
			want := expected(requests[id])
			want.Logprobs = c.Logprobs
			if id == culprit.ID {
				want = expected(&short)
				want.FinishReason, want.Err = row.FinishError, row.Errorf(row.Internal, "")
				if c.Err == nil || !strings.Contains(c.Err.Message, "broken") || strings.Contains(c.Err.Message, "\n") || !c.Err.Code.Retryable() {
					t.Errorf("the culprit's error: %v", c.Err)
				}
			}
			if err := errors.Join(same(c, want), wellFormed(c)); err != nil {
				t.Error(err)
			}
			if c.Attempts > 1 {
				retried++
			}
		}
		st := e.Stats()
		if failures < 3 || int64(failures) != st.FailedSteps || retried == 0 || st.Failed != 1 || st.KVUsed != 0 || st.RecomputedTokens == 0 {
			t.Errorf("%d failures, %d rows retried, stats %+v", failures, retried, st)
		}
	}
}

type panicMask struct{}

func (panicMask) Allowed(bits []uint64) { panic("mask") }
func (panicMask) Accept(int32) error    { return nil }

type letterMask struct{ taken *[]int32 }

func (m letterMask) Allowed(bits []uint64) { bits[0] = 1<<1 | 1<<4 }
func (m letterMask) Accept(id int32) error {
	*m.taken = append(*m.taken, id)
	if len(*m.taken) == 5 {
		return errors.New("enough")
	}
	return nil
}

func TestMasksBelongToTheirRow(t *testing.T) {
	requests := mixedRequests(6)
	requests[2].Mask = panicMask{}
	var taken []int32
	requests[3] = request(3, 8, nil)
	requests[3].Mask = letterMask{&taken}
	got := runAll(t, newFake(t, nil), requests, 0)
	if err := got[2].Err; err == nil || err.Code != row.Internal {
		t.Errorf("a mask that panics: %v", err)
	}
	c := got[3]
	if c.Err == nil || c.Err.Code != row.InvalidConstraint || len(c.TokenIDs) != 4 || strings.Trim(c.Text, "be") != "" || len(c.Text) != 4 {
		t.Errorf("a mask of b and e that fails at the fifth: %+v", c)
	}
	for _, id := range []int64{0, 1, 4, 5} {
		want := expected(requests[id])
		want.Logprobs = got[id].Logprobs
		if err := same(got[id], want); err != nil {
			t.Error(err)
		}
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

func TestCancelDropsWhatIsInFlight(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	model := &fakeModel{vocab: fakeVocab, positions: 1000}
	steps := 0
	model.step = func(*device.Batch) {
		if steps++; steps == 5 {
			cancel()
		}
	}
	model.broken = func(*device.Batch) error { return ctx.Err() } // as between layers
	e := newFake(t, func(c *Config) { c.Model = model })
	var reported []Completion
	src := &listSource{requests: mixedRequests(50)}
	err := e.Run(ctx, src, func(c Completion) error { reported = append(reported, c); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Run returned %v", err)
	}
	for _, c := range reported {
		if c.Err != nil || len(c.TokenIDs) > 5 {
			t.Errorf("row %d was reported: %+v", c.ID, c)
		}
	}
	if st := e.Stats(); st.KVUsed != 0 || st.Running != 0 || st.Waiting != 0 || steps != 5 {
		t.Errorf("after a cancel: %+v", st)
	}
	model.step, model.broken = nil, nil
	requests := mixedRequests(20)
	for id, c := range runAll(t, e, requests, 0) { // the engine can be used again
		want := expected(requests[id])
		want.Logprobs = c.Logprobs
		if err := same(c, want); err != nil {
			t.Error(err)
		}
	}
}

func TestCancelledBeforeTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	src := &listSource{requests: mixedRequests(3)}
	err := newFake(t, nil).Run(ctx, src, func(Completion) error { return nil })
	if !errors.Is(err, context.Canceled) || src.calls != 0 {
		t.Errorf("%v after %d requests", err, src.calls)
	}
}

// blockingSource waits for the context, as one does that is behind a slow reader.
type blockingSource struct{ calls int }

func (s *blockingSource) Next(ctx context.Context, wait bool) (*Request, error) {
	s.calls++
	if s.calls == 1 {
		return request(1, 4, nil), nil
	}
	if !wait {
		return nil, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestCancelWhileWaitingForTheSource(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	n := 0
	err := newFake(t, nil).Run(ctx, &blockingSource{}, func(Completion) error { n++; return nil })
	if !errors.Is(err, context.DeadlineExceeded) || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
}

type brokenSource struct {
	err  error
	left int
}

func (s *brokenSource) Next(context.Context, bool) (*Request, error) {
	if s.left == 0 {
		return nil, s.err
	}
	s.left--
	return request(int64(s.left), 4, nil), nil
}

func TestSourceAndSinkErrorsEndTheRun(t *testing.T) {
	boom := errors.New("boom")
	e := newFake(t, nil)
	if err := e.Run(context.Background(), &brokenSource{boom, 3}, func(Completion) error { return nil }); !errors.Is(err, boom) {
		t.Errorf("a source's error: %v", err)
	}
	if err := e.Run(context.Background(), &brokenSource{io.EOF, 3}, func(Completion) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("a sink's error: %v", err)
	}
	if err := e.Run(context.Background(), &brokenSource{nil, 0}, func(Completion) error { return nil }); err == nil {
		t.Error("a source that waits for nothing was accepted")
	}
	if err := e.Run(context.Background(), &brokenSource{io.EOF, 0}, func(Completion) error { return nil }); err != nil {
		t.Errorf("an empty source: %v", err)
	}
	inner := func(Completion) error { return e.Run(context.Background(), &brokenSource{io.EOF, 0}, nil) }
	if err := e.Run(context.Background(), &brokenSource{io.EOF, 1}, inner); err == nil {
		t.Error("two runs at once were accepted")
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
		if st.MaxSeqs != c.seqs || st.KVPages != c.pages || st.BatchTokens != c.batchTokens || e.LogitsBytes() != int64(c.seqs)*c.logitsPerSeqs {
			t.Errorf("stats %+v, want %+v", st, c)
		}
	}
}

// TestSteadyStateAllocations holds the engine to at most one allocation per token beyond a fixed number per row: text
// and ids grow by doubling, and a step's own memory is reused.
func TestSteadyStateAllocations(t *testing.T) {
	measure := func(tokens int) uint64 {
		var list []*Request
		for i := range 16 {
			list = append(list, request(int64(i), 20, func(p *Params) { p.MaxTokens, p.IgnoreEOS, p.Temperature = tokens, true, 0.8 }))
		}
		e := newFake(t, func(c *Config) { c.Tokenizer = silentTokenizer{} })
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		runAll(t, e, list, 0)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	measure(10)
	short, long := measure(100), measure(900)
	perToken := (float64(long) - float64(short)) / (16 * 800)
	// the fake model itself makes one slice per row of logits
	if perToken > 1.2 {
		t.Errorf("%.2f allocations per token", perToken)
	}
}

type silentTokenizer struct{}

func (silentTokenizer) NewDecoder() Decoder        { return silentTokenizer{} }
func (silentTokenizer) Token(int32) (string, bool) { return "", false }
func (silentTokenizer) Bytes(int32) []byte         { return nil }
func (silentTokenizer) Push(int32) string          { return "x" }
func (silentTokenizer) Flush() string              { return "" }
