package readers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// memObject is a file in memory.
type memObject struct {
	name string
	data string
}

func (m *memObject) Name() string { return "mem://t/" + m.name }
func (m *memObject) Size() int64  { return int64(len(m.data)) }
func (m *memObject) ReadAt(p []byte, off int64) (int, error) {
	return strings.NewReader(m.data).ReadAt(p, off)
}
func (m *memObject) NewReader(_ context.Context, off, n int64) io.ReadCloser {
	off = min(off, m.Size())
	if n < 0 {
		n = m.Size() - off
	}
	return io.NopCloser(io.NewSectionReader(m, off, min(n, m.Size()-off)))
}

// readAll returns a cut's records and the error that ended it, nil at its end.
func readAll(t testing.TB, obj Object, cut Cut, o Options) ([]*row.Record, error) {
	t.Helper()
	r, err := Open(context.Background(), obj, cut, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []*row.Record
	for {
		rec, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			if _, again := r.Read(); again != err {
				t.Fatalf("the error changed from %v to %v", err, again)
			}
			return out, err
		}
		out = append(out, rec)
	}
}

func gz(parts ...string) string {
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, p); err != nil {
			panic(err)
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
	}
	return b.String()
}

func zst(parts ...string) string {
	var b []byte
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	for _, p := range parts {
		b = w.EncodeAll([]byte(p), b)
	}
	return string(b)
}

func TestJSONLRows(t *testing.T) {
	for _, c := range []struct {
		name, line string
		code       row.Code // "" is ok
		prompt     any
		cells      string // "" is the line
	}{
		{name: "plain", line: `{"prompt":"a","n":1}`, prompt: "a"},
		{name: "odd spacing and numbers", line: ` { "n" : 1.50e0 , "prompt" : "a" , "b": 123456789012345678901 , "c":1e400 } `, prompt: "a"},
		{name: "null", line: `{"prompt":null}`, prompt: nil},
		{name: "big integer", line: `{"prompt":9223372036854775808}`, prompt: new(big.Int).Lsh(big.NewInt(1), 63)},
		{name: "nested", line: `{"prompt":[{"role":"user","content":null}]}`, prompt: []any{ordered.MapOf("role", "user", "content", nil)}},
		{name: "another key", line: `{"PROMPT":"a","prompt":"b"}`, prompt: "b"},
		{name: "an escaped key", line: `{"pr\u006fmpt":"b"}`, prompt: "b"},
		{name: "a user's duplicate", line: `{"x":1,"x":2,"prompt":"b"}`, prompt: "b"},
		{name: "our duplicate", line: `{"prompt":1,"pr\u006fmpt":2}`, code: row.InvalidJSON},
		{name: "line separators", line: "{\"prompt\":\"a\u2028b\u2029c\u0085d\"}", prompt: "a\u2028b\u2029c\u0085d"},
		{name: "lone surrogate", line: `{"prompt":"\ud800x\udc00","o":"\uD83D\uDE00"}`, prompt: "\ufffdx\ufffd", cells: `{"prompt":"\ufffdx\ufffd","o":"\uD83D\uDE00"}`},
		{name: "array", line: `[1,2]`, code: row.InvalidRowType},
		{name: "string", line: `"x"`, code: row.InvalidRowType},
		{name: "null line", line: `null`, code: row.InvalidRowType},
		{name: "number", line: `7`, code: row.InvalidRowType},
		{name: "leading zero", line: `01`, code: row.InvalidJSON},
		{name: "two values", line: `{"prompt":1}{"prompt":2}`, code: row.InvalidJSON},
		{name: "unfinished", line: `{"prompt":"a"`, code: row.InvalidJSON},
		{name: "trailing comma", line: `{"prompt":"a",}`, code: row.InvalidJSON},
		{name: "NaN", line: `{"prompt":NaN}`, code: row.InvalidJSON},
		{name: "control character", line: "{\"prompt\":\"a\x01b\"}", code: row.InvalidJSON},
		{name: "invalid UTF-8", line: "{\"prompt\":\"a\xffb\"}", code: row.InvalidUTF8},
		{name: "a second BOM", line: "\ufeff{\"prompt\":1}", code: row.InvalidJSON},
		{name: "too deep", line: `{"prompt":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, code: row.InvalidJSON},
		{name: "far too deep, not ours", line: `{"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, code: row.InvalidJSON},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := &memObject{"x.jsonl", "\n" + c.line + "\r\n{\"prompt\":\"next\"}"}
			recs, err := readAll(t, obj, Cut{}, Options{Format: JSONL, Columns: []string{"prompt"}, Carry: true})
			if err != nil || len(recs) != 2 {
				t.Fatal(recs, err)
			}
			r := recs[0]
			if r.Row != 0 || r.Line != 2 || r.Offset != 1 || r.Source != obj.Name() || recs[1].Fields["prompt"] != "next" || recs[1].Row != 1 {
				t.Fatalf("identity: %+v, %+v", r, recs[1])
			}
			if c.code != "" {
				if r.Err == nil || r.Err.Code != c.code || string(r.Raw) != c.line || !strings.Contains(r.Err.Message, "line 2 (byte 1)") {
					t.Fatalf("error %v, raw %q, want %s", r.Err, r.Raw, c.code)
				}
				return
			}
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if got := r.Fields["prompt"]; !reflect.DeepEqual(got, c.prompt) || len(r.Fields) != 1 {
				t.Fatalf("prompt = %#v, want %#v", got, c.prompt)
			}
			if c.cells == "" {
				c.cells = c.line
			}
			if got := string(r.Cells.(row.JSON)); got != c.cells {
				t.Fatalf("cells %s, want %s", got, c.cells)
			}
		})
	}
}

