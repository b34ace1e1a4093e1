package writers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// fixture is a Parquet file of testdata, read whole.
type fixture struct {
	schema *row.Schema
	rows   []parquet.Row
	file   *parquet.File
}

func openFixture(t testing.TB, name string) *fixture {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return readParquet(t, data)
}

func readParquet(t testing.TB, data []byte) *fixture {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	x := &fixture{file: f, schema: &row.Schema{Format: "parquet", Parquet: f.Schema()}}
	x.schema.ParquetElements = []formatElement(f.Metadata().Schema)
	for _, kv := range f.Metadata().KeyValueMetadata {
		x.schema.Metadata = append(x.schema.Metadata, row.KeyValue{Key: kv.Key, Value: kv.Value})
	}
	for _, field := range f.Schema().Fields() {
		x.schema.Columns = append(x.schema.Columns, row.Column{Name: field.Name()})
	}
	buf := make([]parquet.Row, 16)
	for _, g := range f.RowGroups() {
		if g.NumRows() == 0 {
			continue
		}
		rows := g.Rows()
		for {
			n, err := rows.ReadRows(buf)
			for _, r := range buf[:n] {
				x.rows = append(x.rows, r.Clone())
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rows.Close()
	}
	return x
}

// spell shows values by their bytes, so that NaN equals itself.
func spell(r parquet.Row) string {
	var b strings.Builder
	for _, v := range r {
		fmt.Fprintf(&b, "%d:%d/%d %v %x\n", v.Column(), v.RepetitionLevel(), v.DefinitionLevel(), v.Kind(), v.Bytes())
	}
	return b.String()
}

func (x *fixture) names() []string {
	var names []string
	for _, f := range x.file.Schema().Fields() {
		names = append(names, f.Name())
	}
	return names
}

var testProvenance = Provenance{Model: "tiny", ModelDigest: strings.Repeat("ab", 32), RunID: "run-1", Created: time.Unix(1700000000, 0)}

// testResult makes the i-th result: every third row fails, every fifth is skipped.
func testResult(i int) *row.Result {
	r := &row.Result{Key: row.UnitKey{Source: "file:///in/a.parquet", Row: int64(i)}, Status: row.OK, Attempts: 1, Seed: int64(i) * 7,
		PromptTokens: 11, CachedTokens: 4, CompletionTokens: int32(i % 4)}
	switch {
	case i%3 == 1:
		r.Status, r.Err = row.Failed, row.Errorf(row.ContextExceeded, "row %d: the prompt has \xff too many tokens", i)
		return r
	case i%5 == 4:
		r.Status = row.Skipped
		return r
	}
	text, id, stop, copied := fmt.Sprintf("answer %d \u2028 \"<é>\"\n", i), fmt.Sprintf("id-%d", i), "<|im_end|>", int64(i-1)
	r.Completion, r.CustomID, r.StopReason, r.FinishReason = &text, &id, &stop, row.FinishStop
	r.Times = &row.Times{Queue: time.Millisecond, Prefill: 2 * time.Millisecond, Decode: 3 * time.Millisecond}
	if i%2 == 0 {
		r.DedupOf = &copied
		r.TokenIDs = []int32{1, 2, int32(i)}[:i%4]
		r.Logprobs = []row.TokenLogprob{{ID: 5, Token: "a", Bytes: []byte("a"), Logprob: -0.5, Top: []row.TokenLogprob{{ID: 6, Token: "b", Logprob: negInf}}}}
	}
	return r
}

func writePart(t testing.TB, cfg Config, cells []any) ([]byte, Stats) {
	t.Helper()
	var out bytes.Buffer
	w, err := New(&out, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := w.(*parquetWriter); ok && groupLimit > 0 {
		p.groupLimit = groupLimit
	}
	for i, c := range cells {
		res := testResult(i)
		if err := w.Write(&row.Record{Source: res.Key.Source, Row: int64(i), Cells: c}, res); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := w.Close(row.KeyValue{Key: "batchmill.plan", Value: "p"})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), stats
}

// groupLimit makes several row groups out of small fixtures.
const groupLimit = 16 << 10

func cellsOf(rows []parquet.Row) []any {
	var out []any
	for _, r := range rows {
		out = append(out, r)
	}
	return out
}

var fixtures = []string{"types.parquet", "types_v2.parquet", "types_plain.parquet", "encodings.parquet", "field_ids.parquet",
	"int96.parquet", "empty.parquet", "pandas.parquet", "newer.parquet", "duckdb.parquet"}

// TestPassThrough reads back what was written, with the library that wrote it.
func TestPassThrough(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			in := openFixture(t, name)
			cfg := Config{Format: Parquet, Source: in.schema, Provenance: testProvenance, Logprobs: true, TokenIDs: true}
			data, stats := writePart(t, cfg, cellsOf(in.rows))
			out := readParquet(t, data)
			if stats.Rows != int64(len(in.rows)) || len(out.rows) != len(in.rows) || stats.OK+stats.Errors+stats.Skipped != stats.Rows {
				t.Fatalf("wrote %+v, read %d rows, want %d", stats, len(out.rows), len(in.rows))
			}
			want := in.names()
			for _, c := range Columns() {
				want = append(want, c.Name)
			}
			if !slices.Equal(out.names(), want) {
				t.Fatalf("columns %v, want %v", out.names(), want)
			}
			leaves := len(in.file.Schema().Columns())
			for i, r := range out.rows {
				carried := parquet.Row{}
				for _, v := range r {
					if v.Column() < leaves {
						carried = append(carried, v)
					}
				}
				if spell(carried) != spell(in.rows[i]) {
					t.Fatalf("row %d: carried %v, want %v", i, carried, in.rows[i])
				}
			}
			source := in.file.Metadata().Schema
			for i, e := range out.file.Metadata().Schema[1:len(source)] {
				if got, want := fmt.Sprintf("%+v", e), fmt.Sprintf("%+v", source[i+1]); got != want {
					t.Errorf("schema element %d is %s, want %s", i, got, want)
				}
			}
			if got, _ := out.file.Lookup("batchmill.plan"); got != "p" {
				t.Errorf("footer pair of Close is %q", got)
			}
		})
	}
}

