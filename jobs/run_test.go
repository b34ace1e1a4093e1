package jobs

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

// tinyModel is a model of three small layers, whose reference results package model holds.
const tinyModel = "../infer/model/testdata/llama"

// rowsJSONL makes n rows of prompts of mixed lengths.
func rowsJSONL(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"id": "r%d", "text": %q, "big": 12345678901234567890}`+"\n", i, strings.Repeat("word ", i*7%40)+fmt.Sprint("row ", i))
	}
	return b.Bytes()
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func testSpec(input, output string) Spec {
	s := Spec{Model: tinyModel, Inputs: []string{input}, Output: output, Prompt: "{{ text }}", Params: infer.DefaultParams(), KVMemory: 64 << 20, Threads: 2}
	s.Params.MaxTokens = 6
	return s
}

func runJob(t *testing.T, ctx context.Context, s Spec, ev Events) (*Summary, error) {
	t.Helper()
	store := objstore.New(objstore.Options{TmpDir: TmpDir(s.Output)})
	defer store.Close()
	j, err := Prepare(ctx, s, store, ev)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	return j.Run(ctx)
}

func mustRun(t *testing.T, s Spec) *Summary {
	t.Helper()
	sum, err := runJob(t, context.Background(), s, Events{})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// measurements are the columns that may differ between runs; all others are result columns.
var measurements = []string{"cached_tokens", "queue_time_ms", "prefill_time_ms", "ttft_ms", "decode_time_ms", "tpot_ms", "e2e_latency_ms", "attempts", "dedup_of", "run_id", "error_message"}

// results reads the result columns of all rows of an output folder, in order.
func results(t *testing.T, out string) []map[string]any {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(out, "part-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(parts)
	var rows []map[string]any
	for _, p := range parts {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var m map[string]any
			d := json.NewDecoder(bytes.NewReader(line))
			d.UseNumber()
			if err := d.Decode(&m); err != nil {
				t.Fatalf("%s: %v", p, err)
			}
			for _, name := range measurements {
				delete(m, name)
			}
			rows = append(rows, m)
		}
	}
	return rows
}

func equalRows(t *testing.T, got, want []map[string]any) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("row %d is\n%v, want\n%v", i, got[i], want[i])
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func TestInterruptedJobGoesOnWhereItStopped(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(60))
	whole := testSpec(in, dir+"/whole/")
	mustRun(t, whole)
	want := results(t, dir+"/whole")
	if len(want) != 60 || want[59]["id"] != "r59" || want[3]["big"] != json.Number("12345678901234567890") {
		t.Fatalf("rows are not in input order, or carried columns changed: %v", want)
	}

	s := testSpec(in, dir+"/out/")
	s.SplitBytes, s.OpenShards = 1000, 1
	ctx, cancel := context.WithCancel(context.Background())
	sum, err := runJob(t, ctx, s, Events{Part: func(string, *Facts) { cancel() }})
	if KindOf(err) != Interrupted || sum.ExitCode != 75 {
		t.Fatalf("cancelled after the first part: %v, %+v", err, sum)
	}
	r := sum.Rows
	if r.Total != 60 || r.Total != r.OK+r.Error+r.Skipped+r.NotStarted || r.OK == 0 || r.NotStarted == 0 {
		t.Errorf("rows do not add up: %+v", r)
	}
	if exists(dir + "/out/_SUCCESS") {
		t.Error("_SUCCESS stands beside an unfinished job")
	}
	before, _ := filepath.Glob(dir + "/out/part-*")
	times := map[string]os.FileInfo{}
	for _, p := range before {
		times[p], _ = os.Stat(p)
	}
	sum = mustRun(t, s)
	if sum.Rows.OK != 60 || sum.Rows.NotStarted != 0 {
		t.Errorf("after going on: %+v", sum.Rows)
	}
	for p, info := range times {
		if now, err := os.Stat(p); err != nil || !now.ModTime().Equal(info.ModTime()) {
			t.Errorf("%s was written again", p)
		}
	}
	equalRows(t, results(t, dir+"/out"), want)
	if !exists(dir + "/out/_SUCCESS") {
		t.Error("_SUCCESS is missing")
	}
	if sum = mustRun(t, s); sum.Batch.Steps != 0 || sum.Rows.OK != 60 {
		t.Errorf("a third run did something: %+v", sum)
	}
}

func TestShardsOfSeveralProcessesMakeOneJob(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(50))
	mustRun(t, testSpec(in, dir+"/whole/"))
	total := int64(0)
	for i := range 3 {
		s := testSpec(in, dir+"/out/")
		s.SplitBytes, s.Shard = 900, Shard{i, 3}
		total += mustRun(t, s).Rows.OK
		if exists(dir+"/out/_SUCCESS") != (i == 2) {
			t.Errorf("after process %d of 3: _SUCCESS is %v", i, i != 2)
		}
	}
	if total != 50 {
		t.Errorf("the processes did %d rows together, want 50", total)
	}
	equalRows(t, results(t, dir+"/out"), results(t, dir+"/whole"))
}

func TestAnotherJobIsRefusedUntilOverwritten(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(5))
	s := testSpec(in, dir+"/out/")
	mustRun(t, s)
	other := s
	other.Prompt = "Say: {{ text }}"
	_, err := runJob(t, context.Background(), other, Events{})
	if KindOf(err) != BadInput || !strings.Contains(err.Error(), "prompt") {
		t.Fatalf("another prompt: %v", err)
	}
	faster := s
	faster.Threads, faster.BatchTokens, faster.WindowRows = 1, 64, 3
	if sum := mustRun(t, faster); sum.Batch.Steps != 0 {
		t.Error("threads, batch size and window are no reason to run anything again")
	}
	before := results(t, dir+"/out")
	other.Overwrite = true
	if sum := mustRun(t, other); sum.Rows.OK != 5 || sum.Batch.Steps == 0 {
		t.Errorf("overwriting: %+v", sum)
	}
	if reflect.DeepEqual(before, results(t, dir+"/out")) {
		t.Error("the output is still the old one")
	}
}

func TestPartsWithoutAPlanAreRefused(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(3))
	os.Mkdir(dir+"/out", 0o755)
	writeFile(t, dir+"/out/part-00000-of-00001.jsonl", []byte("{}\n"))
	if _, err := runJob(t, context.Background(), testSpec(in, dir+"/out/"), Events{}); KindOf(err) != BadInput || !strings.Contains(err.Error(), "--overwrite") {
		t.Fatalf("got %v", err)
	}
}

func TestAPartChangedByHandIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(3))
	mustRun(t, testSpec(in, dir+"/out/"))
	part := dir + "/out/part-00000-of-00001.jsonl"
	data, _ := os.ReadFile(part)
	writeFile(t, part, data[:len(data)-5])
	if _, err := runJob(t, context.Background(), testSpec(in, dir+"/out/"), Events{}); KindOf(err) != BadInput {
		t.Fatalf("got %v", err)
	}
}

func TestTruncatedFileKeepsTheRowsBefore(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(rowsJSONL(400))
	z.Close()
	in := writeFile(t, dir+"/in.jsonl.gz", b.Bytes()[:b.Len()-200])
	sum, err := runJob(t, context.Background(), testSpec(in, dir+"/out/"), Events{})
	if sum == nil {
		t.Fatal(err)
	}
	if KindOf(err) != BadInput || sum.ExitCode != 65 || sum.Errors[row.SourceTruncated] != 1 || sum.Rows.OK == 0 {
		t.Fatalf("got %v, %+v", err, sum)
	}
	rows := results(t, dir+"/out")
	if last := rows[len(rows)-1]; last["error_code"] != string(row.SourceTruncated) || int64(len(rows)) != sum.Rows.OK+1 {
		t.Errorf("%d rows, the last is %v", len(rows), last)
	}
	again, err := runJob(t, context.Background(), testSpec(in, dir+"/out/"), Events{})
	if KindOf(err) != BadInput || again.Batch.Steps != 0 {
		t.Errorf("the second run: %v, %+v", err, again)
	}
}

func TestLimitSamplesAndSingleObject(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/a.jsonl", rowsJSONL(4))
	writeFile(t, dir+"/b.jsonl", rowsJSONL(4))
	s := testSpec(dir+"/*.jsonl", dir+"/res/out.jsonl")
	s.Limit, s.Samples, s.Params.Temperature = 6, 3, 1
	sum := mustRun(t, s)
	if sum.Rows.Total != 18 || sum.Output.Parts != 1 {
		t.Fatalf("6 rows with 3 samples: %+v", sum)
	}
	data, err := os.ReadFile(dir + "/res/out.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	seeds, i := map[string]bool{}, 0
	for line := range bytes.Lines(data) {
		var m struct {
			Source string      `json:"source_file"`
			Row    int         `json:"row_index"`
			Sample int         `json:"sample_index"`
			Seed   json.Number `json:"seed"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		if m.Row != i/3%4 || m.Sample != i%3 {
			t.Errorf("line %d is row %d sample %d", i, m.Row, m.Sample)
		}
		seeds[m.Seed.String()+m.Source] = true
		i++
	}
	if i != 18 || len(seeds) != 18 {
		t.Errorf("%d lines with %d seeds, want 18 of both", i, len(seeds))
	}
	if !exists(dir + "/res/out.jsonl.batchmill/_SUCCESS") {
		t.Error("side objects of a single object lie beside it")
	}
}

