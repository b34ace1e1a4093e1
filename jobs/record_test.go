package jobs

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/row"
)

func ptr[T any](v T) *T { return &v }

func TestResultsSurviveTheSpool(t *testing.T) {
	results := []*row.Result{
		{Key: row.UnitKey{Source: "file:///a.jsonl", Row: 3}, Status: row.OK, Completion: ptr("broken \xff\xfe bytes\u2028"), FinishReason: row.FinishStop,
			StopReason: ptr(""), PromptTokens: 5, CachedTokens: 1, CompletionTokens: 2, Attempts: 1, Seed: 1<<53 - 1,
			Times: &row.Times{Queue: 1, Prefill: 2 * time.Second, Decode: 3}, TokenIDs: []int32{7, 8},
			Logprobs: []row.TokenLogprob{{ID: 7, Token: "a", Bytes: []byte{0xff}, Logprob: math.Inf(-1), Top: []row.TokenLogprob{{ID: 9, Token: "b", Bytes: []byte("b"), Logprob: -0.5}}}}},
		{Key: row.UnitKey{Source: "s3://b/x.parquet", Row: 1 << 40, Sample: 2}, CustomID: ptr("id"), Status: row.Failed, Err: row.Errorf(row.NullPrompt, "why"),
			FinishReason: row.FinishError, DedupOf: ptr(int64(4)), Seed: -1},
		{Key: row.UnitKey{Source: "x"}, Status: row.OK, Completion: ptr(""), TokenIDs: []int32{}, Logprobs: []row.TokenLogprob{}},
	}
	s, err := newSpool()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for i := len(results) - 1; i >= 0; i-- { // any order
		line, err := encodeResult(results[i], i+1)
		if err != nil || bytes.ContainsRune(line, '\n') {
			t.Fatalf("%q, %v", line, err)
		}
		if err := s.put(int64(2*i), line, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range results {
		got, units, err := s.get(int64(2 * i))
		if err != nil || units != i+1 {
			t.Fatalf("%d units, %v", units, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("result %d came back as\n%+v, want\n%+v", i, got, want)
		}
		if got, _, err := s.get(int64(2*i + 1)); got != nil || err != nil {
			t.Errorf("an empty slot gave %v, %v", got, err)
		}
	}
	if err := s.put(0, []byte("{}"), 0); err == nil {
		t.Error("a second result for one slot was accepted")
	}
}
