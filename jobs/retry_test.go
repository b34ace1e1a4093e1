package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

// retryRows makes rows of three kinds: short ones, long ones that need many KV pages, and some without a text.
func retryRows(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		switch {
		case i%5 == 4:
			fmt.Fprintf(&b, `{"id": %d}`+"\n", i)
		case i%3 == 1:
			fmt.Fprintf(&b, `{"id": %d, "text": %q}`+"\n", i, strings.Repeat("long ", 60)+fmt.Sprint(i))
		default:
			fmt.Fprintf(&b, `{"id": %d, "text": "short %d"}`+"\n", i, i)
		}
	}
	return b.Bytes()
}

// tightKV has room for short rows only.
const tightKV = 160 << 10

func runRetry(t *testing.T, ctx context.Context, parent, out string, all bool, change func(*Spec), ev Events) (*Summary, error) {
	t.Helper()
	store := objstore.New(objstore.Options{TmpDir: TmpDir(out)})
	defer store.Close()
	s := Spec{Output: out, KVMemory: 64 << 20, Threads: 2}
	if change != nil {
		change(&s)
	}
	j, err := PrepareRetry(ctx, parent, all, s, store, ev)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	return j.Run(ctx)
}

// tightParent runs a job in which long rows fail for want of memory, and its twin that has enough.
func tightParent(t *testing.T, change func(*Spec)) (dir string, tight, whole *Summary) {
	t.Helper()
	dir = t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", retryRows(40)), dir+"/parent/")
	s.Params.MaxTokens, s.SplitBytes, s.KVMemory = 3, 1200, tightKV
	if change != nil {
		change(&s)
	}
	tight = mustRun(t, s)
	if tight.Errors[row.KVBudgetExceeded] == 0 || tight.Errors[row.MissingColumn] == 0 || tight.Rows.OK == 0 {
		t.Fatalf("the parent has no rows of each kind: %+v %v", tight.Rows, tight.Errors)
	}
	s.Output, s.KVMemory = dir+"/whole/", 64<<20
	whole = mustRun(t, s)
	if whole.Errors[row.KVBudgetExceeded] != 0 {
		t.Fatalf("the twin fails too: %v", whole.Errors)
	}
	return dir, tight, whole
}

func digests(t *testing.T, out string) (list []string) {
	t.Helper()
	data, err := os.ReadFile(out + "/_SUCCESS")
	if err != nil {
		t.Fatal(err)
	}
	var s success
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Parts {
		list = append(list, f.ResultDigest)
	}
	return list
}

func TestRetryGivesTheOutputOfARunWithoutFailures(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"jsonl":   nil,
		"parquet": func(s *Spec) { s.Format = "parquet" },
		"everything": func(s *Spec) {
			s.Format, s.OutputPrefix, s.Params.Logprobs, s.Params.ReturnTokenIDs, s.IDColumn = "parquet", "x_", 2, true, "id"
		},
		"logprobs in jsonl": func(s *Spec) { s.Params.Logprobs, s.Params.ReturnTokenIDs, s.Params.Stop = 1, true, []string{"e"} },
		"samples":           func(s *Spec) { s.Samples, s.Params.Temperature, s.Seed = 3, 1, 5 },
	} {
		t.Run(name, func(t *testing.T) {
			dir, tight, whole := tightParent(t, change)
			sum, err := runRetry(t, context.Background(), dir+"/parent", dir+"/new/", false, nil, Events{})
			if err != nil {
				t.Fatal(err)
			}
			if sum.Rows != whole.Rows || sum.Tokens.Completion != whole.Tokens.Completion || sum.Tokens.Prompt != whole.Tokens.Prompt {
				t.Errorf("rows %+v tokens %+v, want %+v %+v", sum.Rows, sum.Tokens, whole.Rows, whole.Tokens)
			}
			if copied := tight.Rows.OK + tight.Errors[row.MissingColumn]; sum.Journal.Resumed != copied {
				t.Errorf("%d rows were copied, want %d", sum.Journal.Resumed, copied)
			}
			if got, want := fmt.Sprint(digests(t, dir+"/new")), fmt.Sprint(digests(t, dir+"/whole")); got != want {
				t.Errorf("result digests\n%s, want\n%s", got, want)
			}
			if v := verify(t, dir+"/new"); v.Err() != nil {
				t.Errorf("%+v", v)
			}
			var mark success
			data, err := os.ReadFile(dir + "/new/_SUCCESS")
			if err != nil || json.Unmarshal(data, &mark) != nil || mark.Parent == nil || !strings.HasSuffix(mark.Parent.Output, dir+"/parent") {
				t.Errorf("_SUCCESS does not name the parent: %s (%v)", data, err)
			}
		})
	}
}