func TestResultsDoNotDependOnTheWayTheyAreMade(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(40))
	base := testSpec(in, dir+"/base/")
	base.Params.ReturnTokenIDs, base.Params.Temperature, base.Params.Logprobs = true, 0.8, 2
	mustRun(t, base)
	want := results(t, dir+"/base")
	for i, change := range []func(*Spec){
		func(s *Spec) { s.Threads = 1 },
		func(s *Spec) { s.MaxSeqs = 1 },
		func(s *Spec) { s.MaxSeqs = 7; s.BatchTokens = 64 },
		func(s *Spec) { s.BatchTokens = 4096; s.WindowRows = 5 },
		func(s *Spec) { s.SplitBytes = 700 },
		func(s *Spec) { s.KVMemory = 400_000 },
	} {
		s := base
		s.Output = fmt.Sprintf("%s/way%d/", dir, i)
		change(&s)
		mustRun(t, s)
		equalRows(t, results(t, strings.TrimSuffix(s.Output, "/")), want)
	}
}

func TestOutputsThatAreInputsAreRefused(t *testing.T) {
	dir := t.TempDir()
	os.Mkdir(dir+"/in", 0o755)
	in := writeFile(t, dir+"/in/a.jsonl", rowsJSONL(2))
	if err := os.Symlink(dir+"/in", dir+"/link"); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	for _, c := range []struct{ input, output string }{
		{in, in},
		{in, dir + "/link/a.jsonl"},
		{dir + "/in/", dir + "/in/out/"},
		{dir + "/in/", dir + "/link/out/"},
		{dir + "/in/*.jsonl", dir + "/in/out.jsonl"},
		{dir + "/in/**", dir + "/in/o"},
		{dir + "/link/**", dir + "/in/o"},
		{in, dir + "/in/"},
		{in, dir + "/link/"},
	} {
		s := testSpec(c.input, c.output)
		s.Overwrite = true
		if _, err := runJob(t, context.Background(), s, Events{}); KindOf(err) != Usage {
			t.Errorf("--input %s --output %s: %v", c.input, c.output, err)
		}
		if !exists(in) {
			t.Fatalf("--input %s --output %s --overwrite removed the input", c.input, c.output)
		}
	}
}