func TestJSONLFiles(t *testing.T) {
	two := "{\"a\":1}\n{\"a\":2}\n"
	for _, c := range []struct {
		name, file, data string
		rows             string // values of a, in order
	}{
		{"empty", "x.jsonl", "", "[]"},
		{"blank lines only", "x.jsonl", "\n \t\r\n\n", "[]"},
		{"no final newline", "x.jsonl", two + `{"a":3}`, "[1 2 3]"},
		{"CRLF and blank lines", "x.jsonl", "\r\n{\"a\":1}\r\n\r\n  \n{\"a\":2}\r\n", "[1 2]"},
		{"BOM", "x.jsonl", "\ufeff" + two, "[1 2]"},
		{"gzip members", "x.jsonl.gz", gz("\ufeff{\"a\":1}\n{\"a\"", ":2}\n", "", "{\"a\":3}"), "[1 2 3]"},
		{"gzip with padding", "x.jsonl.gz", gz(two) + "\x00\x00\x00", "[1 2]"},
		{"gzip by content", "x.jsonl", gz(two), "[1 2]"},
		{"zstd frames", "x.jsonl.zst", zst("{\"a\":1}\n{\"a\"", ":2}\n", "{\"a\":3}"), "[1 2 3]"},
		{"zstd after a skippable frame", "x.jsonl.zst", "\x50\x2a\x4d\x18\x02\x00\x00\x00zz" + zst(two), "[1 2]"},
		{"by content", "noname", two, "[1 2]"},
		{"empty gzip", "x.jsonl.gz", gz(""), "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := &memObject{c.file, c.data}
			recs, err := readAll(t, obj, Cut{}, Options{Columns: []string{"a"}})
			if err != nil {
				t.Fatal(err)
			}
			got := []any{}
			for i, r := range recs {
				if r.Err != nil || r.Row != int64(i) || r.Cells != nil {
					t.Fatalf("%+v", r)
				}
				got = append(got, r.Fields["a"])
			}
			if fmt.Sprint(got) != c.rows {
				t.Fatalf("%v, want %s", got, c.rows)
			}
			if n, err := Count(context.Background(), obj, Options{}); err != nil || n != int64(len(recs)) {
				t.Fatalf("Count = %d, %v", n, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, file, data, want string }{
		{"UTF-16LE", "x.jsonl", "\xff\xfe{\x00}\x00", "iconv -f UTF-16"},
		{"UTF-16BE without a mark", "x.jsonl", "\x00{\x00}\x00\n", "UTF-16BE"},
		{"UTF-16 inside gzip", "x.jsonl.gz", gz("{\x00}\x00"), "UTF-16LE"},
		{"bzip2", "x.jsonl.bz2", "BZh91AY", "bunzip2"},
		{"xz", "x.jsonl.xz", "\xfd7zXZ\x00\x00", "unxz"},
		{"lz4", "x.jsonl.lz4", "\x04\x22\x4d\x18...", "unlz4"},
		{"zip", "x.zip", "PK\x03\x04", "zip"},
		{"gzip twice", "x.jsonl.gz", gz(gz("{}")), "twice"},
		{"CSV", "x.csv", "a,b\n1,2\n", "CSV"},
		{"Arrow", "x.arrow", "ARROW1\x00\x00", "Arrow"},
		{"array", "x.json", "[{\"a\":1}]", "jq -c '.[]'"},
		{"pretty", "x.json", "{\n \"a\":1}", "jq -c ."},
		{"not Parquet", "x.parquet", "hello", "PAR1"},
		{"empty Parquet", "x.parquet", "", "PAR1"},
		{"Parquet inside gzip", "x.parquet.gz", gz("PAR1PAR1"), "decompress"},
		{"encrypted Parquet", "x.parquet", "PARE....", "encrypted"},
		{"unknown", "x.bin", "\x01\x02", "not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readAll(t, &memObject{c.file, c.data}, Cut{}, Options{})
			var fe *FileError
			if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "mem://t/"+c.file) {
				t.Fatalf("%v, want a FileError with %q", err, c.want)
			}
		})
	}
}

// TestTruncated cuts compressed files at every byte: what comes out are the first rows, whole, and then the error.
func TestTruncated(t *testing.T) {
	var text strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		fmt.Fprintf(&text, "{\"a\":%d,\"x\":\"%x\"}\n", i, r.Uint64())
	}
	half := 1 + strings.LastIndexByte(text.String()[:text.Len()/2], '\n')
	for _, c := range []struct{ name, data string }{
		{"x.jsonl.gz", gz(text.String()[:half], text.String()[half:])}, {"x.jsonl.zst", zst(text.String()[:half], text.String()[half:])},
	} {
		whole := 0
		for n := 1; n < len(c.data); n++ {
			recs, err := readAll(t, &memObject{c.name, c.data[:n]}, Cut{}, Options{Columns: []string{"a"}})
			for i, rec := range recs {
				if rec.Err != nil || rec.Fields["a"] != int64(i) {
					t.Fatalf("cut at %d: %+v", n, rec)
				}
			}
			var fe *FileError
			if err == nil && whole == 0 { // exactly between the members
				whole++
				continue
			}
			if !errors.As(err, &fe) || !fe.Truncated {
				t.Fatalf("%s cut at %d of %d: %d rows, %v", c.name, n, len(c.data), len(recs), err)
			}
		}
		for _, back := range []int{3, 7} { // the last member's checksum, length or data
			flip := []byte(c.data)
			flip[len(flip)-back] ^= 0x55
			recs, err := readAll(t, &memObject{c.name, string(flip)}, Cut{}, Options{})
			var fe *FileError
			if !errors.As(err, &fe) || fe.Truncated {
				t.Fatalf("damaged %s: %d rows, %v", c.name, len(recs), err)
			}
		}
	}
}