// times reads a measurement of all rows, which a copy has from its parent and a repeated row has not.
func times(t *testing.T, out string) (list []string) {
	t.Helper()
	parts, err := filepath.Glob(out + "/part-*.jsonl")
	if err != nil || len(parts) == 0 {
		t.Fatalf("%v (%v)", parts, err)
	}
	for _, p := range parts {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var x struct {
				Status string          `json:"status"`
				Code   string          `json:"error_code"`
				E2E    json.RawMessage `json:"e2e_latency_ms"`
				TPOT   json.RawMessage `json:"tpot_ms"`
			}
			if err := json.Unmarshal(line, &x); err != nil {
				t.Fatal(err)
			}
			list = append(list, x.Status+" "+x.Code+" "+string(x.E2E)+" "+string(x.TPOT))
		}
	}
	return list
}

func TestRetryCopiesMeasurementsAndGoesOnAfterAKill(t *testing.T) {
	dir, _, _ := tightParent(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	one := func(s *Spec) { s.OpenShards = 1 }
	if _, err := runRetry(t, ctx, dir+"/parent", dir+"/new/", false, one, Events{Part: func(string, *Facts) { cancel() }}); KindOf(err) != Interrupted {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := runRetry(t, context.Background(), dir+"/parent", dir+"/new/", true, nil, Events{}); KindOf(err) != BadInput || !strings.Contains(err.Error(), "all_errors") {
		t.Errorf("going on with --all-errors: %v", err)
	}
	s := testSpec(dir+"/in.jsonl", dir+"/new/")
	s.Params.MaxTokens, s.SplitBytes = 3, 1200
	if _, err := runJob(t, context.Background(), s, Events{}); KindOf(err) != BadInput || !strings.Contains(err.Error(), "retry") {
		t.Errorf("a run into the output of a retry: %v", err)
	}
	if _, err := runRetry(t, context.Background(), dir+"/parent", dir+"/whole/", false, nil, Events{}); KindOf(err) != BadInput {
		t.Errorf("a retry into the output of a run: %v", err)
	}
	if _, err := runRetry(t, context.Background(), dir+"/parent", dir+"/new/", false, nil, Events{}); err != nil {
		t.Fatal(err)
	}
	before, after := times(t, dir+"/parent"), times(t, dir+"/new")
	for i := range before {
		if strings.Contains(before[i], "kv_budget") {
			if !strings.HasPrefix(after[i], "ok ") {
				t.Errorf("row %d is %s, want ok", i, after[i])
			}
		} else if before[i] != after[i] {
			t.Errorf("row %d is %s, want a copy of %s", i, after[i], before[i])
		}
	}
	equalRows(t, results(t, dir+"/new"), results(t, dir+"/whole"))
}

// TestRetryOfAllErrors repeats rows that a retry of the errors for now leaves: they fail once more.
func TestRetryOfAllErrors(t *testing.T) {
	dir, tight, whole := tightParent(t, nil)
	sum, err := runRetry(t, context.Background(), dir+"/parent", dir+"/new/", true, nil, Events{})
	if err != nil {
		t.Fatal(err)
	}
	if sum.Rows != whole.Rows || sum.Journal.Resumed != tight.Rows.OK {
		t.Errorf("rows %+v, of which %d copied; want %+v, %d copied", sum.Rows, sum.Journal.Resumed, whole.Rows, tight.Rows.OK)
	}
	equalRows(t, results(t, dir+"/new"), results(t, dir+"/whole"))
}

func TestRetryRefuses(t *testing.T) {
	dir, _, _ := tightParent(t, nil)
	try := func(name string, kind Kind, says, parent, out string, change func(*Spec)) {
		t.Helper()
		if _, err := runRetry(t, context.Background(), parent, out, false, change, Events{}); KindOf(err) != kind || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, want exit code %d with %q", name, err, kind.ExitCode(), says)
		}
	}
	try("no such output", NoInput, "no job's output", dir+"/nothing", dir+"/new/", nil)
	try("into itself", Usage, "are one", dir+"/parent", dir+"/parent/", nil)
	try("into its inside", Usage, "lie in each other", dir+"/parent", dir+"/parent/new/", nil)
	try("into one file", Usage, "parts", dir+"/parent", dir+"/new.jsonl", nil)
	try("no output", Usage, "no output", dir+"/parent", "", nil)
	if err := os.CopyFS(dir+"/model", os.DirFS(tinyModel)); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(dir + "/model/config.json")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir+"/model/config.json", append(config, '\n'))
	try("another model", BadInput, "model_digest", dir+"/parent", dir+"/new/", func(s *Spec) { s.Model = dir + "/model" })

	part := filepath.Join(dir, "parent", filepath.Base(func() string { p, _ := filepath.Glob(dir + "/parent/part-*"); return p[0] }()))
	whole, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, part, bytes.Replace(whole, []byte("short"), []byte("sHort"), 1))
	try("a damaged part", BadInput, "not what was committed", dir+"/parent", dir+"/new1/", nil)
	writeFile(t, part, whole)

	if err := os.Remove(dir + "/parent/_SUCCESS"); err != nil {
		t.Fatal(err)
	}
	try("not complete", Interrupted, "not complete", dir+"/parent", dir+"/new2/", nil)
	writeFile(t, dir+"/in.jsonl", retryRows(39))
	try("changed inputs", BadInput, "has changed", dir+"/whole", dir+"/new3/", nil)
	if err := os.Remove(dir + "/in.jsonl"); err != nil {
		t.Fatal(err)
	}
	try("no inputs", NoInput, "in.jsonl", dir+"/whole", dir+"/new3/", nil)
}

