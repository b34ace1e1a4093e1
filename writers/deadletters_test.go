package writers

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

func failed(seed int64) *row.Result {
	return &row.Result{Key: row.UnitKey{Source: "f", Row: 3}, Status: row.Failed, Seed: seed, Err: row.Errorf(row.InvalidJSON, "f:4: byte 7: \u2028 <x>")}
}

func letter(t *testing.T, cfg Config, rec *row.Record, res *row.Result) string {
	t.Helper()
	var out bytes.Buffer
	w, err := NewDeadLetters(&out, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(rec, res); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 {
		if _, err := ordered.DecodeJSON(out.Bytes()); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
			t.Errorf("not one line of JSON: %v: %q", err, out.Bytes())
		}
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func TestDeadLetters(t *testing.T) {
	const why = `"_error":{"code":"invalid_json","message":"f:4: byte 7: \u2028 <x>"}`
	jsonl := Config{Source: jsonSource}
	for _, c := range []struct {
		name, want string
		rec        *row.Record
	}{
		{"object", `{ "a":1.0 , "b":{} ,` + why + `,"_seed":9007199254740993}`, &row.Record{Cells: row.JSON(`{ "a":1.0 , "b":{} }`)}},
		{"empty object", `{` + why + `,"_seed":9007199254740993}`, &row.Record{Cells: row.JSON(`{}`)}},
		{"a member of the name", `{"_raw_base64":"eyJfXHUwMDczZWVkIjozfQ==",` + why + `}`, &row.Record{Cells: row.JSON(`{"_\u0073eed":3}`)}},
		{"unparseable", `{"_raw_base64":"eyJhIjo=",` + why + `}`, &row.Record{Raw: []byte(`{"a":`)}},
		{"not an object", `{"_raw_base64":"WzFd",` + why + `}`, &row.Record{Cells: row.JSON(`[1]`)}},
		{"nothing", `{"_raw_base64":"",` + why + `}`, nil},
	} {
		if got := letter(t, jsonl, c.rec, failed(9007199254740993)); got != c.want {
			t.Errorf("%s: got %s\nwant %s", c.name, got, c.want)
		}
	}
	if got := letter(t, jsonl, &row.Record{Cells: row.JSON(`{}`)}, &row.Result{Status: row.OK}); got != "" {
		t.Errorf("an ok row is a dead letter: %s", got)
	}
}

func TestDeadLettersParquet(t *testing.T) {
	in := openFixture(t, "types.parquet")
	got := letter(t, Config{Source: in.schema}, &row.Record{Cells: in.rows[1]}, failed(1))
	var l struct {
		Raw   []byte          `json:"_raw_base64"`
		Error json.RawMessage `json:"_error"`
	}
	if err := json.Unmarshal([]byte(got), &l); err != nil || len(l.Error) == 0 {
		t.Fatal(err, got)
	}
	golden := writeLine(t, Config{Format: JSONL, Source: in.schema, Own: []string{}}, &row.Record{Cells: in.rows[1]}, failed(1))
	if string(l.Raw) != golden {
		t.Errorf("raw is %s\nwant %s", l.Raw, golden)
	}
	// A row without bytes is JSON.
	in = openFixture(t, "int96.parquet")
	got = letter(t, Config{Source: in.schema}, &row.Record{Cells: in.rows[3]}, failed(1))
	if want := `{"zid":"id3","ts_us_local":null,"_error":{"code":"invalid_json","message":"f:4: byte 7: \u2028 <x>"},"_seed":1}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if w, _ := NewDeadLetters(&bytes.Buffer{}, Config{}); w.Write(&row.Record{Cells: parquet.Row{}}, failed(1)) == nil {
		t.Error("took a Parquet row without a schema")
	}
}

func TestOpenAI(t *testing.T) {
	var out, errs bytes.Buffer
	cfg := Config{Format: OpenAI, Source: jsonSource, Provenance: testProvenance}
	w, err := New(&out, cfg)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewDeadLetters(&errs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	id, texts := "c-1", []string{"one <|x|>", "two\u2028"}
	units := []*row.Result{
		{Key: row.UnitKey{Source: "s", Row: 0}, CustomID: &id, Status: row.OK, Completion: &texts[0], FinishReason: row.FinishStop, PromptTokens: 5, CachedTokens: 2, CompletionTokens: 3},
		{Key: row.UnitKey{Source: "s", Row: 0, Sample: 1}, CustomID: &id, Status: row.OK, Completion: &texts[1], FinishReason: row.FinishLength, PromptTokens: 5, CompletionTokens: 4,
			Logprobs: []row.TokenLogprob{{ID: 1, Token: "t", Bytes: []byte{255}, Logprob: negInf}}},
		{Key: row.UnitKey{Source: "s", Row: 1}, CustomID: &id, Status: row.Failed, Err: row.Errorf(row.EmptyPrompt, "no tokens")},
		{Key: row.UnitKey{Source: "s", Row: 2}, Status: row.Skipped},
		{Key: row.UnitKey{Source: "s", Row: 3}, Status: row.OK, Completion: &texts[0], FinishReason: row.FinishStop},
	}
	for _, u := range units {
		if err := w.Write(&row.Record{Cells: row.JSON(`{}`)}, u); err != nil {
			t.Fatal(err)
		}
		if err := e.Write(&row.Record{Cells: row.JSON(`{}`)}, u); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := w.Close()
	if err != nil || stats.Rows != 5 || stats.OK != 3 || stats.Errors != 1 || stats.Skipped != 1 {
		t.Errorf("%+v %v", stats, err)
	}
	if stats, err := e.Close(); err != nil || stats.Rows != 1 {
		t.Errorf("errors: %+v %v", stats, err)
	}
	a, b, c := requestID("s", 0), requestID("s", 1), requestID("s", 3)
	digest := strings.Repeat("ab", 32)
	want := `{"id":"batch_req_` + a + `","custom_id":"c-1","response":{"status_code":200,"request_id":"` + a + `","body":{"id":"chatcmpl-` + a +
		`","object":"chat.completion","created":1700000000,"model":"tiny","choices":[` +
		`{"index":0,"message":{"role":"assistant","content":"one <|x|>","refusal":null},"logprobs":null,"finish_reason":"stop"},` +
		`{"index":1,"message":{"role":"assistant","content":"two\u2028","refusal":null},"logprobs":{"content":[{"token":"t","bytes":[255],"logprob":null,"top_logprobs":[]}],"refusal":null},"finish_reason":"length"}` +
		`],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":2}},"system_fingerprint":"` + digest + `"}},"error":null}` + "\n" +
		`{"id":"batch_req_` + c + `","custom_id":null,"response":{"status_code":200,"request_id":"` + c + `","body":{"id":"chatcmpl-` + c +
		`","object":"chat.completion","created":1700000000,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"one <|x|>","refusal":null},"logprobs":null,"finish_reason":"stop"}` +
		`],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,"prompt_tokens_details":{"cached_tokens":0}},"system_fingerprint":"` + digest + `"}},"error":null}` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
	want = `{"id":"batch_req_` + b + `","custom_id":"c-1","response":null,"error":{"code":"empty_prompt","message":"no tokens"}}` + "\n"
	if errs.String() != want {
		t.Errorf("got  %swant %s", errs.String(), want)
	}
	for _, line := range strings.SplitAfter(strings.TrimSpace(out.String()+errs.String()), "\n") {
		if _, err := ordered.DecodeJSON([]byte(line)); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if len(a) != 24 || a == b {
		t.Errorf("ids %s %s", a, b)
	}
}
