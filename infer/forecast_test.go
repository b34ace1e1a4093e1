package infer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/batchmill/batchmill/infer/kv"
)

func forecastRow(tokens, prompt, maxTokens int) *sequence {
	return &sequence{tokens: make([]int32, tokens), prompt: prompt, params: Params{MaxTokens: maxTokens}}
}

// TestForecastAgainstSimulation plays the expected lengths out step by step, with rows that share pages at every depth.
func TestForecastAgainstSimulation(t *testing.T) {
	saved := 0
	var f forecast // its marks last from one call to the next
	rapid.Check(t, func(t *rapid.T) {
		f.share = rapid.SampledFrom([]float64{0, 0.2, 0.5, 1}).Draw(t, "share")
		r := &run{e: &Engine{cache: noCopies{}}, pool: kv.NewPool(1000)}
		r.prefixes = kv.NewPrefixes(r.pool)
		for range rapid.IntRange(1, 8).Draw(t, "rows") {
			prompt := rapid.IntRange(1, 100).Draw(t, "prompt")
			most := rapid.IntRange(1, 200).Draw(t, "max-tokens")
			s := forecastRow(prompt+rapid.IntRange(0, most-1).Draw(t, "generated"), prompt, most)
			for i := rapid.IntRange(0, prompt).Draw(t, "common"); i < prompt; i++ {
				s.tokens[i] = int32(rapid.IntRange(1, 2).Draw(t, "id"))
			}
			r.waiting = append(r.waiting, s)
		}
		for len(r.waiting) > 1 {
			s := r.waiting[0]
			r.findPrefix(s)
			if ok, err := r.start(s); !ok || err != nil {
				t.Fatal(ok, err)
			}
			r.prefixes.Computed(&s.table, s.computed, len(s.tokens))
		}
		more := r.waiting[0]
		r.findPrefix(more)
		want := 0
		for step := 0; step <= 200; step++ {
			pages := 0
			held := map[int32]bool{}
			for _, s := range append(r.running, more) {
				if step > int(f.share*float64(s.params.MaxTokens-s.generated()-1)) {
					continue
				}
				known := slices.Clone(s.table.Pages())
				if s == more {
					for i := range s.match.Pages() {
						known = append(known, s.match.Page(i))
					}
				}
				pages += kv.PagesFor(len(s.tokens)+step) - len(known)
				for _, page := range known {
					if held[page] {
						saved++
					}
					held[page] = true
				}
			}
			want = max(want, pages+len(held))
		}
		if got := f.peak(r.pool, r.running, more); got != want {
			t.Fatalf("peak %d, want %d", got, want)
		}
	})
	if !testing.Short() && saved == 0 {
		t.Error("no page was shared: the test covers too little")
	}
}

// noCopies is a cache whose contents nobody looks at.
type noCopies struct{ Cache }

func (noCopies) CopyPage(dst, src int32, tokens int) {}

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
