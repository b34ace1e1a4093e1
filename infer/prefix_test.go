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
)

// sharingRequests are rows whose prompts begin alike in every way: of the same or another tenant, for a whole number of
// pages or not, as a whole, as parts of one another, or not at all. Prompts have at most longest tokens.
func sharingRequests(n int, seed uint64, vocab, longest int) []*Request {
	r := rand.New(rand.NewPCG(seed, 5))
	ids := func(n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = int32(r.IntN(vocab))
		}
		return list
	}
	texts := [][]int32{ids(longest), ids(longest), ids(longest)}
	copy(texts[1], texts[0][:longest/2])
	var list []*Request
	for i := range n {
		q := request(int64(i), 0, func(p *Params) {
			p.MaxTokens, p.IgnoreEOS = 1+r.IntN(30), i%2 == 0
			if i%3 == 0 {
				p.Temperature = 1
			}
			if i%7 == 0 {
				p.Logprobs = 2
			}
		})
		text := texts[r.IntN(3)]
		q.Tokens = slices.Clone(text[:1+r.IntN(longest)])
		switch r.IntN(4) {
		case 0: // a part of the text, or the same one once more
		case 1:
			cut := min(kv.PageTokens, len(q.Tokens))
			q.Tokens = append(q.Tokens[:len(q.Tokens)/cut*cut], ids(1)...)
		default:
			q.Tokens = append(q.Tokens, ids(1+r.IntN(20))...)
		}
		q.Tokens = q.Tokens[:min(len(q.Tokens), longest)]
		q.Tenant = []string{"", "a", "a", "b"}[r.IntN(4)]
		list = append(list, q)
	}
	return list
}

// neighbours checks that the sequences of a step that hold the same first page stand together, the decoding ones first,
// and within each kind also those that hold the same page further on.
func neighbours(b *device.Batch) error {
	type holder struct {
		page   int32
		decode bool
	}
	last := map[holder]int{}
	decodeEnded := map[int32]bool{}
	for i, s := range b.Seqs {
		decode := slices.Contains(b.Logits, int32(s.Start)) // also with a draft behind its token
		if !decode {
			decodeEnded[s.Pages[0]] = true
		} else if decodeEnded[s.Pages[0]] {
			return fmt.Errorf("sequence %d decodes behind a prompt with the same first page", i)
		}
		for j, page := range s.Pages {
			kinds := []holder{{page, decode}}
			if j == 0 {
				kinds = []holder{{page, true}, {page, false}}
			}
			before := -1
			for _, k := range kinds {
				if at, ok := last[k]; ok {
					before = max(before, at)
				}
			}
			if before >= 0 && before != i-1 {
				return fmt.Errorf("sequences %d and %d hold page %d and have others between them", before, i, page)
			}
			last[holder{page, decode}] = i
		}
	}
	return nil
}

// TestCommonPrefixIsComputedOnce: of n rows with common and own tokens, common + n*own are computed, whatever the budget
// of a step, the rows in flight, and where in a page the prefix ends.
func TestCommonPrefixIsComputedOnce(t *testing.T) {
	const rows, tenants = 200, 4
	for _, common := range []int{0, 1, 31, 32, 33, 400, 416} {
		for _, c := range []struct{ own, budget, seqs int }{{100, 512, 0}, {1, 512, 0}, {100, 4096, 0}, {40, 16, 0}, {100, 512, 3}, {32, 100, 1}} {
			if testing.Short() && c.budget == 16 {
				continue
			}
			var requests []*Request
			for i := range rows {
				q := request(int64(i), 0, func(p *Params) { p.MaxTokens = 1 + i%3 })
				for j := range common {
					q.Tokens = append(q.Tokens, int32(j*j%fakeVocab))
				}
				q.Tokens = append(q.Tokens, int32(fakeVocab+i)) // no other row's
				for j := range c.own - 1 {
					q.Tokens = append(q.Tokens, int32((i*7+j)%fakeVocab))
				}
				q.Tenant = fmt.Sprint(i / (rows / tenants))
				requests = append(requests, q)
			}
			e := newFake(t, func(cfg *Config) {
				cfg.BatchTokens, cfg.MaxSeqs = c.budget, c.seqs
				cfg.Model = &fakeModel{vocab: fakeVocab + rows, positions: 1000}
			})
			cached := 0
			for id, done := range runAll(t, e, requests, 0) {
				if err := wellFormed(done); err != nil {
					t.Error(err)
				}
				if want := common * min(1, int(id)%(rows/tenants)); done.CachedTokens != want {
					t.Errorf("%d common tokens, %+v: row %d took %d", common, c, id, done.CachedTokens)
				}
				cached += done.CachedTokens
			}
			st := e.Stats()
			once := tenants*common + rows*c.own
			if st.PrefillTokens != int64(once) || st.CachedTokens != int64(cached) || st.PrefillTokens+st.CachedTokens != rows*int64(common+c.own) || st.RecomputedTokens != 0 {
				t.Errorf("%d common and %d own tokens, %+v: %d computed, want %d; %d cached, stats %+v", common, c.own, c, st.PrefillTokens, once, cached, st)
			}
			if common >= 2*kv.PageTokens && c.seqs == 0 && st.SharedPeak < common/kv.PageTokens {
				t.Errorf("%+v: at most %d pages were shared", c, st.SharedPeak)
			}
		}
	}
}