func TestLinksInsideAnOutputAreRefused(t *testing.T) {
	for _, c := range []struct{ link, output string }{
		{"out/_errors", "out/"}, {"out/_run", "out/"}, {"x.jsonl.batchmill", "x.jsonl"}, {"x.jsonl", "x.jsonl"},
	} {
		dir := t.TempDir()
		os.Mkdir(dir+"/out", 0o755)
		os.Mkdir(dir+"/data", 0o755)
		in := writeFile(t, dir+"/data/part-00000-of-00001.jsonl", []byte(`{"text": "a"}`+"\n"+`{"text": null}`+"\n"))
		if err := os.Symlink(dir+"/data", filepath.Join(dir, c.link)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
		for _, overwrite := range []bool{false, true} {
			s := testSpec(in, dir+"/"+c.output)
			s.Overwrite = overwrite
			if _, err := runJob(t, context.Background(), s, Events{}); KindOf(err) != Usage {
				t.Errorf("%s is a link, --output %s: %v", c.link, c.output, err)
			}
			if data, err := os.ReadFile(in); err != nil || bytes.Count(data, []byte("\n")) != 2 {
				t.Fatalf("%s is a link, --output %s: the input is gone or changed: %q, %v", c.link, c.output, data, err)
			}
		}
	}
}

func TestOverwritingRemovesOnlyWhatIsItsOwn(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", []byte(`{"text": "a"}`+"\n"+`{"text": null}`+"\n"))
	s := testSpec(in, dir+"/out/")
	mustRun(t, s)
	foreign := []string{dir + "/out/mine.txt", dir + "/out/_errors/prompt.txt", dir + "/out/_run/mine.json"}
	for _, name := range foreign {
		writeFile(t, name, []byte("x"))
	}
	s.Overwrite, s.Seed = true, 5
	mustRun(t, s)
	for _, name := range foreign {
		if !exists(name) {
			t.Errorf("%s was removed", name)
		}
	}
	os.RemoveAll(dir + "/out/_run")
	os.Remove(dir + "/out/_SUCCESS")
	os.Remove(dir + "/out/part-00000-of-00001.jsonl")
	s.Overwrite = false
	if _, err := runJob(t, context.Background(), s, Events{}); KindOf(err) != BadInput {
		t.Errorf("dead letters without a plan: %v", err)
	}
}

func TestNothingIsRemovedBeforeTheJobCanStart(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(3))
	s := testSpec(in, dir+"/out/")
	mustRun(t, s)
	s.Overwrite, s.KVMemory = true, 1<<55
	if _, err := runJob(t, context.Background(), s, Events{}); KindOf(err) != Config {
		t.Fatalf("too much KV memory: %v", err)
	}
	if !exists(dir+"/out/_SUCCESS") || len(results(t, dir+"/out")) != 3 {
		t.Error("the old output is gone, and there is no new one")
	}
	s.Output, s.Overwrite = dir+"/other/", false
	if _, err := runJob(t, context.Background(), s, Events{}); KindOf(err) != Config {
		t.Fatal(err)
	}
	if exists(dir + "/other/_run/plan.json") {
		t.Error("a job that cannot start has stored its plan")
	}
}

