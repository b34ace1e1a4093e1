package writers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/go-json-experiment/json/jsontext"
)

var jsonSource = &row.Schema{Format: "jsonl", Columns: []row.Column{{Name: "id", Type: "string"}, {Name: "n", Type: "json"}}}

func writeLine(t testing.TB, cfg Config, rec *row.Record, res *row.Result) string {
	t.Helper()
	var out bytes.Buffer
	w, err := New(&out, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(rec, res); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	line, ok := strings.CutSuffix(out.String(), "\n")
	if !ok || strings.Contains(line, "\n") {
		t.Fatalf("not one line: %q", out.String())
	}
	return line
}

func TestSplice(t *testing.T) {
	one := Config{Format: JSONL, Source: jsonSource, Own: []string{"row_index", "status"}}
	pick := one
	pick.Carry = []string{"id", "n"}
	none := one
	none.Carry = []string{}
	prefixed := one
	prefixed.Prefix = "bm_"
	nothing := Config{Format: JSONL, Source: jsonSource, Own: []string{}}
	const ours = `"row_index":0,"status":"ok"}`
	for _, c := range []struct {
		name string
		cfg  Config
		in   string
		want string
	}{
		{"empty", one, `{}`, `{` + ours},
		{"empty with space", one, " {\t } \r", " {\t " + ours},
		{"plain", one, `{"id":"a"}`, `{"id":"a",` + ours},
		{"spacing", one, `{ "id" :  "a" , "n":1.50e0 }`, `{ "id" :  "a" , "n":1.50e0 ,` + ours},
		{"big numbers", one, `{"n":123456789012345678901234567890,"m":1e400,"z":-0.0}`, `{"n":123456789012345678901234567890,"m":1e400,"z":-0.0,` + ours},
		{"duplicates and order", one, `{"z":1,"a":2,"z":3}`, `{"z":1,"a":2,"z":3,` + ours},
		{"brackets in strings", one, `{"a":"}]\"{\\","b":[{"c":"]"}]}`, `{"a":"}]\"{\\","b":[{"c":"]"}],` + ours},
		{"ends in an object", one, `{"a":{}}`, `{"a":{},` + ours},
		{"escapes", one, `{"a":"\u00e9\ud83d\ude00\/\ud800"}`, `{"a":"\u00e9\ud83d\ude00\/\ud800",` + ours},
		{"line separators stay in the user's part", one, "{\"a\":\"x\u2028\u0085\"}", "{\"a\":\"x\u2028\u0085\"," + ours},
		{"html", one, `{"a":"<&>"}`, `{"a":"<&>",` + ours},
		{"line feeds between tokens", one, "{\n\"a\":1\n}", "{ \"a\":1 ," + ours},
		{"picked", pick, `{"x":[1,{"id":2}], "id" : "a","y":null,"n":  1.0 , "id":7}`, `{"id" : "a","n":  1.0,"id":7,` + ours},
		{"picked by escaped name", pick, `{"\u0069d":1}`, `{"\u0069d":1,` + ours},
		{"none", none, `{"id":1}`, `{` + ours},
		{"late collision", one, `{"a":1,"status": [2] ,"b":3}`, `{"a":1,"b":3,"_extra":{"status":[2]},` + ours},
		{"late collision by escaped name", one, `{"st\u0061tus":2}`, `{"_extra":{"st\u0061tus":2},` + ours},
		{"late collision with _extra", one, `{"_extra":1,"status":2}`, `{"_extra":{"_extra":1,"status":2},` + ours},
		{"no collision with _extra alone", one, `{"_extra":1}`, `{"_extra":1,` + ours},
		{"prefix", prefixed, `{"status":2}`, `{"status":2,"bm_row_index":0,"bm_status":"ok"}`},
		{"nothing of ours", nothing, `{ "a" : 1 }`, `{ "a" : 1 }`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := writeLine(t, c.cfg, &row.Record{Cells: row.JSON(c.in)}, &row.Result{Status: row.OK})
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
	for _, in := range []string{``, `[1]`, `null`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1}}`, `{"a":1} {}`, `{"a" 1}`, `{1:2}`, `{"a":}`, `{"a":"x}`} {
		w, _ := New(&bytes.Buffer{}, one)
		if err := w.Write(&row.Record{Cells: row.JSON(in)}, &row.Result{}); err == nil {
			t.Errorf("carried %q without an error", in)
		}
	}
	w, _ := New(&bytes.Buffer{}, one)
	if err := w.Write(&row.Record{Cells: 7}, &row.Result{}); err == nil {
		t.Error("carried cells of an unknown type")
	}
}

// TestOurColumnsJSON holds names, order, types and nulls of all columns.
func TestOurColumnsJSON(t *testing.T) {
	cfg := Config{Format: JSONL, Logprobs: true, TokenIDs: true, Provenance: testProvenance}
	got := writeLine(t, cfg, nil, testResult(6))
	want := `{"source_file":"file:///in/a.parquet","row_index":6,"custom_id":"id-6","sample_index":0,"status":"ok",` +
		`"completion":"answer 6 \u2028 \"<é>\"\n","finish_reason":"stop","stop_reason":"<|im_end|>","error_code":null,"error_message":null,` +
		`"prompt_tokens":11,"cached_tokens":4,"completion_tokens":2,"total_tokens":13,` +
		`"queue_time_ms":1,"prefill_time_ms":2,"ttft_ms":3,"decode_time_ms":3,"tpot_ms":3,"e2e_latency_ms":6,` +
		`"attempts":1,"dedup_of":5,"seed":42,"logprobs":[{"id":5,"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[{"id":6,"token":"b","bytes":[],"logprob":null}]}],` +
		`"token_ids":[1,2],"model":"tiny","model_digest":"` + strings.Repeat("ab", 32) + `","run_id":"run-1"}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = writeLine(t, cfg, nil, testResult(1))
	want = `{"source_file":"file:///in/a.parquet","row_index":1,"custom_id":null,"sample_index":0,"status":"error",` +
		`"completion":null,"finish_reason":null,"stop_reason":null,"error_code":"context_length_exceeded","error_message":"row 1: the prompt has ` + "\ufffd" + ` too many tokens",` +
		`"prompt_tokens":11,"cached_tokens":4,"completion_tokens":1,"total_tokens":15,`
	want = strings.Replace(want, `"total_tokens":15`, `"total_tokens":12`, 1) +
		`"queue_time_ms":null,"prefill_time_ms":null,"ttft_ms":null,"decode_time_ms":null,"tpot_ms":null,"e2e_latency_ms":null,` +
		`"attempts":1,"dedup_of":null,"seed":7,"logprobs":null,"token_ids":null,"model":"tiny","model_digest":"` + strings.Repeat("ab", 32) + `","run_id":"run-1"}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestStringEscapes reads back what appendString writes.
func TestStringEscapes(t *testing.T) {
	var all []rune
	for r := rune(0); r < 0x3000; r++ {
		all = append(all, r)
	}
	in := string(all) + "\U0001F600\U0010FFFF"
	out := appendString(nil, in)
	var back string
	if err := json.Unmarshal(out, &back); err != nil || back != in {
		t.Errorf("does not read back: %v", err)
	}
	for _, r := range []rune{0x85, 0x2028, 0x2029} {
		if bytes.ContainsRune(out, r) {
			t.Errorf("%U is not escaped", r)
		}
	}
	if got := string(appendString(nil, "a\xffb\xe2\x80")); got != `"a\ufffdb\ufffd\ufffd"` {
		t.Errorf("invalid UTF-8 gives %s", got)
	}
	for _, c := range []struct {
		f    float64
		bits int
		want string
	}{{0, 64, "0"}, {negInf, 64, "null"}, {1e21, 64, "1e+21"}, {1e20, 64, "100000000000000000000"}, {1e-7, 64, "1e-07"}, {float64(float32(0.1)), 32, "0.1"}, {0.1, 64, "0.1"}} {
		if got := string(appendFloat(nil, c.f, c.bits)); got != c.want {
			t.Errorf("%v is %s, want %s", c.f, got, c.want)
		}
	}
}

// TestParquetToJSON compares every type with a golden, which -update writes anew.
func TestParquetToJSON(t *testing.T) {
	for _, name := range []string{"types.parquet", "duckdb.parquet", "int96.parquet"} {
		in := openFixture(t, name)
		data, stats := writePart(t, Config{Format: JSONL, Source: in.schema, Own: []string{"row_index"}}, cellsOf(in.rows[:8]))
		if stats.Rows != 8 {
			t.Errorf("%s: %d rows", name, stats.Rows)
		}
		for line := range bytes.Lines(data) {
			if _, err := ordered.DecodeJSON(line); err != nil {
				t.Errorf("%s: %v in %s", name, err, line)
			}
		}
		golden := filepath.Join("testdata", strings.TrimSuffix(name, ".parquet")+".golden.jsonl")
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(golden, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, want) {
			t.Errorf("%s: got\n%swant\n%s", name, data, want)
		}
	}
}

// FuzzSplice: for any valid object the line is valid JSON, and the user's part is byte-equal; a subset is the same bytes
// as those members; the digest computed from the line is the writer's.
func FuzzSplice(f *testing.F) {
	for _, s := range []string{`{}`, `{ "a" : [1,{"b":"}"}] , "status":2}`, `{"\u0061":"\\\"","a":-0.0e5}`, "{\"_extra\":\"\u2028\",\"row_index\":null}", `{"id":"\ud800","n":123456789012345678901}`} {
		f.Add([]byte(s))
	}
	whole := Config{Format: JSONL, Source: jsonSource, Own: []string{"row_index", "status"}}
	subset := whole
	subset.Carry = []string{"id", "n"}
	f.Fuzz(func(t *testing.T, in []byte) {
		d := jsontext.NewDecoder(bytes.NewReader(in), jsontext.AllowDuplicateNames(true))
		value, err := d.ReadValue()
		if err != nil || value.Kind() != '{' || bytes.IndexByte(in, '\n') >= 0 || !jsontext.Value(in).IsValid(jsontext.AllowDuplicateNames(true)) {
			_, _, _ = scanMembers(in, nil) // any bytes: no panic
			return
		}
		members := decodeMembers(t, in)
		for _, cfg := range []Config{whole, subset} {
			var out bytes.Buffer
			w, err := New(&out, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Write(&row.Record{Cells: row.JSON(in)}, &row.Result{Status: row.OK}); err != nil {
				t.Fatalf("refused %q: %v", in, err)
			}
			stats, err := w.Close()
			if err != nil {
				t.Fatal(err)
			}
			line := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
			if !jsontext.Value(line).IsValid(jsontext.AllowDuplicateNames(true)) {
				t.Fatalf("%q gives %q", in, line)
			}
			var want, moved []string
			collides := false
			for _, m := range members {
				collides = collides || cfg.carries(m.name) && (m.name == "status" || m.name == "row_index")
			}
			for _, m := range members {
				switch {
				case !cfg.carries(m.name):
				case m.name == "status" || m.name == "row_index" || collides && m.name == "_extra":
					moved = append(moved, m.name+"="+m.value)
				default:
					want = append(want, m.name+"="+m.value)
				}
			}
			var got []string
			for _, m := range decodeMembers(t, line) {
				if m.name == "_extra" && collides {
					for _, e := range decodeMembers(t, []byte(m.value)) {
						moved = moved[:copy(moved, check(t, moved, e.name+"="+e.value))]
					}
					continue
				}
				got = append(got, m.name+"="+m.value)
			}
			want = append(want, "row_index=0", `status="ok"`)
			if fmt.Sprint(got) != fmt.Sprint(want) || len(moved) > 0 {
				t.Fatalf("%q gives %q:\n got %q\nwant %q\nlost %q", in, line, got, want, moved)
			}
			if cfg.Carry == nil && !collides && !bytes.HasPrefix(line, bytes.TrimRight(bytes.TrimSuffix(bytes.TrimRight(in, " \t\r"), []byte("}")), "")) {
				t.Fatalf("%q does not start %q", in, line)
			}
			again, err := Digest(cfg, nil, records(row.JSON(line)))
			if err != nil || again != stats {
				t.Fatalf("%q: digest %+v again, was %+v (%v)", in, again, stats, err)
			}
		}
	})
}

// check takes the first of moved off, which must be got.
func check(t *testing.T, moved []string, got string) []string {
	if len(moved) == 0 || moved[0] != got {
		t.Fatalf("moved %q, want %q", got, moved)
	}
	return moved[1:]
}

type nameValue struct{ name, value string }

// decodeMembers splits an object with a real JSON decoder, to compare scanMembers with.
func decodeMembers(t testing.TB, object []byte) (list []nameValue) {
	d := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		t.Fatal(err)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			t.Fatal(err)
		}
		n := nameValue{name: name.String()}
		v, err := d.ReadValue()
		if err != nil {
			t.Fatal(err)
		}
		n.value = string(v)
		list = append(list, n)
	}
	return list
}