// TestEmptyFiles: a file of no bytes is an input of no rows, also where its name promises compression.
func TestEmptyFiles(t *testing.T) {
	for _, name := range []string{"x.jsonl", "x.ndjson", "x.json", "x", "x.jsonl.gz", "x.JSONL.GZ", "x.jsonl.zst", "x.json.zstd", "x.gz", "x.jsonl.gz?region=eu"} {
		obj := &memObject{name, ""}
		cuts, rows, err := Cuts(context.Background(), obj, Options{}, 1000)
		if err != nil || len(cuts) != 1 || rows != 0 {
			t.Errorf("%s: %d cuts, %d rows, %v", name, len(cuts), rows, err)
		}
		if recs, err := readAll(t, obj, Cut{}, Options{}); err != nil || len(recs) != 0 {
			t.Errorf("%s: %d records, %v", name, len(recs), err)
		}
	}
	for _, name := range []string{"x.parquet", "x.parquet.gz", "x.csv.gz", "x.txt.gz"} {
		var fe *FileError
		if _, err := readAll(t, &memObject{name, ""}, Cut{}, Options{}); !errors.As(err, &fe) || fe.Truncated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLongLines holds the limit on both sides, without and with a line end, and that a long line is not held.
func TestLongLines(t *testing.T) {
	const limit = 200 << 10
	line := func(n int) string { return `{"a":"` + strings.Repeat("x", n-8) + `"}` }
	for _, c := range []struct {
		n   int
		end string
		ok  bool
	}{{limit, "\n", true}, {limit, "\r\n", true}, {limit, "", true}, {limit + 1, "\n", false}, {limit + 1, "\r\n", false}, {limit + 1, "", false}, {5 * limit, "\n", false}, {5 * limit, "", false}} {
		data := "{\"a\":1}\n" + line(c.n) + c.end
		if c.end != "" {
			data += "{\"a\":3}"
		}
		recs, err := readAll(t, &memObject{"x.jsonl", data}, Cut{}, Options{MaxLineBytes: limit})
		if err != nil || len(recs) != 2 && c.end == "" || len(recs) != 3 && c.end != "" {
			t.Fatalf("%d%q: %d rows, %v", c.n, c.end, len(recs), err)
		}
		if ok := recs[1].Err == nil; ok != c.ok || !ok && recs[1].Err.Code != row.LineTooLong || recs[1].Offset != 8 {
			t.Fatalf("%d%q: %+v", c.n, c.end, recs[1].Err)
		}
		if c.end != "" && (recs[2].Err != nil || recs[2].Offset != int64(8+c.n+len(c.end)) || recs[2].Line != 3) {
			t.Fatalf("after the long line: %+v", recs[2])
		}
	}
	s := newLineScanner(io.LimitReader(zeros{}, 1<<30), 1<<20)
	if l, err := s.next(); err != nil || !l.long || len(l.text) > maxRawStart || len(s.buf) > 4<<20 {
		t.Fatalf("%d bytes of a 1 GiB line are kept, buffer %d, %v", len(l.text), len(s.buf), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestJSONLCuts reads random files whole and cut up, with any split size: the records are the same.
func TestJSONLCuts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		var b strings.Builder
		if rnd.IntN(2) == 0 {
			b.WriteString("\ufeff")
		}
		for i := range rnd.IntN(30) {
			b.WriteString([]string{"", "\n", " \n", "\r\n"}[rnd.IntN(4)])
			fmt.Fprintf(&b, `{"i":%d,"s":"%s"}`, i, strings.Repeat("é", rnd.IntN(40)))
			b.WriteString([]string{"\n", "\r\n"}[rnd.IntN(2)])
		}
		if rnd.IntN(2) == 0 {
			b.WriteString(`{"i":"last"}`)
		}
		obj := &memObject{"x.jsonl", b.String()}
		o := Options{Columns: []string{"i"}, Carry: true}
		want, err := readAll(t, obj, Cut{}, o)
		if err != nil {
			t.Fatal(err)
		}
		cuts, rows, err := Cuts(context.Background(), obj, o, 1+rnd.Int64N(200))
		if err != nil || rows != int64(len(want)) {
			t.Fatal(rows, err)
		}
		var got []*row.Record
		for _, c := range cuts {
			part, err := readAll(t, obj, c, o)
			if err != nil || int64(len(part)) != c.Rows {
				t.Fatalf("cut %+v has %d rows, %v", c, len(part), err)
			}
			got = append(got, part...)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("cuts %+v of %q differ", cuts, obj.data)
		}
	}
}

func TestDeadLetters(t *testing.T) {
	e := `"_error":{"code":"timeout","message":"m"}`
	for _, c := range []struct{ line, cells string }{
		{`{"prompt":"a", "n": 1,` + e + `,"_seed":7}`, `{"prompt":"a", "n": 1}`},
		{`{` + e + `,"_seed":7,"prompt":"a"}`, `{"prompt":"a"}`},
		{`{ "prompt":"a" , ` + e + ` , "_seed":7 , "z":1 }`, `{ "prompt":"a" , "z":1 }`},
		{`{"_raw_base64":"eyJwcm9tcHQiOiJhIn0=",` + e + `}`, `{"prompt":"a"}`},
		{`{"_error":"mine","_seed":7,"prompt":"a"}`, `{"_error":"mine","_seed":7,"prompt":"a"}`}, // not ours: no object
		{`{"_seed":7,"prompt":"a"}`, `{"_seed":7,"prompt":"a"}`},
	} {
		recs, err := readAll(t, &memObject{"x.jsonl", c.line}, Cut{}, Options{Columns: []string{"prompt"}, Carry: true})
		if err != nil || len(recs) != 1 || recs[0].Err != nil {
			t.Fatal(c.line, recs[0].Err, err)
		}
		if got := string(recs[0].Cells.(row.JSON)); got != c.cells || recs[0].Fields["prompt"] != "a" {
			t.Errorf("%s became %s %v, want %s", c.line, got, recs[0].Fields, c.cells)
		}
		if _, has := recs[0].Fields[SeedField]; has != (strings.Contains(c.line, `"_seed":7`) && strings.Contains(c.line, e)) {
			t.Errorf("%s: seed %v", c.line, recs[0].Fields)
		}
	}
	recs, err := readAll(t, &memObject{"x.jsonl", `{"_raw_base64":"e3g=","_error":{}}`}, Cut{}, Options{})
	if err != nil || recs[0].Err == nil || string(recs[0].Raw) != "{x" {
		t.Errorf("a broken record inside a dead letter: %+v, %v", recs[0], err)
	}
}

func TestJSONLSchema(t *testing.T) {
	data := `{"b":"x","a":null,"n":1}` + "\nbroken\n" + `{"a":"y","b":null,"c":[1],"e":null}` + "\n" + `{"late":1}`
	s, err := Schema(context.Background(), &memObject{"x.jsonl", data}, Options{}, 3)
	want := []row.Column{{Name: "b", Type: "string"}, {Name: "a", Type: "string"}, {Name: "n", Type: "json"}, {Name: "c", Type: "json"}, {Name: "e", Type: "json"}}
	if err != nil || s.Format != JSONL || !reflect.DeepEqual(s.Columns, want) {
		t.Fatalf("%+v, %v, want %v", s, err, want)
	}
}

func TestOpenAI(t *testing.T) {
	for _, c := range []struct {
		line string
		code row.Code
	}{
		{`{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"messages":[],"stream":false}}`, ""},
		{`{"custom_id":"1","method":"POST","url":"/v1/completions","body":{"prompt":"x"}}`, ""},
		{`{"method":"POST","url":"/v1/completions","body":{}}`, row.MissingColumn},
		{`{"custom_id":1,"method":"POST","url":"/v1/completions","body":{}}`, row.InvalidParams},
		{`{"custom_id":"1","method":"GET","url":"/v1/completions","body":{}}`, row.UnsupportedRequest},
		{`{"custom_id":"1","method":"POST","url":"/v1/embeddings","body":{}}`, row.UnsupportedRequest},
		{`{"custom_id":"1","method":"POST","url":"/v1/completions","body":"{}"}`, row.InvalidRowType},
		{`{"custom_id":"1","method":"POST","url":"/v1/completions","body":{"stream":true}}`, row.UnsupportedRequest},
	} {
		recs, err := readAll(t, &memObject{"x.jsonl", c.line}, Cut{}, Options{Columns: OpenAIColumns})
		if err != nil {
			t.Fatal(err)
		}
		if !IsOpenAI(recs[0]) {
			t.Errorf("%s is not recognised", c.line)
		}
		req, rerr := OpenAI(recs[0])
		if c.code == "" && (rerr != nil || req.CustomID != "1" || req.Body == nil) || c.code != "" && (rerr == nil || rerr.Code != c.code) {
			t.Errorf("%s: %+v, %v", c.line, req, rerr)
		}
	}
}

// TestJSONLMemory streams many rows: what is alive must not grow with them.
func TestJSONLMemory(t *testing.T) {
	const rows = 300_000
	r, err := openJSONL(context.Background(), &bigObject{rows: rows}, detected{format: JSONL}, Cut{}, Options{Columns: []string{"prompt"}, Carry: true}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	n := 0
	for ; ; n++ {
		rec, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil || rec.Err != nil {
			t.Fatal(err, rec)
		}
		if n%50_000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&m)
			if m.HeapAlloc > 16<<20 {
				t.Fatalf("%d MiB are alive after %d rows", m.HeapAlloc>>20, n)
			}
		}
	}
	if n != rows {
		t.Fatalf("%d rows", n)
	}
}

// bigObject repeats one line.
type bigObject struct{ rows int }

const bigLine = `{"id":"row-000000","prompt":"Summarise: the quick brown fox jumps over the lazy dog","n":1}` + "\n"

func (b *bigObject) Name() string                      { return "mem://t/big.jsonl" }
func (b *bigObject) Size() int64                       { return int64(b.rows * len(bigLine)) }
func (b *bigObject) ReadAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (b *bigObject) NewReader(context.Context, int64, int64) io.ReadCloser {
	block := strings.Repeat(bigLine, 1000)
	readers := make([]io.Reader, b.rows/1000)
	for i := range readers {
		readers[i] = strings.NewReader(block)
	}
	return io.NopCloser(io.MultiReader(readers...))
}

func BenchmarkJSONL(b *testing.B) {
	for b.Loop() {
		r, err := openJSONL(context.Background(), &bigObject{rows: 10_000}, detected{format: JSONL}, Cut{}, Options{Columns: []string{"prompt"}, Carry: true}.withDefaults())
		if err != nil {
			b.Fatal(err)
		}
		for {
			if _, err := r.Read(); err != nil {
				break
			}
		}
	}
	b.SetBytes(int64(10_000 * len(bigLine)))
}

// FuzzJSONL holds for any bytes: no panic, rows numbered from 0, cuts equal to the whole, counted as read.
func FuzzJSONL(f *testing.F) {
	for _, s := range []string{"", "{}\n{", "\ufeff{\"prompt\":\"\\ud800\"}\r\n", "[1]\n\n 7", gz("{}\n"), zst("{}\n"), `{"_error":{},"_raw_base64":"e30="}`} {
		f.Add([]byte(s), uint16(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, split uint16) {
		obj := &memObject{"x.jsonl", string(data)}
		o := Options{Format: JSONL, Columns: []string{"prompt"}, Carry: true, MaxLineBytes: 100}
		want, err := readAll(t, obj, Cut{}, o)
		cuts, rows, cerr := Cuts(context.Background(), obj, o, int64(split))
		if (err == nil) != (cerr == nil) {
			t.Fatalf("read %v, count %v", err, cerr)
		}
		if err != nil {
			return
		}
		var got []*row.Record
		for _, c := range cuts {
			part, err := readAll(t, obj, c, o)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, part...)
		}
		if int64(len(want)) != rows || !reflect.DeepEqual(got, want) {
			t.Fatalf("%d rows read, %d counted, %d by cuts", len(want), rows, len(got))
		}
		for i, r := range want {
			if r.Row != int64(i) {
				t.Fatalf("row %d is numbered %d", i, r.Row)
			}
			if j, ok := r.Cells.(row.JSON); ok {
				if _, err := ordered.DecodeJSON(j); err != nil && !bytes.Contains(j, []byte("[[[[")) && !bytes.Contains(j, []byte("{\"")) {
					t.Fatalf("cells %q: %v", j, err)
				}
			}
		}
	})
}

// FuzzDecompress holds that damaged compressed data ends in a FileError and never in a panic.
func FuzzDecompress(f *testing.F) {
	f.Add([]byte(gz("{}\n", "{}")))
	f.Add([]byte(zst("{}\n", "{}")))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := compressionOf(data)
		if c == "" {
			return
		}
		r, err := decompress(io.NopCloser(bytes.NewReader(data)), c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := io.Copy(io.Discard, io.LimitReader(r, 16<<20)); err != nil && !isDamage(err) {
			t.Fatalf("%v is not told as damage", err)
		}
	})
}
