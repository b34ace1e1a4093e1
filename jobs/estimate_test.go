package jobs

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/internal/row"
)

// TestASampledEstimateClaimsNothingOfOtherRows: rows that are equal, begin alike or fail are counted among those that were
// read; only rows and tokens are extrapolated.
func TestASampledEstimateClaimsNothingOfOtherRows(t *testing.T) {
	dir := t.TempDir()
	var head, all strings.Builder
	for i := range 40 {
		text := fmt.Sprintf(`"%s and %d"`, strings.Repeat("an instruction ", 10), i%8)
		if i < 3 {
			text = "null"
		}
		line := fmt.Sprintf(`{"text": %s}`+"\n", text)
		if all.WriteString(line); i < 20 {
			head.WriteString(line)
		}
	}
	part := estimate(t, testSpec(writeFile(t, dir+"/head.jsonl", []byte(head.String())), dir+"/h/"), 0)
	s := testSpec(writeFile(t, dir+"/all.jsonl", []byte(all.String())), dir+"/out/")
	e := estimate(t, s, 20)
	if e.Exact || e.Rows != 40 || e.PromptTokens != 2*part.PromptTokens || e.MaxOutputTokens != 2*part.MaxOutputTokens {
		t.Errorf("half of the rows: %+v", e)
	}
	if e.Failing != 3 || e.Errors[row.NullPrompt] != 3 || e.Copies == 0 || e.SharedTokens == 0 ||
		e.Sampled != part.Sampled || e.Copies != part.Copies || e.CopiedTokens != part.CopiedTokens || e.SharedTokens != part.SharedTokens || e.SampledTokens != part.PromptTokens {
		t.Errorf("sampled %+v, a job of those rows alone %+v", e, part)
	}
	if e := estimate(t, s, 40); !e.Exact || e.Sampled != e.Rows || e.SampledTokens != e.PromptTokens {
		t.Errorf("a sample of all rows: %+v", e)
	}
}

// TestTheEstimateForeseesThePool: rows that the KV pool cannot hold fail in the plan as they do in the run, and the longest
// row's pages are those that it takes with its max_tokens, whoever gives them.
func TestTheEstimateForeseesThePool(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", []byte(`{"text": "short"}`+"\n"+fmt.Sprintf(`{"text": %q}`, strings.Repeat("long ", 60))+"\n"))
	s := testSpec(in, dir+"/out/")
	s.Params.MaxTokens = 1
	one := estimate(t, s, 0)
	page := one.KVLongest / int64(infer.PagesOf(one.Longest, &s.Params))
	for name, most := range map[string]int{"six": 6, "the default": 0} {
		s.Params.MaxTokens = most
		ask := s.Params
		if err := infer.CheckContext(one.Longest, &ask, 512); err != nil {
			t.Fatal(err)
		}
		if e := estimate(t, s, 0); e.KVLongest != page*int64(infer.PagesOf(one.Longest, &ask)) || ask.MaxTokens < 6 {
			t.Errorf("max_tokens %s: the longest row takes %d bytes, want %d pages of %d", name, e.KVLongest, infer.PagesOf(one.Longest, &ask), page)
		}
	}
	s.Params.MaxTokens, s.KVMemory = 6, 3*page
	e, sum := estimate(t, s, 0), mustRun(t, s)
	if e.Errors[row.KVBudgetExceeded] != 1 || !maps.Equal(e.Errors, sum.Errors) || e.KVLongest <= e.KVMemory {
		t.Errorf("foreseen %v, came to %v; %d bytes for the longest row of %d", e.Errors, sum.Errors, e.KVLongest, e.KVMemory)
	}
	requests := writeFile(t, dir+"/requests.jsonl", []byte(`{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 300}}`+"\n"))
	s = testSpec(requests, dir+"/requests/")
	s.Prompt, s.OutputPrefix = "", "x_"
	if e := estimate(t, s, 0); e.KVLongest < 300/infer.PageTokens*page {
		t.Errorf("a request of 300 tokens takes %d bytes, %d a page", e.KVLongest, page)
	}
}

func TestAPoolWithoutAPageIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", rowsJSONL(1)), dir+"/out/")
	s.KVMemory = 1
	_, err := runJob(t, context.Background(), s, Events{})
	if KindOf(err) != Config || !strings.Contains(err.Error(), "--kv-memory 1 holds no page") || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("got %v", err)
	}
}
