package jobs

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

// journalSpec is a job of several shards whose journal has chunks of a few rows.
func journalSpec(in, out string) Spec {
	s := testSpec(in, out)
	s.SplitBytes, s.JournalUnits, s.MaxSeqs = 3000, 4, 3
	return s
}

// copyTree copies a folder as a kill would leave it.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func chunksIn(t *testing.T, out string) []string {
	return globbed(t, filepath.Join(out, "_run", "journal", "*", "*"))
}

// TestAKillAtAnyStepLosesNothing takes what lies in the output at every step of the protocol, as a kill at that moment
// leaves it, and goes on from there.
func TestAKillAtAnyStepLosesNothing(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", append(rowsJSONL(40), []byte("not json\n{\"text\": null}\n")...))
	mustRun(t, testSpec(in, dir+"/whole/"))
	want := results(t, dir+"/whole")

	spec := journalSpec(in, dir+"/out/")
	var states []string
	last := map[Step]int{}
	var mu sync.Mutex
	if _, err := runJob(t, context.Background(), spec, Events{Reached: func(s Step) {
		mu.Lock()
		defer mu.Unlock()
		last[s]++
		if n := last[s]; n > 1 && n != 4 { // the first of each, and a later one
			return
		}
		states = append(states, fmt.Sprintf("%s/%03d-%s", dir, len(states), s))
		copyTree(t, dir+"/out", states[len(states)-1])
	}}); err != nil {
		t.Fatal(err)
	}
	for _, s := range Steps() {
		if last[s] == 0 && !strings.HasPrefix(string(s), "wipe") {
			t.Errorf("step %s was never reached", s)
		}
	}
	for _, out := range states {
		spec.Output = out + "/"
		durable := int64(0)
		for _, name := range chunksIn(t, out) {
			durable += chunkUnits(t, name)
		}
		sum, err := runJob(t, context.Background(), spec, Events{})
		if err != nil {
			t.Errorf("%s: %v", out, err)
			continue
		}
		equalRows(t, results(t, out), want)
		if left := chunksIn(t, out); len(left) > 0 {
			t.Errorf("%s: the journal is still there: %v", out, left)
		}
		if !exists(out + "/_SUCCESS") {
			t.Errorf("%s: no _SUCCESS", out)
		}
		if ran := sum.Journal.Units; ran > 42-sum.Journal.Resumed {
			t.Errorf("%s: %d units were journalled before, %d of them taken over, and %d run", out, durable, sum.Journal.Resumed, ran)
		}
	}
}

func chunkUnits(t *testing.T, name string) int64 {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := decodeChunk(data)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return int64(h.Units)
}

// interrupted runs a job until a number of units is done and returns its summary.
func interrupted(t *testing.T, s Spec, units int64) *Summary {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sum, err := runJob(t, ctx, s, Events{Step: func(p Progress) {
		if p.Rows >= units && ctx.Err() == nil {
			cancel()
			time.Sleep(50 * time.Millisecond) // the engine is fast: let those who listen hear of it
		}
	}})
	if KindOf(err) != Interrupted {
		t.Fatalf("interrupted after %d units: %v, %+v", units, err, sum.Journal)
	}
	if r := sum.Rows; r.Total != r.OK+r.Error+r.Skipped+r.NotStarted {
		t.Errorf("rows do not add up: %+v", r)
	}
	if sum.Journal.Units < units {
		t.Errorf("%d units were done, %d are journalled", units, sum.Journal.Units)
	}
	return sum
}

func TestNothingThatIsJournalledRunsAgain(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(40))
	mustRun(t, testSpec(in, dir+"/whole/"))
	want := results(t, dir+"/whole")
	s := testSpec(in, dir+"/out/")
	s.JournalUnits, s.MaxSeqs = 4, 2
	resumed := int64(0)
	for try := range 3 {
		sum := interrupted(t, s, 8)
		if sum.Journal.Resumed != resumed {
			t.Fatalf("attempt %d: %+v, want %d resumed", try, sum.Journal, resumed)
		}
		resumed += sum.Journal.Units
	}
	sum := mustRun(t, s)
	if sum.Journal.Resumed != resumed || sum.Journal.Units != 40-resumed || sum.Rows.OK != 40 {
		t.Errorf("the last attempt: %+v %+v, want %d resumed", sum.Journal, sum.Rows, resumed)
	}
	prompts := int64(0)
	for _, b := range sum.Batch.Buckets {
		prompts += b.Rows
	}
	if prompts != 40-resumed {
		t.Errorf("the engine was given %d rows, want %d", prompts, 40-resumed)
	}
	equalRows(t, results(t, dir+"/out"), want)
}

