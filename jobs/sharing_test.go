package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
)

// sharingRows are n rows of three long instructions with short ends, some of them equal to an earlier one.
func sharingRows(n int) [][]byte {
	var rows [][]byte
	for i := range n {
		k := i
		if i%3 == 2 {
			k = i / 2
		}
		text := strings.Repeat(fmt.Sprintf("instruction %d of many words, ", k%3), 12) + fmt.Sprintf("and row %d %s", k, strings.Repeat("more ", k*5%23))
		rows = append(rows, fmt.Appendf(nil, `{"id": "r%d", "text": %q, "who": %d}`+"\n", i, text, i%2))
	}
	return rows
}

// measured reads columns that results leaves out.
func measured(t *testing.T, out string) []map[string]any {
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
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, m)
		}
	}
	return rows
}

// TestWorkIsSharedAndResultsAreNot: dedup, prefix sharing, tenants, the window and the shards decide how much is computed,
// never what comes out.
func TestWorkIsSharedAndResultsAreNot(t *testing.T) {
	for _, temperature := range []float64{0, 0.9} {
		dir := t.TempDir()
		in := writeFile(t, dir+"/in.jsonl", bytes.Join(sharingRows(60), nil))
		base := testSpec(in, dir+"/base/")
		base.NoDedup, base.NoPrefixSharing, base.IDColumn = true, true, "id"
		base.Params.ReturnTokenIDs, base.Params.Logprobs, base.Params.Temperature = true, 1, temperature
		plain := mustRun(t, base)
		want := results(t, dir+"/base")
		if s := plain.Sharing; s.Copies != 0 || plain.Tokens.Cached != 0 || *s.PromptShare != 0 {
			t.Errorf("with everything off %+v was shared", s)
		}
		for i, c := range []struct {
			change func(*Spec)
			copies bool
			cached bool
		}{
			{func(s *Spec) {}, true, true},
			{func(s *Spec) { s.NoPrefixSharing = true }, true, false},
			{func(s *Spec) { s.NoDedup = true }, false, true},
			{func(s *Spec) { s.WindowRows = 1 }, true, true},
			{func(s *Spec) { s.WindowRows, s.MaxSeqs, s.BatchTokens = 7, 3, 64 }, true, true},
			{func(s *Spec) { s.WindowRows = 2048; s.KVMemory = 600_000 }, true, true},
			{func(s *Spec) { s.SplitBytes, s.OpenShards = 3000, 1 }, true, true},
			{func(s *Spec) { s.SplitBytes, s.OpenShards = 3000, 4 }, true, true},
			{func(s *Spec) { s.TenantColumn = "who" }, true, true},
			{func(s *Spec) { s.TenantColumn = "id" }, false, false},
		} {
			s := base
			s.NoDedup, s.NoPrefixSharing = false, false
			s.Output = fmt.Sprintf("%s/way%d/", dir, i)
			c.change(&s)
			sum := mustRun(t, s)
			equalRows(t, results(t, strings.TrimSuffix(s.Output, "/")), want)
			if copies := c.copies && temperature == 0; (sum.Sharing.Copies > 0) != copies { // each row draws by its own seed
				t.Errorf("way %d at temperature %g: %d copies", i, temperature, sum.Sharing.Copies)
			}
			if (sum.Tokens.Cached > 0) != c.cached || (*sum.Sharing.PromptShare > 0) != c.cached || *sum.Sharing.PromptShare >= 1 {
				t.Errorf("way %d: %d cached tokens, a share of %g", i, sum.Tokens.Cached, *sum.Sharing.PromptShare)
			}
		}
	}
}

