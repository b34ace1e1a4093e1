package writers

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// TestLargeDictionary: a column whose dictionary outgrows its limit in the middle of a row group, over several row groups.
func TestLargeDictionary(t *testing.T) {
	type record struct {
		ID   string    `parquet:"id,dict"`
		Tags []string  `parquet:"tags,list"`
		V    []float64 `parquet:"v"`
	}
	var source bytes.Buffer
	w := parquet.NewGenericWriter[record](&source)
	const rows = 8000
	for i := range rows {
		r := record{ID: fmt.Sprintf("%0600d", i), Tags: []string{"a", strings.Repeat("t", i%300)}[:i%3%2+i%2], V: make([]float64, i%4)}
		if _, err := w.Write([]record{r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	in := readParquet(t, source.Bytes())
	var out bytes.Buffer
	cfg := Config{Format: Parquet, Source: in.schema, Provenance: testProvenance, Logprobs: true, TokenIDs: true}
	pw, err := New(&out, cfg)
	if err != nil {
		t.Fatal(err)
	}
	pw.(*parquetWriter).groupLimit = 6 << 20
	for i, r := range in.rows {
		if err := pw.Write(&row.Record{Cells: r}, testResult(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pw.Close(); err != nil {
		t.Fatal(err)
	}
	x := readParquet(t, out.Bytes())
	if n := len(x.file.RowGroups()); n < 2 || len(x.rows) != rows {
		t.Errorf("%d row groups, %d rows", n, len(x.rows))
	}
	pages := map[format.Encoding]bool{}
	for _, s := range x.file.Metadata().RowGroups[0].Columns[0].MetaData.EncodingStats {
		if s.PageType == format.DataPage {
			pages[s.Encoding] = true
		}
	}
	if !pages[format.Plain] || !pages[format.RLEDictionary] {
		t.Errorf("the dictionary did not outgrow its limit: %v", pages)
	}
	leaves := len(in.file.Schema().Columns())
	for i, r := range x.rows {
		carried := r[:0:0]
		for _, v := range r {
			if v.Column() < leaves {
				carried = append(carried, v)
			}
		}
		if spell(carried) != spell(in.rows[i]) {
			t.Fatalf("row %d differs", i)
		}
	}
	if python := os.Getenv("BATCHMILL_TEST_PYTHON"); python != "" {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a.parquet"), filepath.Join(dir, "b.parquet")
		for name, data := range map[string][]byte{a: source.Bytes(), b: out.Bytes()} {
			if err := os.WriteFile(name, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if msg, err := exec.Command(python, "testdata/verify.py", a, b).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, msg)
		}
	}
}

// TestMemoryBounded: what a writer holds does not grow with the part.
func TestMemoryBounded(t *testing.T) {
	text := strings.Repeat("some words of a document, ", 80)
	record := row.JSON(`{"id":"x","n":"` + text + `"}`)
	for _, name := range Formats() {
		w, err := New(io.Discard, Config{Format: name, Source: jsonSource})
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := w.(*parquetWriter); ok {
			p.groupLimit = 4 << 20
		}
		var at [3]uint64
		for phase := range at {
			for i := range 8000 {
				res := testResult(0)
				res.Key.Row = int64(i)
				if err := w.Write(&row.Record{Cells: record}, res); err != nil {
					t.Fatal(err)
				}
			}
			runtime.GC()
			runtime.GC() // the library's pools are empty after the second
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			at[phase] = m.HeapAlloc
		}
		runtime.KeepAlive(w)
		t.Logf("%s: heap after each third: %d", name, at)
		if at[2] > at[0]+8<<20 {
			t.Errorf("%s: heap after each third of 50 MB: %d", name, at)
		}
	}
}

func benchmarkWriter(b *testing.B, cfg Config, cells any, size int) {
	w, err := New(io.Discard, cfg)
	if err != nil {
		b.Fatal(err)
	}
	res := testResult(0)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(&row.Record{Cells: cells}, res); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkWrite(b *testing.B) {
	text := row.JSON(`{"id":"x","n":1,"text":"` + strings.Repeat("some words of a document, ", 40) + `","tags":["a","b"]}`)
	in := openFixture(b, "types.parquet")
	for _, name := range []string{JSONL, Parquet} {
		b.Run("jsonl to "+name, func(b *testing.B) {
			benchmarkWriter(b, Config{Format: name, Source: jsonSource}, text, len(text))
		})
		b.Run("parquet to "+name, func(b *testing.B) {
			benchmarkWriter(b, Config{Format: name, Source: in.schema}, in.rows[5], 600)
		})
	}
}
