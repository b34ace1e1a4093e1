package writers

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/row"
)

// TestDigestAgain: what Digest reads from a written part is what the writer said.
func TestDigestAgain(t *testing.T) {
	types := openFixture(t, "types.parquet")
	lines := []any{row.JSON(`{"id":"a", "n" : 1}`), nil, row.JSON(`{"status":1,"n":[ ]}`), row.JSON(`{"x":"\u00e9"}`), row.JSON(`{}`), row.JSON(`{"id":null}`)}
	for _, c := range []struct {
		name  string
		cfg   Config
		cells []any
	}{
		{"parquet to parquet", Config{Format: Parquet, Source: types.schema}, cellsOf(types.rows)},
		{"parquet to jsonl", Config{Format: JSONL, Source: types.schema}, cellsOf(types.rows)},
		{"jsonl to jsonl", Config{Format: JSONL, Source: jsonSource}, lines},
		{"jsonl to parquet", Config{Format: Parquet, Source: jsonSource}, lines},
		{"subset, prefix", Config{Format: JSONL, Source: jsonSource, Carry: []string{"n"}, Prefix: "p_"}, lines},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Logprobs, c.cfg.TokenIDs, c.cfg.Provenance = true, true, testProvenance
			data, stats := writePart(t, c.cfg, c.cells)
			var part *row.Schema
			var next func() (*row.Record, error)
			if c.cfg.Format == Parquet {
				x := readParquet(t, data)
				part, next = x.schema, records(cellsOf(x.rows)...)
				if got, _ := x.file.Lookup(FooterResultDigest); got != stats.ResultDigest {
					t.Errorf("the footer says %s, Close %s", got, stats.ResultDigest)
				}
			} else {
				var cells []any
				for line := range bytes.Lines(data) {
					cells = append(cells, row.JSON(bytes.TrimSuffix(line, []byte("\n"))))
				}
				next = records(cells...)
			}
			again, err := Digest(c.cfg, part, next)
			if err != nil {
				t.Fatal(err)
			}
			if again != stats {
				t.Errorf("read %+v, wrote %+v", again, stats)
			}
		})
	}
}