func TestAJobThatWasOverwrittenWhileItRanFails(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(40))
	s := testSpec(in, dir+"/out/")
	s.SplitBytes, s.OpenShards = 800, 1
	first := true
	_, err := runJob(t, context.Background(), s, Events{Part: func(string, *Facts) {
		if first {
			first = false
			other := s
			other.Overwrite, other.Seed = true, 77
			if _, err := runJob(t, context.Background(), other, Events{}); err != nil {
				t.Errorf("the overwriting job: %v", err)
			}
		}
	}})
	if KindOf(err) != BadInput {
		t.Errorf("the overwritten job ended with %v", err)
	}
	var done success
	data, _ := os.ReadFile(dir + "/out/_SUCCESS")
	if err := json.Unmarshal(data, &done); err != nil {
		t.Fatal(err)
	}
	for _, f := range done.Parts {
		if f.PlanDigest != done.PlanDigest {
			t.Errorf("%s belongs to another plan", f.Part)
		}
	}
	if rows := results(t, dir+"/out"); len(rows) != 40 {
		t.Errorf("%d rows, want 40", len(rows))
	}
}

func TestOneBrokenFileDoesNotCostTheOthers(t *testing.T) {
	dir := t.TempDir()
	os.Mkdir(dir+"/in", 0o755)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(rowsJSONL(20))
	z.Close()
	bad := b.Bytes()
	bad[len(bad)-7] ^= 0xff // the checksum
	writeFile(t, dir+"/in/a.jsonl.gz", bad)
	writeFile(t, dir+"/in/b.jsonl", rowsJSONL(5))
	sum, err := runJob(t, context.Background(), testSpec(dir+"/in/", dir+"/out/"), Events{})
	if KindOf(err) != BadInput || !strings.Contains(err.Error(), "a.jsonl.gz") || sum == nil || sum.Rows.OK != 5 {
		t.Fatalf("got %v, %+v", err, sum)
	}
	if exists(dir + "/out/_SUCCESS") {
		t.Error("_SUCCESS stands beside a job with a broken input")
	}
	os.Remove(dir + "/in/b.jsonl")
	if _, err := runJob(t, context.Background(), testSpec(dir+"/in/", dir+"/out2/"), Events{}); KindOf(err) != BadInput {
		t.Errorf("nothing but a broken file: %v", err)
	}
}

func TestFilesThatCameAfterThePlan(t *testing.T) {
	dir := t.TempDir()
	os.Mkdir(dir+"/in", 0o755)
	writeFile(t, dir+"/in/a.jsonl", rowsJSONL(2))
	s := testSpec(dir+"/in/*.jsonl", dir+"/out/")
	mustRun(t, s)
	b := writeFile(t, dir+"/in/b.jsonl", rowsJSONL(2))
	warned := ""
	if _, err := runJob(t, context.Background(), s, Events{Warn: func(m string) { warned = m }}); err != nil || !strings.Contains(warned, "b.jsonl") {
		t.Errorf("a new file that a pattern matches: %v, warning %q", err, warned)
	}
	s.Inputs = append(s.Inputs, b)
	if _, err := runJob(t, context.Background(), s, Events{}); KindOf(err) != BadInput || !strings.Contains(err.Error(), "b.jsonl") {
		t.Errorf("a new file that is named: %v", err)
	}
}
