package writers

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// TestTextCompletion: a request to /v1/completions is answered in that API's shape, whatever its neighbours ask for.
func TestTextCompletion(t *testing.T) {
	var out bytes.Buffer
	w, err := New(&out, Config{Format: OpenAI, Source: jsonSource, Provenance: testProvenance})
	if err != nil {
		t.Fatal(err)
	}
	id, texts := "c-1", []string{"héy", "b"}
	result := func(index int64, sample int32) *row.Result {
		return &row.Result{Key: row.UnitKey{Source: "s", Row: index, Sample: sample}, CustomID: &id, Status: row.OK,
			Completion: &texts[sample], FinishReason: row.FinishLength, PromptTokens: 5, CompletionTokens: 2}
	}
	withTop := result(0, 1)
	withTop.Logprobs = []row.TokenLogprob{
		{Token: "hé", Logprob: -1, Top: []row.TokenLogprob{{Token: "\ufffd", Logprob: -0.5}, {Token: "\ufffd", Logprob: -2}, {Token: "x", Logprob: negInf}}},
		{Token: "y", Logprob: negInf},
	}
	bare := result(1, 0)
	bare.Logprobs = []row.TokenLogprob{{Token: "h", Logprob: -1}}
	for _, u := range []struct {
		cells string
		res   *row.Result
	}{
		{`{"body":{"url":"no"}, "\u0075rl" : "\/v1\/completions"}`, result(0, 0)},
		{`{"body":{"url":"no"}, "\u0075rl" : "\/v1\/completions"}`, withTop},
		{`{"url":"/v1/completions"}`, bare},
		{`{"url":"/v1/chat/completions"}`, result(2, 0)},
		{`{"url":["/v1/completions"]}`, result(3, 0)},
	} {
		if err := w.Write(&row.Record{Cells: row.JSON(u.cells)}, u.res); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Write(nil, result(4, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	a, digest := requestID("s", 0), strings.Repeat("ab", 32)
	want := `{"id":"batch_req_` + a + `","custom_id":"c-1","response":{"status_code":200,"request_id":"` + a + `","body":{"id":"cmpl-` + a +
		`","object":"text_completion","created":1700000000,"model":"tiny","choices":[` +
		`{"text":"héy","index":0,"logprobs":null,"finish_reason":"length"},` +
		`{"text":"b","index":1,"logprobs":{"tokens":["hé","y"],"token_logprobs":[-1,null],"top_logprobs":[{"�":-0.5,"x":null},{}],"text_offset":[0,2]},"finish_reason":"length"}` +
		`],"usage":{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":0}},"system_fingerprint":"` + digest + `"}},"error":null}`
	if lines[0] != want {
		t.Errorf("got  %s\nwant %s", lines[0], want)
	}
	if !strings.Contains(lines[1], `"logprobs":{"tokens":["h"],"token_logprobs":[-1],"top_logprobs":null,"text_offset":[0]}`) {
		t.Error(lines[1])
	}
	for i, line := range lines {
		object := map[bool]string{true: `"object":"text_completion"`, false: `"object":"chat.completion"`}[i < 2]
		if !json.Valid([]byte(line)) || !strings.Contains(line, object) {
			t.Errorf("line %d has no %s: %s", i, object, line)
		}
	}
}

// TestTextCompletionFromParquet: the url is found among the leaves of a Parquet row.
func TestTextCompletionFromParquet(t *testing.T) {
	schema := parquet.NewSchema("s", parquet.Group{"body": parquet.Group{"prompt": parquet.String()}, "url": parquet.String()})
	o, err := newOpenAI(&bytes.Buffer{}, Config{Format: OpenAI, Source: &row.Schema{Format: "parquet", Parquet: schema}})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]bool{"/v1/completions": true, "/v1/chat/completions": false} {
		rec := &row.Record{Cells: parquet.Row{parquet.ValueOf("/v1/completions").Level(0, 0, 0), parquet.ValueOf(url).Level(0, 0, 1)}}
		if got := o.asksCompletion(rec); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
}