func TestJournalledRowsAreNotRenderedAgain(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(12))
	s := testSpec(in, dir+"/out/")
	s.JournalUnits, s.JournalEvery = 100, time.Hour
	state := dir + "/state"
	if _, err := runJob(t, context.Background(), s, Events{Reached: func(at Step) {
		if at == ChunkAfter {
			copyTree(t, dir+"/out", state)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	s.Output = state + "/"
	sum := mustRun(t, s)
	if sum.Journal.Resumed != 12 || sum.Journal.Units != 0 || sum.Batch.Steps != 0 || len(sum.Batch.Buckets) != 0 {
		t.Errorf("all was journalled: %+v %+v", sum.Journal, sum.Batch)
	}
	equalRows(t, results(t, state), results(t, dir+"/out"))
}

// TestSamplesAndCopiesAcrossAResume: a job of three samples a row, some rows equal, some refused, is stopped again and again.
func TestSamplesAndCopiesAcrossAResume(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	for i := range 24 {
		fmt.Fprintf(&b, `{"text": "row %d", "_seed": %d}`+"\n", i%5, i%5)
		if i%6 == 0 {
			b.WriteString(`{"text": null}` + "\n")
		}
	}
	in := writeFile(t, dir+"/in.jsonl", b.Bytes())
	s := testSpec(in, dir+"/whole/")
	s.Samples, s.Params.Temperature = 3, 0.9
	if sum := mustRun(t, s); sum.Sharing.Copies == 0 || sum.Rows.Total != 24*3+4 {
		t.Fatalf("%+v %+v", sum.Sharing, sum.Rows)
	}
	want := results(t, dir+"/whole")
	s.Output, s.JournalUnits, s.MaxSeqs, s.WindowRows = dir+"/out/", 5, 1, 2
	for range 4 {
		interrupted(t, s, 6)
	}
	sum := mustRun(t, s)
	if sum.Rows.Total != 76 || sum.Journal.Resumed+sum.Journal.Units != 76 {
		t.Errorf("%+v %+v", sum.Rows, sum.Journal)
	}
	equalRows(t, results(t, dir+"/out"), want)
}

// TestOneSampleIsLeft: samples 0 and 1 of a row are journalled, so only the third is run.
func TestOneSampleIsLeft(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(1))
	s := testSpec(in, dir+"/out/")
	s.Samples, s.Params.Temperature, s.MaxSeqs, s.JournalUnits = 3, 1, 1, 1
	whole := s
	whole.Output = dir + "/whole/"
	mustRun(t, whole)
	first := interrupted(t, s, 2)
	left := 3 - first.Journal.Units
	sum := mustRun(t, s)
	if left < 1 || sum.Journal.Resumed != 3-left || sum.Journal.Units != left || sum.Rows.OK != 3 {
		t.Errorf("%d units were left: %+v, %+v", left, sum.Journal, sum.Rows)
	}
	equalRows(t, results(t, dir+"/out"), results(t, dir+"/whole"))
}

func TestChunksThatAreTornOrForeignAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(30))
	other := testSpec(in, dir+"/other/")
	other.Seed, other.JournalUnits, other.MaxSeqs = 9, 4, 2
	interrupted(t, other, 8)
	foreign := chunksIn(t, dir+"/other")[0]

	s := testSpec(in, dir+"/out/")
	s.JournalUnits, s.MaxSeqs = 4, 2
	sum := interrupted(t, s, 16)
	mine := chunksIn(t, dir+"/out")
	torn, err := os.ReadFile(mine[0])
	if err != nil {
		t.Fatal(err)
	}
	lost := chunkUnits(t, mine[0])
	writeFile(t, mine[0], torn[:len(torn)-7])
	data, _ := os.ReadFile(foreign)
	writeFile(t, filepath.Join(filepath.Dir(mine[0]), filepath.Base(foreign)), data)
	writeFile(t, filepath.Join(filepath.Dir(mine[0]), "notes.txt"), []byte("not ours"))
	var warned []string
	again, err := runJob(t, context.Background(), s, Events{Warn: func(m string) { warned = append(warned, m) }})
	if err != nil {
		t.Fatal(err)
	}
	if again.Journal.Resumed != sum.Journal.Units-lost || again.Journal.Units != 30-again.Journal.Resumed {
		t.Errorf("%d units were journalled, %d of them in a torn chunk: %+v", sum.Journal.Units, lost, again.Journal)
	}
	for _, name := range []string{filepath.Base(mine[0]), filepath.Base(foreign)} {
		if !slices.ContainsFunc(warned, func(m string) bool { return strings.Contains(m, name) }) {
			t.Errorf("nothing warns of %s: %q", name, warned)
		}
	}
	mustRun(t, testSpec(in, dir+"/whole/"))
	equalRows(t, results(t, dir+"/out"), results(t, dir+"/whole"))
}

