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

// repeating has a model like what followed the last two tokens before, more often than not, so that many drafts come
// true and many do not.
func repeating(m *fakeModel) *fakeModel {
	m.spoil = func(_ int32, seq []int32, logits []float32) {
		end := len(seq) - 1
		h := uint64(end)
		for _, id := range seq[max(end-8, 0):] {
			h = mix64(h*31 + uint64(id))
		}
		if h%8 == 0 {
			return
		}
		for at := end - 1; at > 0; at-- {
			if seq[at] == seq[end] && seq[at-1] == seq[end-1] {
				logits[seq[at+1]] += 6
				return
			}
		}
	}
	return m
}

// repetitiveRequests are mixedRequests whose prompts repeat parts of themselves, and some of which have masks. Every call
// makes masks of its own, since they keep state.
func repetitiveRequests(n int, seed uint64) []*Request {
	r := rand.New(rand.NewPCG(seed, 9))
	list := mixedRequests(n)
	for i, q := range list {
		q.Seed = r.Int64()
		for range r.IntN(4) {
			at := r.IntN(len(q.Tokens))
			q.Tokens = append(q.Tokens, q.Tokens[at:min(at+r.IntN(30), len(q.Tokens))]...)
		}
		q.Tokens = q.Tokens[:min(len(q.Tokens), 90)]
		switch i % 7 {
		case 2, 3:
			q.Mask = &sumMask{ends: -1, id: q.ID}
		case 5:
			q.Mask = &sumMask{ends: r.IntN(30), id: q.ID, panics: i%2 == 0}
		}
	}
	return list
}

// sumMask allows what depends on all tokens accepted before, and counts its calls.
type sumMask struct {
	id       int64
	accepted []int32
	asked    int
	sum      int32
	ends     int // this many tokens are accepted, the next one is an error, or a panic; -1: all are
	panics   bool
}

func (m *sumMask) Allowed(bits []uint64) {
	m.asked++
	for id := range int32(fakeVocab) {
		if (m.sum+id)%4 != 1 {
			bits[id/64] |= 1 << (id % 64)
		}
	}
}

func (m *sumMask) Accept(id int32) error {
	if len(m.accepted) == m.ends {
		if m.panics {
			panic("enough")
		}
		return errors.New("enough")
	}
	m.accepted = append(m.accepted, id)
	m.sum += id
	return nil
}

// checkMasks holds masks to having been asked and told once for each token, in order.
func checkMasks(requests []*Request, got map[int64]Completion) error {
	for _, q := range requests {
		m, ok := q.Mask.(*sumMask)
		if !ok {
			continue
		}
		c := got[q.ID]
		asked := len(c.TokenIDs)
		if c.FinishReason == row.FinishError || c.StopReason == "</s>" {
			asked++ // for the token that was refused, or the end
		}
		if !slices.Equal(m.accepted, c.TokenIDs) || m.asked != asked {
			return fmt.Errorf("row %d (%s): mask was asked %d times, want %d, and told %v of %v", q.ID, c.FinishReason, m.asked, asked, m.accepted, c.TokenIDs)
		}
	}
	return nil
}

