package writers

import (
	"io"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/row"
)

func TestCheck(t *testing.T) {
	types := openFixture(t, "types.parquet").schema
	clash := &row.Schema{Format: "jsonl", Columns: []row.Column{{Name: "status", Type: "string"}, {Name: "text", Type: "string"}, {Name: "_extra", Type: "json"}}}
	for _, c := range []struct {
		name string
		cfg  Config
		want string // "" for none
	}{
		{"parquet", Config{Format: Parquet, Source: types}, ""},
		{"no format", Config{}, `unknown output format "": use one of jsonl, parquet, openai`},
		{"collision", Config{Format: JSONL, Source: clash}, `the input has a column "status", and so has the output: rename ours with --output-prefix`},
		{"prefix", Config{Format: JSONL, Source: clash, Prefix: "bm_"}, ""},
		{"left out", Config{Format: JSONL, Source: clash, Carry: []string{"text"}}, ""},
		{"ours left out", Config{Format: JSONL, Source: clash, Own: []string{"completion"}}, ""},
		{"_extra in Parquet", Config{Format: Parquet, Source: clash, Own: []string{"completion"}}, `the input has a column "_extra"`},
		{"collision by prefix", Config{Format: JSONL, Source: clash, Own: []string{"model"}, Prefix: "sta"}, ""},
		{"openai has no columns", Config{Format: OpenAI, Source: clash}, ""},
		{"unknown carried", Config{Format: JSONL, Source: clash, Carry: []string{"txt"}}, `--columns: there is no column "txt": did you mean "text"?`},
		{"unknown carried of Parquet", Config{Format: Parquet, Source: types, Carry: []string{"zzzzzz"}}, `there is no column "zzzzzz": there are zid, prompt, bool`},
		{"another case", Config{Format: JSONL, Source: clash, Carry: []string{"Text"}}, `did you mean "text"?`},
		{"nothing known", Config{Format: JSONL, Source: &row.Schema{Format: "jsonl"}, Carry: []string{"x"}}, ""},
		{"unknown of ours", Config{Format: JSONL, Own: []string{"completions"}}, `--output-columns: there is no output column "completions": did you mean "completion"?`},
		{"not a schema", Config{Format: Parquet, Source: &row.Schema{Parquet: 1}}, "source schema is a int"},
	} {
		err := Check(c.cfg)
		if _, newErr := New(io.Discard, c.cfg); (newErr == nil) != (err == nil) {
			t.Errorf("%s: Check says %v, New %v", c.name, err, newErr)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := New(io.Discard, Config{Format: Parquet, Source: types, Carry: []string{}, Own: []string{}}); err == nil {
		t.Error("a Parquet file without columns")
	}
}

// TestColumns holds the table to the design: names in order, and which of them are measurements.
func TestColumns(t *testing.T) {
	var names, measured []string
	for _, c := range Columns() {
		names = append(names, c.Name)
		if !c.Result {
			measured = append(measured, c.Name)
		}
		if c.Doc == "" || c.Type.String() == "" {
			t.Errorf("%s is not documented", c.Name)
		}
	}
	const want = "source_file row_index custom_id sample_index status completion finish_reason stop_reason error_code error_message " +
		"prompt_tokens cached_tokens completion_tokens total_tokens queue_time_ms prefill_time_ms ttft_ms decode_time_ms tpot_ms e2e_latency_ms " +
		"attempts dedup_of seed logprobs token_ids model model_digest run_id"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("columns %s", got)
	}
	const measurements = "error_message cached_tokens queue_time_ms prefill_time_ms ttft_ms decode_time_ms tpot_ms e2e_latency_ms attempts dedup_of run_id"
	if got := strings.Join(measured, " "); got != measurements {
		t.Errorf("measurements %s", got)
	}
}