// TestOnlyRetryableErrorsRunAgain hands a journal with errors of both kinds to a run.
func TestOnlyRetryableErrorsRunAgain(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(6))
	mustRun(t, testSpec(in, dir+"/whole/"))
	s := testSpec(in, dir+"/out/")
	s.JournalUnits, s.MaxSeqs = 1, 1
	interrupted(t, s, 1)
	name := chunksIn(t, dir+"/out")[0]
	for _, extra := range chunksIn(t, dir+"/out") {
		os.Remove(extra)
	}
	source, _ := objstore.Normalize(in)
	data, _ := os.ReadFile(dir + "/out/_run/plan.json")
	digest := strings.Split(strings.SplitN(string(data), `"digest": "`, 2)[1], `"`)[0]
	put := func(n int, attempt string, code row.Code) {
		res := &row.Result{Key: row.UnitKey{Source: source, Row: int64(n)}, Status: row.Failed, Err: row.Errorf(code, "by hand"), FinishReason: row.FinishError}
		line, err := encodeResult(res, 1)
		if err != nil {
			t.Fatal(err)
		}
		chunk, err := encodeChunk(chunkHeader{PlanDigest: digest, Attempt: attempt, Number: n, Units: 1}, append(line, '\n'))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(filepath.Dir(name), chunkName(attempt, n)), chunk)
	}
	put(1, "a", row.TemplateError)
	put(2, "a", row.Timeout)
	put(3, "a", row.Timeout)
	put(3, "b", row.InvalidJSON) // the last error stands
	put(4, "a", row.NonFiniteLogits)
	put(4, "b", row.Timeout) // so this one is run again
	sum := mustRun(t, s)
	if sum.Rows.OK != 4 || sum.Rows.Error != 2 || sum.Errors[row.TemplateError] != 1 || sum.Errors[row.InvalidJSON] != 1 {
		t.Errorf("%+v %v", sum.Rows, sum.Errors)
	}
	if sum.Journal.Resumed != 2 || sum.Journal.Units != 4 {
		t.Errorf("%+v, want 2 resumed and 4 run", sum.Journal)
	}
	got, want := results(t, dir+"/out"), results(t, dir+"/whole")
	for _, n := range []int{0, 2, 4, 5} {
		equalRows(t, got[n:n+1], want[n:n+1])
	}
}

// TestWhatTheCommitCostsIsMeasured: a store that takes its time shows in the figures of the summary.
func TestWhatTheCommitCostsIsMeasured(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(40))
	s := testSpec(in, dir+"/out/")
	s.SplitBytes, s.OpenShards, s.MaxSeqs = 2000, 1, 2
	const pause = 30 * time.Millisecond
	parts := 0
	sum, err := runJob(t, context.Background(), s, Events{Reached: func(at Step) {
		if at == PartBefore {
			parts++
			time.Sleep(pause)
		}
	}})
	if err != nil || parts < 3 {
		t.Fatal(parts, err)
	}
	least := (time.Duration(parts) * pause * 9 / 10).Seconds() // one shard at a time: the engine waits for each
	if c := sum.Time; c.CommitWait < least || c.CommitWait > c.Wall || c.Journal <= 0 || c.Commit <= 0 || c.Commit >= c.Wall {
		t.Errorf("%d parts, each %v late: %+v", parts, pause, c)
	}
}

func FuzzChunk(f *testing.F) {
	line, _ := encodeResult(&row.Result{Key: row.UnitKey{Source: "file:///a", Row: 3}, Status: row.OK, Completion: ptr("x")}, 2)
	whole, err := encodeChunk(chunkHeader{PlanDigest: "d", Shard: 1, Attempt: "a", Units: 1}, append(line, '\n'))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		h, lines, err := decodeChunk(data)
		if err != nil {
			return
		}
		if n := bytes.Count(lines, []byte("\n")); n != h.Units {
			t.Errorf("%d lines pass for %d units", n, h.Units)
		}
	})
}