func digestOf(t *testing.T, cfg Config, cells []any, change func(int, *row.Result)) string {
	t.Helper()
	w, err := New(&bytes.Buffer{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cells {
		res := testResult(i)
		change(i, res)
		if err := w.Write(&row.Record{Cells: c}, res); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return stats.ResultDigest
}

// TestDigestCovers: every result counts, no measurement does.
func TestDigestCovers(t *testing.T) {
	cells := []any{row.JSON(`{"id":"a"}`), row.JSON(`{"id":"b"}`), row.JSON(`{"id":"c"}`)}
	other, text := "other", "other text"
	for _, format := range Formats() {
		cfg := Config{Format: format, Source: jsonSource, Logprobs: true, TokenIDs: true, Provenance: testProvenance}
		same := func(int, *row.Result) {}
		base := digestOf(t, cfg, cells, same)
		on := func(at int, f func(*row.Result)) func(int, *row.Result) {
			return func(i int, r *row.Result) {
				if i == at {
					f(r)
				}
			}
		}
		for name, f := range map[string]func(*row.Result){
			"times": func(r *row.Result) { r.Times = &row.Times{Queue: time.Hour} }, "attempts": func(r *row.Result) { r.Attempts = 9 },
			"cached": func(r *row.Result) { r.CachedTokens = 0 }, "dedup": func(r *row.Result) { r.DedupOf = nil },
		} {
			if digestOf(t, cfg, cells, on(0, f)) != base {
				t.Errorf("%s: %s counts", format, name)
			}
		}
		if digestOf(t, cfg, cells, on(1, func(r *row.Result) { r.Err.Message = "other words" })) != base {
			t.Errorf("%s: error_message counts", format)
		}
		for name, f := range map[string]func(*row.Result){
			"source": func(r *row.Result) { r.Key.Source = "x" }, "row": func(r *row.Result) { r.Key.Row = 77 }, "sample": func(r *row.Result) { r.Key.Sample = 1 },
			"custom_id": func(r *row.Result) { r.CustomID = &other }, "no custom_id": func(r *row.Result) { r.CustomID = nil },
			"status": func(r *row.Result) { r.Status = row.Skipped }, "completion": func(r *row.Result) { r.Completion = &text },
			"finish": func(r *row.Result) { r.FinishReason = row.FinishLength }, "stop": func(r *row.Result) { r.StopReason = nil },
			"prompt": func(r *row.Result) { r.PromptTokens = 0 }, "completion tokens": func(r *row.Result) { r.CompletionTokens = 9 }, "seed": func(r *row.Result) { r.Seed = -1 },
			"logprobs": func(r *row.Result) { r.Logprobs = r.Logprobs[:0] }, "no logprobs": func(r *row.Result) { r.Logprobs = nil },
			"ids": func(r *row.Result) { r.TokenIDs = []int32{9} }, "no ids": func(r *row.Result) { r.TokenIDs = nil },
		} {
			if digestOf(t, cfg, cells, on(0, f)) == base {
				t.Errorf("%s: %s does not count", format, name)
			}
		}
		if digestOf(t, cfg, cells, on(1, func(r *row.Result) { r.Err.Code = row.Timeout })) == base {
			t.Errorf("%s: error_code does not count", format)
		}
		moved := cfg
		moved.Provenance.RunID = "another"
		if digestOf(t, moved, cells, same) != base {
			t.Errorf("%s: run_id counts", format)
		}
		moved.Provenance.ModelDigest = "another"
		if digestOf(t, moved, cells, same) == base {
			t.Errorf("%s: model_digest does not count", format)
		}
		renamed := cfg
		renamed.Prefix = "x_"
		if digestOf(t, renamed, cells, same) != base {
			t.Errorf("%s: the prefix counts", format)
		}
		if format == OpenAI {
			continue
		}
		if digestOf(t, cfg, []any{cells[0], row.JSON(`{"id":"B"}`), cells[2]}, same) == base {
			t.Errorf("%s: carried values do not count", format)
		}
		if digestOf(t, cfg, []any{cells[0], row.JSON("{ \"id\":\t\"b\" }"), cells[2]}, same) != base {
			t.Errorf("%s: space between tokens counts", format)
		}
	}
}

// TestDigestRowGroups: where row groups are cut does not count.
func TestDigestRowGroups(t *testing.T) {
	in := openFixture(t, "types.parquet")
	cfg := Config{Format: Parquet, Source: in.schema}
	_, cut := writePart(t, cfg, cellsOf(in.rows))
	if whole := digestOf(t, cfg, cellsOf(in.rows), func(int, *row.Result) {}); whole != cut.ResultDigest {
		t.Errorf("cut %s, whole %s", cut.ResultDigest, whole)
	}
}

// TestDigestPinned: the form is a contract between versions (the pins were computed from its description, not by this code); who changes it changes digestVersion too.
func TestDigestPinned(t *testing.T) {
	cells := []any{row.JSON(`{"id":"a"}`), nil}
	for format, want := range map[string]string{
		JSONL:   "21563e490e6b3800dd4e8c51d44b3b7fa3c2462a3b1a0828fcc47c5e2386f058",
		Parquet: "fc8680845f3c3b839c3eae15fd1a2ef54e82f3cbacef4aea663ac8ec0df89439",
	} {
		cfg := Config{Format: format, Source: jsonSource, Logprobs: true, TokenIDs: true, Provenance: testProvenance}
		if got := digestOf(t, cfg, cells, func(int, *row.Result) {}); got != want {
			t.Errorf("%s: the digest is %s, pinned is %s", format, got, want)
		}
	}
}

func TestDigestRefuses(t *testing.T) {
	cfg := Config{Format: JSONL, Own: []string{"status", "row_index"}}
	for _, line := range []string{`{}`, `{"status":"ok"}`, `{"status":null,"row_index":1}`, `{"status":"ok","row_index":"x"}`, `[]`} {
		if _, err := Digest(cfg, nil, records(row.JSON(line))); err == nil || !strings.Contains(err.Error(), "row 0") {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := Digest(Config{Format: OpenAI}, nil, records()); err == nil {
		t.Error("OpenAI parts have no digest to compute")
	}
}
