package writers

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// columnText reads one column of a part: "<null>", or the value's text.
func columnText(t testing.TB, x *fixture, name string) []string {
	t.Helper()
	leaf, ok := x.file.Schema().Lookup(name)
	if !ok {
		t.Fatalf("no column %q", name)
	}
	var out []string
	for _, r := range x.rows {
		for _, v := range r {
			if v.Column() == leaf.ColumnIndex {
				out = append(out, v.String())
			}
		}
	}
	return out
}

func TestJSONToParquet(t *testing.T) {
	source := &row.Schema{Format: "jsonl", Columns: []row.Column{{Name: "id", Type: "string"}, {Name: "v", Type: "json"}}}
	lines := []any{
		row.JSON(`{"id":"a","v":1.50e0}`),
		row.JSON(`{ "v" : {"x": [1, 2]} , "id" : "\u00e9\n\ud800" }`),
		row.JSON(`{"id":7,"w":"\u2028","st\u0061tus":null}`), // another type, an unknown key, one of ours
		row.JSON(`{"id":"1st","id":"2nd","v":null}`),
		nil, // could not be parsed
		row.JSON(`{"\u0069d":"escaped","v":123456789012345678901234567890}`),
		row.JSON(`{}`),
	}
	data, stats := writePart(t, Config{Format: Parquet, Source: source, Provenance: testProvenance}, lines)
	if stats.Rows != int64(len(lines)) {
		t.Errorf("%+v", stats)
	}
	x := readParquet(t, data)
	for name, want := range map[string][]string{
		"id":        {"a", "é\n\ufffd", "<null>", "2nd", "<null>", "escaped", "<null>"},
		"v":         {"1.50e0", `{"x": [1, 2]}`, "<null>", "<null>", "<null>", "123456789012345678901234567890", "<null>"},
		"_extra":    {"<null>", "<null>", `{"id":7,"w":"\u2028","st\u0061tus":null}`, `{"id":"1st"}`, "<null>", "<null>", "<null>"},
		"row_index": {"0", "1", "2", "3", "4", "5", "6"},
		"status":    {"ok", "error", "ok", "ok", "error", "ok", "ok"},
	} {
		if got := columnText(t, x, name); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := strings.Join(x.names()[:4], ","); got != "id,v,_extra,source_file" {
		t.Errorf("columns start %s", got)
	}
	if got := x.file.Schema().Fields()[1].Type().String(); got != "JSON" {
		t.Errorf("v is %s", got)
	}

	data, _ = writePart(t, Config{Format: Parquet, Source: source, Carry: []string{"id"}}, lines)
	x = readParquet(t, data)
	if got := strings.Join(x.names()[:3], ","); got != "id,_extra,source_file" {
		t.Errorf("a subset's columns start %s", got)
	}
	if got := columnText(t, x, "_extra"); got[2] != `{"id":7}` {
		t.Errorf("_extra of a subset is %q", got)
	}
}

// TestEmptyParts: nothing in, a valid file with the whole schema out.
func TestEmptyParts(t *testing.T) {
	types := openFixture(t, "types.parquet")
	for name, cfg := range map[string]Config{
		"jsonl to parquet":   {Format: Parquet, Source: jsonSource},
		"parquet to parquet": {Format: Parquet, Source: types.schema},
		"no source":          {Format: Parquet},
	} {
		data, stats := writePart(t, cfg, nil)
		x := readParquet(t, data)
		if len(x.rows) != 0 || stats.Rows != 0 || stats.ResultDigest == "" {
			t.Errorf("%s: %d rows, %+v", name, len(x.rows), stats)
		}
		if got := x.names(); got[len(got)-1] != "run_id" || cfg.Source != nil && got[0] != sourceNames(cfg.Source)[0] {
			t.Errorf("%s: columns %v", name, got)
		}
	}
	for _, format := range []string{JSONL, OpenAI} {
		if data, _ := writePart(t, Config{Format: format, Source: jsonSource}, nil); len(data) != 0 {
			t.Errorf("%s: %q", format, data)
		}
	}
}

// TestAllErrorsFirst: the schema does not depend on what the first row group holds.
func TestAllErrorsFirst(t *testing.T) {
	var out bytes.Buffer
	w, err := New(&out, Config{Format: Parquet, Source: jsonSource, Logprobs: true})
	if err != nil {
		t.Fatal(err)
	}
	w.(*parquetWriter).groupLimit = 1 // every row a group of its own
	for i := range 4 {
		res := testResult(1)
		if i >= 2 {
			res = testResult(6)
		}
		if err := w.Write(&row.Record{}, res); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	x := readParquet(t, out.Bytes())
	if n := len(x.file.RowGroups()); n != 4 {
		t.Errorf("%d row groups", n)
	}
	if got := strings.Join(columnText(t, x, "completion"), "|"); !strings.HasPrefix(got, "<null>|<null>|answer 6") {
		t.Errorf("completion is %q", got)
	}
	if got := columnText(t, x, "error_code"); got[1] != string(row.ContextExceeded) || got[2] != "<null>" {
		t.Errorf("error_code is %q", got)
	}
	if _, err := w.Close(); err == nil {
		t.Error("closed twice")
	}
	if python := os.Getenv("BATCHMILL_TEST_PYTHON"); python != "" {
		part := filepath.Join(t.TempDir(), "p.parquet")
		if err := os.WriteFile(part, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		script := `import sys,duckdb,pyarrow.parquet as pq
t=pq.read_table(sys.argv[1]); assert t.num_rows==4, t; t.validate(full=True)
assert duckdb.sql(f"select count(completion), count(error_code), count(logprobs) from '{sys.argv[1]}'").fetchall()==[(2,2,2)]`
		if msg, err := exec.Command(python, "-c", script, part).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, msg)
		}
	}
}

// TestWrongCells: a record that does not fit the schema is refused, before it reaches the encoder.
func TestWrongCells(t *testing.T) {
	in := openFixture(t, "types.parquet")
	for _, cfg := range []Config{{Format: Parquet, Source: in.schema}, {Format: JSONL, Source: in.schema}} {
		good := in.rows[0]
		kind := good.Clone()
		kind[0] = parquet.Int64Value(1).Level(0, 0, 0)
		null := good.Clone()
		null[0] = parquet.NullValue().Level(0, 0, 0)
		deep := good.Clone()
		deep[1] = deep[1].Level(0, 9, 1)
		for name, cells := range map[string]any{"short": good[:5], "empty": parquet.Row{}, "kind": kind, "null": null, "level": deep,
			"order": append(good[1:].Clone(), good[0]), "json": row.JSON(`{}`)} {
			w, err := New(&bytes.Buffer{}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Write(&row.Record{Cells: cells}, testResult(0)); err == nil {
				t.Errorf("%s: took cells that are %s", cfg.Format, name)
			}
		}
	}
	w, err := New(&bytes.Buffer{}, Config{Format: Parquet, Source: in.schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(nil, testResult(0)); err == nil || !strings.Contains(err.Error(), `"zid" cannot be null`) {
		t.Errorf("a missing record with a required column gives %v", err)
	}
	w, err = New(&bytes.Buffer{}, Config{Format: Parquet, Source: in.schema, Carry: []string{"map", "i64"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(nil, testResult(0)); err != nil {
		t.Errorf("a missing record without a required column: %v", err)
	}
}

// TestStatisticsBounded: documents do not get into the footer, and no reader prunes by a wrong order.
func TestStatisticsBounded(t *testing.T) {
	big := row.JSON(`{"id":"` + strings.Repeat("z", 100_000) + `","v":1}`)
	source := &row.Schema{Format: "jsonl", Columns: []row.Column{{Name: "id", Type: "string"}, {Name: "v", Type: "json"}}}
	data, _ := writePart(t, Config{Format: Parquet, Source: source}, []any{big, big})
	x := readParquet(t, data)
	chunks := x.file.Metadata().RowGroups[0].Columns
	if s := chunks[0].MetaData.Statistics; s.MinValue != nil || s.MaxValue != nil {
		t.Errorf("min of %d bytes", len(s.MinValue))
	}
	if s := chunks[1].MetaData.Statistics; string(s.MaxValue) != "1" {
		t.Errorf("max of a short column is %q", s.MaxValue)
	}
	if len(data) > 20_000 {
		t.Errorf("the file has %d bytes", len(data))
	}
	in := openFixture(t, "duckdb.parquet")
	data, _ = writePart(t, Config{Format: Parquet, Source: in.schema}, cellsOf(in.rows))
	x = readParquet(t, data)
	for _, c := range x.file.Metadata().RowGroups[0].Columns {
		name := c.MetaData.PathInSchema[0]
		if has := c.MetaData.Statistics.MinValue != nil && c.ColumnIndexLength > 0; has != (name != "iv") && name != "m" && name != "l" && name != "s" && name != "dec20" && c.MetaData.Statistics.NullCount == 0 {
			t.Errorf("column %s: statistics %v", name, has)
		}
		if c.OffsetIndexLength == 0 {
			t.Errorf("column %s has no offset index", name)
		}
	}
}
