package readers

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// file is a fixture; testdata/make_parquet.py writes them with pyarrow and DuckDB.
func file(t testing.TB, name string) *memObject {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return &memObject{name, string(b)}
}

func columnNames(t testing.TB, obj Object) (names []string) {
	t.Helper()
	s, err := Schema(context.Background(), obj, Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Columns {
		names = append(names, c.Name)
	}
	return names
}

// plain makes values comparable with decoded JSON: bytes become {"$bytes": hex}.
func plain(v any) any {
	switch v := v.(type) {
	case []byte:
		return ordered.MapOf("$bytes", hex.EncodeToString(v))
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case *ordered.Map:
		for i := range v.Len() {
			k, x := v.At(i)
			v.Set(k, plain(x))
		}
	}
	return v
}

// TestParquetTypes compares every type, page version, codec and encoding with what pyarrow was told to write.
func TestParquetTypes(t *testing.T) {
	wanted, err := readAll(t, file(t, "types.jsonl"), Cut{}, Options{Columns: columnNames(t, file(t, "v1_snappy.parquet"))})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(files) < 12 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		if name == "long.parquet" || name == "empty.parquet" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			obj := file(t, name)
			cols := columnNames(t, obj)
			recs, err := readAll(t, obj, Cut{}, Options{Columns: cols})
			if err != nil || len(recs) != len(wanted) {
				t.Fatalf("%d rows, %v", len(recs), err)
			}
			for i, r := range recs {
				if r.Err != nil || r.Row != int64(i) || len(r.Fields) != len(cols) {
					t.Fatalf("row %d: %+v", i, r)
				}
				for _, c := range cols {
					got, want := plain(r.Fields[c]), wanted[i].Fields[c]
					if strings.HasPrefix(name, "int96") && c == "ts_us" && want != nil {
						want = want.(string) + "Z" // such timestamps know no local time
					}
					if !reflect.DeepEqual(got, want) {
						t.Errorf("row %d, %s: %#v, want %#v", i, c, got, want)
					}
				}
			}
		})
	}
}

// beyondParquetGo are fixtures that parquet-go v0.32 cannot read itself: TestParquetTypes checks our reading of them.
var beyondParquetGo = map[string]string{
	"duckdb_v2.parquet": "it refuses delta-packed uint32 above 2^31",
	"v2_zstd.parquet":   "it panics on a data page v2 without definition levels",
}