// TestTheOrderOfRowsDecidesNoResult compares rows by id, whatever their place in the input.
func TestTheOrderOfRowsDecidesNoResult(t *testing.T) {
	dir := t.TempDir()
	rows := sharingRows(60)
	byID := func(order []int, out string) map[string]map[string]any {
		var lines [][]byte
		for _, i := range order {
			lines = append(lines, rows[i])
		}
		s := testSpec(writeFile(t, dir+"/in.jsonl", bytes.Join(lines, nil)), out+"/")
		s.IDColumn, s.Params.ReturnTokenIDs, s.WindowRows = "id", true, 20
		mustRun(t, s)
		m := map[string]map[string]any{}
		for i, r := range results(t, out) {
			if fmt.Sprint(r["row_index"]) != fmt.Sprint(i) {
				t.Errorf("line %d of %s has row_index %v", i, out, r["row_index"])
			}
			delete(r, "row_index")
			m[r["id"].(string)] = r
		}
		return m
	}
	r := rand.New(rand.NewSource(1))
	straight := make([]int, len(rows))
	for i := range straight {
		straight[i] = i
	}
	want := byID(straight, dir+"/a")
	got := byID(r.Perm(len(rows)), dir+"/b")
	if len(want) != len(rows) {
		t.Fatalf("%d rows", len(want))
	}
	for id, w := range want {
		equalRows(t, []map[string]any{got[id]}, []map[string]any{w})
	}
}

func TestCopiesSayWhoseTheyAre(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", bytes.Join(sharingRows(60), nil))
	sum := mustRun(t, testSpec(in, dir+"/out/"))
	rows := measured(t, dir+"/out")
	copies, tokens := int64(0), int64(0)
	for i, r := range rows {
		of, is := r["dedup_of"].(float64)
		if !is {
			if r["attempts"] != 1.0 || r["e2e_latency_ms"] == nil {
				t.Errorf("row %d ran, but %v", i, r)
			}
			continue
		}
		copies++
		tokens += int64(r["prompt_tokens"].(float64))
		original := rows[int(of)]
		if original["text"] != r["text"] || original["dedup_of"] != nil {
			t.Errorf("row %d is no copy of row %v", i, of)
		}
		for _, name := range []string{"queue_time_ms", "prefill_time_ms", "ttft_ms", "decode_time_ms", "tpot_ms", "e2e_latency_ms"} {
			if v, there := r[name]; v != nil || !there {
				t.Errorf("row %d is a copy, but its %s is %v", i, name, v)
			}
		}
		if r["attempts"] != 0.0 || r["cached_tokens"] != 0.0 {
			t.Errorf("row %d is a copy, but attempts %v, cached_tokens %v", i, r["attempts"], r["cached_tokens"])
		}
	}
	texts := map[any]bool{}
	for _, r := range rows {
		texts[r["text"]] = true
	}
	if copies != int64(60-len(texts)) || copies == 0 || sum.Sharing.Copies != copies || sum.Sharing.CopiedPrompt != tokens {
		t.Errorf("%d copies of %d tokens, the summary says %+v", copies, tokens, sum.Sharing)
	}
	if sum.Tokens.Prompt <= tokens+sum.Tokens.Cached {
		t.Errorf("tokens %+v, of which %d were copied", sum.Tokens, tokens)
	}
	n := int64(0)
	for upper, b := range sum.Batch.Buckets {
		n += b.Rows
		if b.Tokens > b.Rows*int64(upper) || b.WastedSlots != b.Rows*int64(upper)-b.Tokens || *b.Fill <= 0.5 {
			t.Errorf("bucket %d: %+v", upper, b)
		}
	}
	if n != 60-copies {
		t.Errorf("%d rows in buckets, want those that ran", n)
	}
}

func TestSharingMayChangeBetweenRuns(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", bytes.Join(sharingRows(60), nil))
	mustRun(t, testSpec(in, dir+"/whole/"))
	s := testSpec(in, dir+"/out/")
	s.SplitBytes, s.OpenShards = 4000, 1
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := runJob(t, ctx, s, Events{Part: func(string, *Facts) { cancel() }}); KindOf(err) != Interrupted {
		t.Fatal(err)
	}
	s.NoDedup, s.NoPrefixSharing, s.TenantColumn, s.WindowRows, s.OpenShards = true, true, "who", 5, 3
	mustRun(t, s)
	equalRows(t, results(t, dir+"/out"), results(t, dir+"/whole"))
}

func TestAnUnknownTenantColumnIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", rowsJSONL(2)), dir+"/out/")
	s.TenantColumn = "tenat"
	if _, err := runJob(t, context.Background(), s, Events{}); KindOf(err) != Usage || !strings.Contains(err.Error(), "--tenant-column") {
		t.Errorf("got %v", err)
	}
}

// TestBatchesStayFullAcrossShards counts the steps of a job in one shard and in many.
func TestBatchesStayFullAcrossShards(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(160))
	steps := func(name string, split int64, open int) int64 {
		s := testSpec(in, dir+"/"+name+"/")
		s.SplitBytes, s.OpenShards, s.MaxSeqs = split, open, 8
		s.Params.IgnoreEOS = true
		// A step of a real model takes as long as dozens of rows take to be read and committed.
		sum, err := runJob(t, context.Background(), s, Events{Step: func(Progress) { time.Sleep(2 * time.Millisecond) }})
		if err != nil {
			t.Fatal(err)
		}
		if parts := sum.Output.Parts; (parts > 10) != (split > 0) {
			t.Fatalf("%s has %d parts", name, parts)
		}
		return sum.Batch.Steps
	}
	one, many, alone := steps("one", 0, 0), steps("many", 1500, 4), steps("alone", 1500, 1)
	t.Logf("%d steps in one shard, %d in many, %d in many with one open", one, many, alone)
	if float64(many) > 1.1*float64(one) {
		t.Errorf("%d steps in many shards, %d in one: batches ran empty at the borders", many, one)
	}
	if float64(alone) < 1.2*float64(one) {
		t.Errorf("%d steps with one open shard, %d in one: the shards are too large for the test", alone, one)
	}
}

// TestTheEstimateForeseesWhatIsShared compares it with what a run of the same job came to.
func TestTheEstimateForeseesWhatIsShared(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", bytes.Join(sharingRows(60), nil))
	s := testSpec(in, dir+"/out/")
	e := estimate(t, s, 0)
	sum := mustRun(t, s)
	if e.Copies != sum.Sharing.Copies || e.CopiedTokens != sum.Sharing.CopiedPrompt || e.PromptTokens != sum.Tokens.Prompt {
		t.Errorf("estimated %+v, came to %+v", e, sum.Sharing)
	}
	// The engine may share less where rows start before the prefix they need is computed, never more.
	if e.SharedTokens < sum.Tokens.Cached || float64(sum.Tokens.Cached) < 0.8*float64(e.SharedTokens) {
		t.Errorf("estimated %d shared tokens, came to %d", e.SharedTokens, sum.Tokens.Cached)
	}
	s.NoDedup, s.NoPrefixSharing = true, true
	if e := estimate(t, s, 0); e.Copies != 0 || e.CopiedTokens != 0 || e.SharedTokens != 0 {
		t.Errorf("with both off: %+v", e)
	}
}

func estimate(t *testing.T, s Spec, rows int64) *Estimate {
	t.Helper()
	store := objstore.New(objstore.Options{})
	defer store.Close()
	j, err := Prepare(context.Background(), s, store, Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	e, err := j.Estimate(context.Background(), rows)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestSmallFilesShareAShard: a part for each of a thousand small files would cost more than its rows.
func TestSmallFilesShareAShard(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		writeFile(t, fmt.Sprintf("%s/in%02d.jsonl", dir, i), rowsJSONL(5)) // about 700 bytes
	}
	s := testSpec(dir+"/*.jsonl", dir+"/out/")
	if sum := mustRun(t, s); sum.Output.Parts != 1 || sum.Rows.OK != 150 {
		t.Errorf("%d parts, %d rows", sum.Output.Parts, sum.Rows.OK)
	}
	s.Output, s.SplitBytes = dir+"/other/", 20_000
	if sum := mustRun(t, s); sum.Output.Parts < 3 || sum.Output.Parts > 10 {
		t.Errorf("%d parts of up to 5,000 bytes of input", sum.Output.Parts)
	}
	equalRows(t, results(t, dir+"/other"), results(t, dir+"/out"))
}