// TestSpeculationChangesNoByte: random requests (penalties, masks, log-probabilities, stop strings, seeds) in random
// configurations, with preemption, shared prefixes and failing steps, against runs of one token at a time.
func TestSpeculationChangesNoByte(t *testing.T) {
	var accepted, rejected, preempted, failures int64
	rapid.Check(t, func(t *rapid.T) {
		n, seed := rapid.IntRange(1, 24).Draw(t, "rows"), rapid.Uint64().Draw(t, "seed")
		run := func(change func(*Config)) (map[int64]Completion, Stats, []*Request) {
			cfg := fakeConfig(repeating(&fakeModel{vocab: fakeVocab, positions: 1000}))
			change(&cfg)
			e, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			e.firstShare = float64(cfg.BatchTokens % 2)
			requests := repetitiveRequests(n, seed)
			got, err := tryAll(e, requests, 3)
			if err != nil {
				t.Fatal(err)
			}
			return got, e.Stats(), requests
		}
		want, plain, _ := run(func(c *Config) { c.NoSpeculation = true })
		if plain.DraftedTokens != 0 {
			t.Fatalf("%+v", plain)
		}
		budget := rapid.SampledFrom([]int{1, 2, 7, 64, 4096}).Draw(t, "batch-tokens")
		rows := rapid.SampledFrom([]int{1, 2, 5, 16, 16, 64}).Draw(t, "speculation-rows")
		failEvery := rapid.SampledFrom([]int{0, 0, 0, 7, 19}).Draw(t, "fail")
		var fault error
		got, st, requests := run(func(c *Config) {
			c.BatchTokens, c.SpeculationRows = budget, rows
			c.MaxSeqs = rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "max-seqs")
			c.KVMemory = int64(rapid.SampledFrom([]int{5, 6, 9, 1000}).Draw(t, "pages")) * kv.PageTokens // the largest row needs 5
			c.NoPrefixSharing = rapid.Bool().Draw(t, "no-sharing")
			m := c.Model.(*fakeModel)
			steps := 0
			m.broken = func(b *device.Batch) error {
				drafted := len(b.Logits) > len(b.Seqs)
				if drafted && len(b.Tokens) > rows {
					fault = fmt.Errorf("a step of %d tokens with drafts, %d are the most", len(b.Tokens), rows)
				}
				// A row that was alone without a draft would rightly be at fault.
				if steps++; failEvery > 0 && steps%failEvery == 0 && (drafted || len(b.Seqs) > 1) {
					failures++
					return errors.New("a step fails")
				}
				return nil
			}
			c.Events.OnStep = func(s StepStats) {
				accepted += int64(s.Accepted)
				rejected += int64(s.Drafted - s.Accepted)
				if s.Err == nil && s.Prefill+s.Recomputed+s.Decode+s.Drafted-s.Accepted > budget {
					fault = fmt.Errorf("a budget of %d and %+v", budget, s)
				}
			}
		})
		for id, c := range got {
			fault = errors.Join(fault, same(c, want[id]), wellFormed(c))
		}
		if err := errors.Join(fault, checkMasks(requests, got)); err != nil {
			t.Fatal(err)
		}
		if st.DecodeTokens != plain.DecodeTokens || st.SampledTokens != plain.SampledTokens || st.KVUsed != 0 || st.KVPeak > st.KVPages ||
			st.PrefillTokens+st.CachedTokens != plain.PrefillTokens+plain.CachedTokens || st.RecomputedTokens > 0 && st.Preemptions+st.FailedSteps == 0 {
			t.Fatalf("with speculation %+v\nwithout %+v", st, plain)
		}
		preempted += st.Preemptions
	})
	if accepted == 0 || rejected == 0 || !testing.Short() && (preempted == 0 || failures == 0) {
		t.Errorf("%d accepted, %d rejected, %d preemptions, %d failed steps: the test covers too little", accepted, rejected, preempted, failures)
	}
}

// TestDraftsTakeNothingFromOthers: in a pool and a context that just hold all rows none is preempted and none fails, and
// after a step no more pages are held than the tokens so far take, though drafts cross into new ones.
func TestDraftsTakeNothingFromOthers(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		var requests []*Request
		pages := 0
		for i := range n {
			q := request(int64(i), 10+i*9, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 200-i*9, true })
			requests = append(requests, q)
			pages += kv.PagesFor(len(q.Tokens) + q.Params.MaxTokens - 1)
		}
		preempted, tokens, crossed := 0, 0, 0
		m := repeating(&fakeModel{vocab: fakeVocab, positions: 210})
		m.step = func(b *device.Batch) {
			for _, s := range b.Seqs {
				if s.Past >= 10+9*n && s.Past/kv.PageTokens < (s.Past+s.Len-1)/kv.PageTokens {
					crossed++
				}
			}
		}
		e := newFake(t, func(c *Config) {
			c.Model = m
			c.KVMemory, c.NoPrefixSharing = int64(pages)*kv.PageTokens, true
			c.Events.OnPreempt = func(int64, int) { preempted++ }
			c.Events.OnStep = func(s StepStats) {
				if tokens += s.Prefill + s.Decode; n == 1 && s.Running == 1 && s.KVUsed != kv.PagesFor(tokens) {
					t.Errorf("%d tokens hold %d pages", tokens, s.KVUsed)
				}
			}
		})
		e.firstShare = 0
		runAll(t, e, requests, 0)
		st := e.Stats()
		if preempted > 0 || st.Failed+st.FailedSteps > 0 || st.AcceptedTokens == 0 || st.Steps >= 200 || crossed == 0 {
			t.Errorf("%d rows: %d preemptions, %d drafts in new pages, %+v", n, preempted, crossed, st)
		}
	}
}