// trieSize is the number of different prefixes in the prompts of each tenant: the tokens that have to be computed at
// least, and exactly, as long as no prompt is the beginning of another.
func trieSize(requests []*Request) int {
	size := 0
	byTenant := map[string][][]int32{}
	for _, q := range requests {
		byTenant[q.Tenant] = append(byTenant[q.Tenant], q.Tokens)
	}
	for _, prompts := range byTenant {
		slices.SortFunc(prompts, slices.Compare[[]int32])
		var before []int32
		for _, p := range prompts {
			n := 0
			for n < min(len(p), len(before)) && p[n] == before[n] {
				n++
			}
			size += len(p) - n
			before = p
		}
	}
	return size
}

// TestNothingIsComputedTwice: with room for all pages, rows compute the tokens of their tenant's tree of prompts, and the
// last token of a prompt that is the beginning of another once more at most.
func TestNothingIsComputedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "rows")
		requests := sharingRequests(n, rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]int{2, fakeVocab}).Draw(t, "ids"), 200)
		unique := rapid.Bool().Draw(t, "unique")
		for i, q := range requests {
			if unique { // no other row has this token
				q.Tokens = append(q.Tokens, int32(1000+i))
			}
		}
		model := &fakeModel{vocab: 1100, positions: 100_000}
		var apart error
		model.step = func(b *device.Batch) { apart = errors.Join(apart, neighbours(b)) }
		e, err := New(Config{Model: model, Tokenizer: FromTokenizer(fakeTokenizer{}), Threads: 1,
			BatchTokens: rapid.SampledFrom([]int{16, 64, 512, 4096}).Draw(t, "batch-tokens"), MaxSeqs: rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "max-seqs"),
			KVMemory: 4000 * kv.PageTokens})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tryAll(e, requests, rapid.SampledFrom([]int{0, 2, 3}).Draw(t, "stutter")); err != nil || apart != nil {
			t.Fatal(err, apart)
		}
		slack := int64(n)
		if unique {
			slack = 0
		}
		st := e.Stats()
		if least := int64(trieSize(requests)); st.PrefillTokens < least || st.PrefillTokens > least+slack || st.RecomputedTokens != 0 {
			t.Fatalf("%d tokens computed, want %d (+ %d): %+v", st.PrefillTokens, least, slack, st)
		}
	})
}

// TestSharersStartRightBehindThePrefix: rows start in the step after that in which the shared part of another row's
// prompt was computed, while its own part is not done yet, and others do not wait for it.
func TestSharersStartRightBehindThePrefix(t *testing.T) {
	var requests []*Request
	for i := range 3 {
		q := request(int64(i), 0, func(p *Params) { p.MaxTokens = 1 })
		for j := range 40 {
			q.Tokens = append(q.Tokens, int32(j%fakeVocab))
		}
		for j := range 30 {
			q.Tokens = append(q.Tokens, int32((i*11+j+3)%fakeVocab))
		}
		requests = append(requests, q)
	}
	requests[2].Tenant = "other"
	model := &fakeModel{vocab: fakeVocab, positions: 1000}
	var shapes []string
	model.step = func(b *device.Batch) {
		shape := ""
		for _, s := range b.Seqs {
			shape += fmt.Sprintf("%d@%d ", s.Len, s.Past)
		}
		shapes = append(shapes, shape)
	}
	e := newFake(t, func(c *Config) { c.Model, c.BatchTokens = model, 80 })
	requests = append(requests[:2:2], requests[2])
	runAll(t, e, requests, 0)
	want := []string{"70@0 10@0 ", "60@10 20@40 ", "10@60 "}
	if !slices.Equal(shapes, want) {
		t.Errorf("steps %q, want %q", shapes, want)
	}
	shapes = nil
	e = newFake(t, func(c *Config) { c.Model, c.BatchTokens = model, 45 })
	runAll(t, e, requests[:2], 0)
	want = []string{"45@0 ", "25@45 20@40 ", "10@60 "}
	if !slices.Equal(shapes, want) {
		t.Errorf("steps %q, want %q", shapes, want)
	}
}