// TestPassThroughPython compares with the libraries that users read the files with.
func TestPassThroughPython(t *testing.T) {
	python := os.Getenv("BATCHMILL_TEST_PYTHON")
	if python == "" {
		t.Skip("BATCHMILL_TEST_PYTHON does not name a Python with pyarrow and duckdb: only our own reading was checked")
	}
	verify := func(t *testing.T, name string, in *fixture, cfg Config, carried ...string) {
		data, _ := writePart(t, cfg, cellsOf(in.rows))
		part := filepath.Join(t.TempDir(), "part.parquet")
		if err := os.WriteFile(part, data, 0o644); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"testdata/verify.py", "testdata/" + name, part}, carried...)
		out, err := exec.Command(python, args...).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		} else if len(out) > 0 {
			t.Logf("%s", out)
		}
	}
	for _, name := range fixtures {
		in := openFixture(t, name)
		cfg := Config{Format: Parquet, Source: in.schema, Provenance: testProvenance, Logprobs: true, TokenIDs: true}
		t.Run(name, func(t *testing.T) { verify(t, name, in, cfg) })
	}
	t.Run("without elements", func(t *testing.T) {
		in := openFixture(t, "types.parquet")
		in.schema.ParquetElements = nil
		t.Setenv("LOOSE", "1")
		verify(t, "types.parquet", in, Config{Format: Parquet, Source: in.schema, Provenance: testProvenance, Logprobs: true, TokenIDs: true})
	})
	t.Run("json", func(t *testing.T) { // the goldens of TestParquetToJSON are what Python says
		for _, name := range []string{"types", "duckdb", "int96"} {
			out, err := exec.Command(python, "testdata/verify_json.py", "testdata/"+name+".parquet", "testdata/"+name+".golden.jsonl").CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
	})
	t.Run("subset", func(t *testing.T) {
		in := openFixture(t, "types.parquet")
		carry := []string{"dict", "f16", "lstruct", "ts_ns_tokyo", "fsl", "null"}
		cfg := Config{Format: Parquet, Source: in.schema, Carry: carry, Provenance: testProvenance, Logprobs: true, TokenIDs: true}
		verify(t, "types.parquet", in, cfg, "f16,ts_ns_tokyo,fsl,lstruct,dict,null")
	})
}