// toxicRequests draft a token that no completion has.
func toxicRequests(toxic int32) []*Request {
	var requests []*Request
	for i := range 5 {
		q := request(int64(i), 0, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 60, true })
		for j := range int32(30) {
			q.Tokens = append(q.Tokens, j%7, j%5, toxic, j%5)
		}
		requests = append(requests, q)
	}
	return requests
}

// runToxic runs them on a model that never chooses the token.
func runToxic(t *testing.T, m *fakeModel, toxic int32, change func(*Config)) (map[int64]Completion, Stats) {
	like := repeating(m).spoil
	m.spoil = func(id int32, seq []int32, logits []float32) {
		like(id, seq, logits)
		logits[toxic] = -9
	}
	e := newFake(t, func(c *Config) {
		c.Model = m
		change(c)
	})
	return runAll(t, e, toxicRequests(toxic), 0), e.Stats()
}

// TestDraftsThatFailSteps: what fails is the draft, so no row does, and none drafts again.
func TestDraftsThatFailSteps(t *testing.T) {
	const toxic, prompt = 13, 120
	broken := func(b *device.Batch) error {
		for i, id := range b.Tokens {
			if id == toxic && b.Positions[i] >= prompt {
				return errors.New("it cannot be computed")
			}
		}
		return nil
	}
	for _, seqs := range []int{1, 5} {
		want, _ := runToxic(t, &fakeModel{vocab: fakeVocab, positions: 1000, broken: broken}, toxic, func(c *Config) { c.NoSpeculation = true })
		got, st := runToxic(t, &fakeModel{vocab: fakeVocab, positions: 1000, broken: broken}, toxic, func(c *Config) { c.MaxSeqs = seqs })
		for id, c := range got {
			if err := errors.Join(same(c, want[id]), wellFormed(c)); err != nil {
				t.Error(err)
			}
			if c.Attempts > 1+seqs {
				t.Errorf("row %d was started %d times", id, c.Attempts)
			}
		}
		if st.Failed > 0 || st.FailedSteps == 0 || st.FailedSteps > 5 {
			t.Errorf("%+v", st)
		}
	}
}

// TestDraftsThatOverflow: a drafted token whose values are NaN spoils rows before it in its page, since NaN times a
// weight of 0 is NaN. The completions must be those without drafts.
func TestDraftsThatOverflow(t *testing.T) {
	const toxic = 13
	want, _ := runToxic(t, &fakeModel{vocab: fakeVocab, positions: 1000, toxic: toxic}, toxic, func(c *Config) { c.NoSpeculation = true })
	got, st := runToxic(t, &fakeModel{vocab: fakeVocab, positions: 1000, toxic: toxic}, toxic, func(*Config) {})
	for id, c := range got {
		if err := errors.Join(same(c, want[id]), wellFormed(c)); err != nil {
			t.Error(err)
		}
	}
	if st.Failed > 0 || st.Preemptions == 0 {
		t.Errorf("no draft overflowed: the test covers too little: %+v", st)
	}
}

// TestBadDraftsCostLittle: rows whose drafts all fail soon make few of them, and those whose drafts come true are not
// held back.
func TestBadDraftsCostLittle(t *testing.T) {
	for _, rows := range []int{1, 4, 15} {
		most := DefaultSpeculationRows/rows - 1 // what a row gets of a step
		length := func(p *speculation) int { return min(p.limit, p.credit/draftToken, max(most, 1)) }
		bad := newSpeculation()
		wasted := 0
		for range 1000 {
			n := length(&bad)
			bad.earn(rows, n, 0)
			wasted += n
		}
		if all := wasted * rows; all > 1000/4+rows*creditStart/draftToken {
			t.Errorf("%d rows wasted %d drafted tokens in 1000 steps", rows, all)
		}
		for steps := 1; length(&bad) < most; steps++ { // the text begins to repeat itself
			n := length(&bad)
			if bad.earn(rows, n, n); steps > 100 {
				t.Fatalf("of %d rows one that was wrong for long drafts %d tokens after %d steps", rows, n, steps)
			}
		}
		good := newSpeculation()
		tokens, steps := 0, 0
		for ; tokens < 1000; steps++ {
			n := length(&good)
			good.earn(rows, n, n)
			tokens += n + 1
		}
		if steps > 1000/(max(most, 1)+1)+5 {
			t.Errorf("%d steps for 1000 tokens that were all foreseen, in one of %d rows", steps, rows)
		}
	}
}
