package infer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/batchmill/batchmill/infer/kv"
)

func forecastRow(tokens, prompt, maxTokens int) *sequence {
	return &sequence{tokens: make([]int32, tokens), prompt: prompt, params: Params{MaxTokens: maxTokens}}
}

// TestForecastAgainstSimulation plays the expected lengths out step by step.
func TestForecastAgainstSimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := forecast{share: rapid.SampledFrom([]float64{0, 0.2, 0.5, 1}).Draw(t, "share")}
		var rows []*sequence
		for range rapid.IntRange(1, 8).Draw(t, "rows") {
			prompt := rapid.IntRange(1, 100).Draw(t, "prompt")
			most := rapid.IntRange(1, 200).Draw(t, "max-tokens")
			rows = append(rows, forecastRow(prompt+rapid.IntRange(0, most-1).Draw(t, "generated"), prompt, most))
		}
		want := 0
		for step := 0; step <= 200; step++ {
			pages := 0
			for _, s := range rows {
				if step <= int(f.share*float64(s.params.MaxTokens-s.generated()-1)) {
					pages += kv.PagesFor(len(s.tokens) + step)
				}
			}
			want = max(want, pages)
		}
		if got := f.peak(kv.NewPool(0), rows[1:], rows[0]); got != want {
			t.Fatalf("peak %d, want %d", got, want)
		}
	})
}

// TestForecastAdapts: equal rows that use all their tokens are never preempted; once short rows have ended, more rows
// are let in than would fit if each used all it may.
func TestForecastAdapts(t *testing.T) {
	full := func(p *Params) { p.MaxTokens, p.IgnoreEOS = 256, true }
	var requests []*Request
	for i := range 40 {
		requests = append(requests, request(int64(i), 40, full))
	}
	e := newFake(t, func(c *Config) { c.KVMemory = 60 * kv.PageTokens })
	runAll(t, e, requests, 0)
	if st := e.Stats(); st.Preemptions != 0 || st.KVPeak != 60 {
		t.Errorf("%d preemptions, peak of %d pages", st.Preemptions, st.KVPeak)
	}
	most := 0
	for i := range requests {
		requests[i].Params.Stop = []string{"a", "b", "c", "d", "e"}
	}
	e = newFake(t, func(c *Config) {
		c.KVMemory = 60 * kv.PageTokens
		c.Events.OnStep = func(s StepStats) { most = max(most, s.Running) }
	})
	runAll(t, e, requests, 0)
	if most < 12 { // 6 rows of 10 pages fit at their full length
		t.Errorf("at most %d rows ran at once", most)
	}
}