// TestParquetCells compares carried rows, levels included, with those of parquet-go's own reader.
func TestParquetCells(t *testing.T) {
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		t.Run(name, func(t *testing.T) {
			if why := beyondParquetGo[name]; why != "" {
				t.Skip("parquet-go v0.32 is no reference here: " + why)
			}
			obj := file(t, name)
			recs, err := readAll(t, obj, Cut{}, Options{Carry: true})
			if err != nil {
				t.Fatal(err)
			}
			pf, err := parquet.OpenFile(obj, obj.Size())
			if err != nil {
				t.Fatal(err)
			}
			rleBools := map[int]bool{} // parquet-go v0.32 reads these wrongly
			for _, g := range pf.Metadata().RowGroups {
				for j, c := range g.Columns {
					rleBools[j] = rleBools[j] || c.MetaData.Type == 0 && strings.Contains(fmt.Sprint(c.MetaData.Encoding), "RLE") && !strings.Contains(fmt.Sprint(c.MetaData.Encoding), "PLAIN")
				}
			}
			n := 0
			buf := make([]parquet.Row, 7)
			for _, g := range pf.RowGroups() {
				if g.NumRows() == 0 { // parquet-go seeks to the place that pyarrow leaves unset
					continue
				}
				rows := g.Rows()
				for {
					k, err := rows.ReadRows(buf)
					for _, want := range buf[:k] {
						got := recs[n].Cells.(parquet.Row)
						n++
						if len(got) != len(want) {
							t.Fatalf("row %d has %d values, want %d", n-1, len(got), len(want))
						}
						for i := range got {
							if a, b := fmt.Sprintf("%+v %v", got[i], got[i].Kind()), fmt.Sprintf("%+v %v", want[i], want[i].Kind()); a != b && !rleBools[got[i].Column()] {
								t.Fatalf("row %d, value %d: %s, want %s", n-1, i, a, b)
							}
						}
					}
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := rows.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if n != len(recs) {
				t.Fatalf("%d rows, want %d", len(recs), n)
			}
		})
	}
}

// TestParquetLong checks long runs against the formulas in make_parquet.py.
func TestParquetLong(t *testing.T) {
	recs, err := readAll(t, file(t, "long.parquet"), Cut{}, Options{Columns: []string{"l", "s", "n", "b"}})
	if err != nil || len(recs) != 3000 {
		t.Fatal(len(recs), err)
	}
	for i, r := range recs {
		list := []any{}
		for k := range i % 4 {
			list = append(list, int64(k))
		}
		want := map[string]any{"b": i/700%2 == 1 || i%1000 == 5, "n": int64(i*i*7919) % (1 << (1 + i/50)), "s": strings.Repeat(fmt.Sprint(i/9), i%5), "l": list}
		if !reflect.DeepEqual(r.Fields, want) {
			t.Fatalf("row %d: %v, want %v", i, r.Fields, want)
		}
	}
}

func TestParquetCuts(t *testing.T) {
	for _, name := range []string{"v2_lz4raw.parquet", "emptygroup.parquet", "empty.parquet", "v1_snappy.parquet"} {
		obj := file(t, name)
		o := Options{Columns: []string{"zid"}, Carry: true}
		want, err := readAll(t, obj, Cut{}, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, split := range []int64{0, 1, 5000, 1 << 30} {
			cuts, rows, err := Cuts(context.Background(), obj, o, split)
			if err != nil || rows != int64(len(want)) || len(cuts) == 0 {
				t.Fatal(cuts, rows, err)
			}
			var got []*row.Record
			for _, c := range cuts {
				part, err := readAll(t, obj, c, o)
				if err != nil || int64(len(part)) != c.Rows || len(part) > 0 && part[0].Row != c.FirstRow {
					t.Fatalf("%s %+v: %d rows, %v", name, c, len(part), err)
				}
				got = append(got, part...)
			}
			if fmt.Sprint(ids(got)) != fmt.Sprint(ids(want)) {
				t.Fatalf("%s split %d: %v", name, split, ids(got))
			}
		}
		if _, err := readAll(t, obj, Cut{RowGroups: []int{99}}, o); err == nil {
			t.Error("a row group that is not there was read")
		}
	}
}

func ids(recs []*row.Record) (out []any) {
	for _, r := range recs {
		out = append(out, r.Row, r.Fields["zid"], fmt.Sprintf("%+v", r.Cells))
	}
	return out
}

func TestParquetSchema(t *testing.T) {
	s, err := Schema(context.Background(), file(t, "v1_snappy.parquet"), Options{}, 0)
	if err != nil || s.Format != Parquet {
		t.Fatal(s, err)
	}
	types := map[string]string{}
	for _, c := range s.Columns {
		types[c.Name] = c.Type
	}
	for name, want := range map[string]string{"zid": "string", "u32": "uint32", "bin": "byte_array", "ts_us": "timestamp", "d9": "decimal(scale 2)",
		"messages": "list<struct<role: string, content: string>>", "map": "map<string, int64>", "f16": "float16"} {
		if types[name] != want {
			t.Errorf("%s is a %s, want %s", name, types[name], want)
		}
	}
	if s.Columns[0].Name != "zid" || s.Columns[1].Name != "prompt" || len(s.Columns) != 38 {
		t.Errorf("columns %v", s.Columns)
	}
	if sc, ok := s.Parquet.(*parquet.Schema); !ok || len(sc.Fields()) != len(s.Columns) || sc.Fields()[1].Name() != "prompt" {
		t.Errorf("schema %v", s.Parquet)
	}
	var who bool
	for _, kv := range s.Metadata {
		who = who || kv == row.KeyValue{Key: "who", Value: "make_parquet.py"}
	}
	if !who {
		t.Errorf("metadata %v", s.Metadata)
	}
}

// counting counts what is read.
type counting struct {
	*memObject
	requests, bytes int64
}

func (c *counting) NewReader(ctx context.Context, off, n int64) io.ReadCloser {
	c.requests++
	r := c.memObject.NewReader(ctx, off, n)
	return struct {
		io.Reader
		io.Closer
	}{readerFunc(func(p []byte) (int, error) { k, err := r.Read(p); c.bytes += int64(k); return k, err }), r}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// wide writes a file of many row groups and columns whose footer is larger than the tail that is read first.
func wide(t testing.TB, rows, groups int) *memObject {
	t.Helper()
	g := parquet.Group{}
	for c := range 60 {
		g[fmt.Sprintf("c%02d", c)] = parquet.Leaf(parquet.Int64Type)
	}
	g["text"] = parquet.String()
	var b bytes.Buffer
	w := parquet.NewWriter(&b, parquet.NewSchema("t", g), parquet.Compression(&parquet.Zstd))
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range rows {
		r := make(parquet.Row, 0, 61)
		for c := range 60 {
			r = append(r, parquet.Int64Value(rnd.Int64()).Level(0, 0, c))
		}
		r = append(r, parquet.ByteArrayValue([]byte(strings.Repeat(fmt.Sprint("text ", i), 20))).Level(0, 0, 60))
		if _, err := w.WriteRows([]parquet.Row{r}); err != nil {
			t.Fatal(err)
		}
		if (i+1)%(rows/groups) == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &memObject{"wide.parquet", b.String()}
}

// TestParquetRequests holds the promise of few and small reads: one request per row group for all its columns, and not
// much more than the column's own bytes where one is read.
func TestParquetRequests(t *testing.T) {
	obj := wide(t, 4000, 20)
	all := &counting{memObject: obj}
	recs, err := readAll(t, all, Cut{}, Options{Carry: true, Format: Parquet})
	if err != nil || len(recs) != 4000 {
		t.Fatal(len(recs), err)
	}
	if all.requests > 20+2 || all.bytes > obj.Size()+2*tailBytes {
		t.Errorf("all columns: %d requests, %d of %d bytes", all.requests, all.bytes, obj.Size())
	}
	one := &counting{memObject: obj}
	if _, err := readAll(t, one, Cut{}, Options{Columns: []string{"text"}, Format: Parquet}); err != nil {
		t.Fatal(err)
	}
	if one.requests > 20+2 || one.bytes > obj.Size()/4 {
		t.Errorf("one column: %d requests, %d of %d bytes", one.requests, one.bytes, obj.Size())
	}
}

func TestParquetHostile(t *testing.T) {
	good := file(t, "v1_snappy.parquet").data
	footer := func(n uint32) string {
		return good[:len(good)-8] + string([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}) + "PAR1"
	}
	bomb := "PAR1" + strings.Repeat("\x19\xfc\xff\xff\xff\x0f", 50) // lists that claim 2^32 structures
	for _, c := range []struct{ name, data string }{
		{"PAR1PAR1", "PAR1PAR1"}, {"PAR1 and a claim", "PAR1\xff\xff\xff\x2fPAR1"}, {"a footer beyond the file", footer(uint32(len(good)))},
		{"a footer of 4 GiB", footer(1<<32 - 1)}, {"no footer", footer(0)}, {"half a footer", footer(1000)}, {"cut", good[:len(good)/2]},
		{"lists without end", bomb + "\x2c\x01\x00\x00PAR1"},
		{"nested without end", "PAR1" + strings.Repeat("\x1c", 5000) + "\x88\x13\x00\x00PAR1"},
		{"encrypted", good[:len(good)-4] + "PARE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := readAll(t, &memObject{"x.parquet", c.data}, Cut{}, Options{Carry: true})
			runtime.ReadMemStats(&after)
			var fe *FileError
			if !errors.As(err, &fe) {
				t.Fatalf("%v, want a FileError", err)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 8<<20 {
				t.Errorf("%d MiB allocated for a file of %d bytes", spent>>20, len(c.data))
			}
		})
	}
}

// TestParquetMutated damages files at random: whatever happens, it is rows or a FileError, in bounded memory.
func TestParquetMutated(t *testing.T) {
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, f := range files {
		obj := file(t, filepath.Base(f))
		for range 60 {
			checkDamaged(t, mutate(rnd, []byte(obj.data)))
		}
	}
}

func mutate(rnd *rand.Rand, b []byte) []byte {
	switch rnd.IntN(4) {
	case 0:
		for range 1 + rnd.IntN(8) {
			b[4+rnd.IntN(len(b)-12)] = byte(rnd.Uint32())
		}
	case 1:
		b[4+rnd.IntN(len(b)-12)] ^= 1 << rnd.IntN(8)
	case 2: // in the footer
		n := int(leUint32(b[len(b)-8:]))
		for range 1 + rnd.IntN(4) {
			b[len(b)-8-1-rnd.IntN(n)] ^= 1 << rnd.IntN(8)
		}
	case 3:
		from := 4 + rnd.IntN(len(b)-12)
		b = append(b[:from:from], b[min(len(b)-8, from+rnd.IntN(50)):]...)
	}
	return b
}

// mostRows, and a second, stop a damaged file whose counts were made huge: it costs nothing but time.
const mostRows = 20_000

func checkDamaged(t *testing.T, data []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := Open(context.Background(), &memObject{"x.parquet", string(data)}, Cut{}, Options{Format: Parquet, Carry: true, Columns: []string{"prompt", "messages", "map", "d38", "deep"}})
	n := 0
	for start := time.Now(); err == nil && n < mostRows && time.Since(start) < time.Second; {
		_, err = r.Read()
		n++
	}
	if r != nil && !reflect.ValueOf(r).IsNil() {
		if cerr := r.Close(); cerr != nil {
			t.Fatal(cerr)
		}
	}
	runtime.ReadMemStats(&after)
	var fe *FileError
	if err != nil && err != io.EOF && !errors.As(err, &fe) {
		t.Fatalf("%v is no FileError", err)
	}
	if spent := after.TotalAlloc - before.TotalAlloc; n < 1000 && spent > 100<<20 {
		t.Fatalf("%d MiB allocated for %d bytes and %d rows: %v", spent>>20, len(data), n, err)
	}
}

// FuzzParquet reads any bytes as Parquet.
func FuzzParquet(f *testing.F) {
	for _, name := range []string{"emptygroup.parquet", "int96.parquet", "encodings_v2.parquet", "duckdb_v2.parquet"} {
		f.Add([]byte(file(f, name).data))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkDamaged(t, data) })
}

// TestHybrid decodes random runs that are written by a plain encoder.
func TestHybrid(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		width := uint(rnd.IntN(33))
		var data []byte
		var want []uint32
		for range rnd.IntN(6) {
			mask := uint32(1<<width - 1)
			if rnd.IntN(2) == 0 {
				n, v := 1+rnd.IntN(50), rnd.Uint32()&mask
				data = append(data, byte(n<<1)) // below 64: one byte
				for i := range (width + 7) / 8 {
					data = append(data, byte(v>>(8*i)))
				}
				for range n {
					want = append(want, v)
				}
				continue
			}
			groups := 1 + rnd.IntN(5)
			packed := make([]byte, groups*int(width))
			for i := range groups * 8 {
				v := rnd.Uint32() & mask
				want = append(want, v)
				for b := range width {
					if at := uint(i)*width + b; v>>b&1 == 1 {
						packed[at/8] |= 1 << (at % 8)
					}
				}
			}
			data = append(append(data, byte(groups<<1|1)), packed...)
		}
		h := &hybrid{data: data, width: width}
		for i, w := range want {
			if got, err := h.next(); got != w || err != nil {
				t.Fatalf("width %d, value %d: %d, %v, want %d", width, i, got, err, w)
			}
		}
		if _, err := h.next(); err == nil {
			t.Fatal("a value behind the last")
		}
	}
}

func BenchmarkParquet(b *testing.B) {
	obj := wide(b, 2000, 4)
	b.SetBytes(obj.Size())
	for b.Loop() {
		if _, err := readAll(b, obj, Cut{}, Options{Format: Parquet, Carry: true}); err != nil {
			b.Fatal(err)
		}
	}
}