func TestRetryNeedsItsColumns(t *testing.T) {
	p := &Plan{Decides: Decides{OutputColumns: []string{"completion", "status", "e2e_latency_ms"}}}
	missing := p.missingColumns()
	if len(missing) != len(copyColumns)-1+len(copyTimes) || missing[0] != "source_file" {
		t.Errorf("missing: %v", missing)
	}
	if p.Decides.OutputColumns = nil; p.missingColumns() != nil {
		t.Errorf("the default columns lack %v", p.missingColumns())
	}
	dir := finished(t, "openai", nil)
	if _, err := runRetry(t, context.Background(), dir+"/out", dir+"/new/", false, nil, Events{}); KindOf(err) != Usage || !strings.Contains(err.Error(), "openai") {
		t.Errorf("batch results: %v", err)
	}
}

// TestRetryMakesASealedPartFromItsParentAgain stops between seal and part: the part then comes from journal and parent.
func TestRetryMakesASealedPartFromItsParentAgain(t *testing.T) {
	dir, _, _ := tightParent(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := Events{Reached: func(s Step) {
		if s == SidesBefore {
			cancel()
		}
	}}
	if _, err := runRetry(t, ctx, dir+"/parent", dir+"/new/", false, func(s *Spec) { s.OpenShards = 1 }, stop); KindOf(err) != Interrupted {
		t.Fatalf("interrupted: %v", err)
	}
	seals, _ := filepath.Glob(dir + "/new/_run/seal/*")
	parts, _ := filepath.Glob(dir + "/new/part-*")
	if len(seals) != 1 || len(parts) != 0 {
		t.Fatalf("%d seals and %d parts, want a sealed shard without its part", len(seals), len(parts))
	}
	sum, err := runRetry(t, context.Background(), dir+"/parent", dir+"/new/", false, nil, Events{})
	if err != nil {
		t.Fatalf("%v: %+v", err, sum)
	}
	equalRows(t, results(t, dir+"/new"), results(t, dir+"/whole"))
	if v := verify(t, dir+"/new"); v.Err() != nil {
		t.Errorf("%+v", v)
	}
}
