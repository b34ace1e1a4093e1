package jobs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/readers"
)

// damagedRows makes n rows of which every seventh has no text, and so becomes an error row.
func damagedRows(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		if i%7 == 3 {
			fmt.Fprintf(&b, `{"id": %d}`+"\n", i)
			continue
		}
		fmt.Fprintf(&b, `{"id": %d, "text": "row %d of them"}`+"\n", i, i)
	}
	return b.Bytes()
}

func verify(t *testing.T, out string) *Verification {
	t.Helper()
	store := objstore.New(objstore.Options{})
	defer store.Close()
	v, err := Verify(context.Background(), store, out, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// finished runs a job of four parts in a format.
func finished(t *testing.T, format string, change func(*Spec)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", damagedRows(40)), dir+"/out/")
	s.Params.MaxTokens, s.SplitBytes, s.Format = 3, 400, format
	if change != nil {
		change(&s)
	}
	mustRun(t, s)
	return dir
}

func partOf(t *testing.T, dir string, n int) string {
	t.Helper()
	parts, err := filepath.Glob(dir + "/out/part-*")
	if err != nil || len(parts) < 3 {
		t.Fatalf("parts: %v (%v), want at least 3", parts, err)
	}
	slices.Sort(parts)
	return parts[n]
}

func edit(t *testing.T, name string, change func(lines []string) []string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	writeFile(t, name, []byte(strings.Join(change(slices.Clone(lines)), "")))
}

func TestVerifyProvesWholeOutputs(t *testing.T) {
	for _, format := range []string{"jsonl", "parquet", "openai"} {
		dir := finished(t, format, nil)
		v := verify(t, dir+"/out")
		if v.Status != "ok" || v.Err() != nil || len(v.Findings) > 0 {
			t.Fatalf("%s: %+v", format, v)
		}
		if v.Rows.Total != 40 || v.Rows.OK != 34 || v.Rows.Error != 6 || v.Errors["missing_column"] != 6 || v.Parts.Proved != v.Parts.Planned || v.Parts.Planned < 3 {
			t.Errorf("%s: rows %+v errors %v parts %+v", format, v.Rows, v.Errors, v.Parts)
		}
		if (len(v.NotProved) > 0) != (format == "openai") {
			t.Errorf("%s leaves open: %q", format, v.NotProved)
		}
		if format != "openai" && (v.Tokens.Prompt == 0 || v.Tokens.Completion == 0) {
			t.Errorf("%s: tokens %+v", format, v.Tokens)
		}
	}
}

// TestVerifyWithSamples has rows of several results beside error rows of one.
func TestVerifyWithSamples(t *testing.T) {
	for _, format := range []string{"jsonl", "openai"} {
		dir := finished(t, format, func(s *Spec) { s.Samples, s.Params.Temperature = 3, 1 })
		if v := verify(t, dir+"/out"); v.Err() != nil || v.Rows.Total != 34*3+6 {
			t.Fatalf("%s: %+v", format, v)
		}
		if format == "openai" {
			continue
		}
		part := partOf(t, dir, 1)
		edit(t, part, func(l []string) []string { return slices.Delete(l, 2, 3) })
		wantFinding(t, verify(t, dir+"/out"), MissingRow, part, -1)
	}
}

// wantFinding looks for a finding of a kind in a file, and about a row if that is not negative.
func wantFinding(t *testing.T, v *Verification, kind FindingKind, file string, row int64) {
	t.Helper()
	if v.Status != "damaged" || v.ExitCode != 65 || KindOf(v.Err()) != BadInput {
		t.Errorf("status %q, exit code %d, %v", v.Status, v.ExitCode, v.Err())
	}
	for _, f := range v.Findings {
		if f.Kind == kind && strings.HasSuffix(f.File, file) && (row < 0 || f.Row != nil && row >= f.Row.RowIndex && row < f.Row.RowIndex+max(1, f.Rows)) {
			return
		}
	}
	t.Errorf("no finding %s of %s row %d among %+v", kind, file, row, v.Findings)
}

// onlyKinds fails on a finding that is none of the given kinds: a damage must not be reported as ten others.
func onlyKinds(t *testing.T, v *Verification, kinds ...FindingKind) {
	t.Helper()
	for _, f := range v.Findings {
		if !slices.Contains(kinds, f.Kind) {
			t.Errorf("finding %+v", f)
		}
	}
}

func TestVerifyFindsDamageInJSONL(t *testing.T) {
	source := finished(t, "jsonl", nil)
	other := finished(t, "jsonl", nil)
	another := finished(t, "jsonl", func(s *Spec) { s.Prompt, s.Inputs = "Say {{ text }}", []string{source + "/in.jsonl"} })
	before, err := os.ReadFile(partOf(t, source, 0))
	if err != nil {
		t.Fatal(err)
	}
	row := int64(bytes.Count(before, []byte("\n")) + 1) // the second row of the second part
	cases := []struct {
		name   string
		change func(t *testing.T, dir, part string)
		kind   FindingKind
		row    int64
		also   []FindingKind
	}{
		{"deleted line", func(t *testing.T, _, part string) {
			edit(t, part, func(l []string) []string { return slices.Delete(l, 1, 2) })
		}, MissingRow, row, []FindingKind{ChangedBytes, OtherResults, OtherCounts, DeadLetters}},
		{"doubled line", func(t *testing.T, _, part string) {
			edit(t, part, func(l []string) []string { return slices.Insert(l, 1, l[1]) })
		}, DoubledRow, row, []FindingKind{ChangedBytes, OtherResults, OtherCounts}},
		{"exchanged lines", func(t *testing.T, _, part string) {
			edit(t, part, func(l []string) []string { l[1], l[2] = l[2], l[1]; return l })
		}, RowOrder, row, []FindingKind{ChangedBytes, OtherResults, DeadLetters}},
		{"swapped parts", func(t *testing.T, dir, part string) {
			a, b := partOf(t, dir, 0), part
			for _, x := range [][2]string{{a, dir + "/x"}, {b, a}, {dir + "/x", b}} {
				if err := os.Rename(x[0], x[1]); err != nil {
					t.Fatal(err)
				}
			}
		}, ForeignRow, 0, []FindingKind{ChangedBytes, OtherResults, OtherCounts, MissingRow, DeadLetters}},
		{"truncated part", func(t *testing.T, _, part string) {
			info, err := os.Stat(part)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(part, info.Size()/2); err != nil {
				t.Fatal(err)
			}
		}, MissingRow, -1, []FindingKind{ChangedBytes, UnreadableRow, OtherResults, OtherCounts, DeadLetters}},
		{"changed byte", func(t *testing.T, _, part string) {
			edit(t, part, func(l []string) []string { l[1] = strings.Replace(l[1], " of them", " of then", 1); return l })
		}, ChangedBytes, -1, []FindingKind{OtherResults}},
		{"changed count", func(t *testing.T, _, part string) {
			edit(t, part, func(l []string) []string {
				l[1] = strings.Replace(l[1], `"completion_tokens":3`, `"completion_tokens":9`, 1)
				return l
			})
		}, WrongRow, row, []FindingKind{ChangedBytes, OtherResults, OtherCounts}},
		{"broken line", func(t *testing.T, _, part string) {
			edit(t, part, func(l []string) []string { l[1] = "{" + l[1]; return l })
		}, UnreadableRow, -1, []FindingKind{ChangedBytes, MissingRow, OtherCounts}},
		{"part of another plan over the same rows", func(t *testing.T, _, part string) {
			data, err := os.ReadFile(partOf(t, another, 1))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, part, data)
		}, ForeignPlan, row - 1, []FindingKind{ChangedBytes, OtherResults, OtherCounts}},
		{"part of another input's plan", func(t *testing.T, _, part string) {
			data, err := os.ReadFile(partOf(t, other, 1))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, part, data)
		}, ForeignRow, -1, []FindingKind{ChangedBytes, ForeignPlan, MissingRow, OtherResults, OtherCounts, DeadLetters}},
		{"deleted part", func(t *testing.T, _, part string) {
			if err := os.Remove(part); err != nil {
				t.Fatal(err)
			}
		}, MissingPart, -1, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(dir + "/in.jsonl"); err != nil { // the inputs are not needed
				t.Fatal(err)
			}
			part := partOf(t, dir, 1)
			c.change(t, dir, part)
			v := verify(t, dir+"/out")
			wantFinding(t, v, c.kind, part, c.row)
			onlyKinds(t, v, append(c.also, c.kind)...)
		})
	}
}

func TestVerifyFindsDamageInParquet(t *testing.T) {
	source := finished(t, "parquet", nil)
	another := finished(t, "parquet", func(s *Spec) { s.Seed, s.Inputs = 9, []string{source + "/in.jsonl"} })
	replace := func(from func(dir string) string) func(t *testing.T, dir, part string) {
		return func(t *testing.T, dir, part string) {
			data, err := os.ReadFile(from(dir))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, part, data)
		}
	}
	cases := []struct {
		name   string
		change func(t *testing.T, dir, part string)
		kinds  []FindingKind
	}{
		{"another part", replace(func(dir string) string { return partOf(t, dir, 0) }), []FindingKind{ChangedBytes, ForeignRow, MissingRow}},
		{"part of another plan", replace(func(string) string { return partOf(t, another, 1) }), []FindingKind{ChangedBytes, ForeignPlan, OtherResults}},
		{"truncated part", func(t *testing.T, _, part string) {
			if err := os.Truncate(part, 3000); err != nil {
				t.Fatal(err)
			}
		}, []FindingKind{ChangedBytes, UnreadablePart, MissingRow}},
		{"changed byte", func(t *testing.T, _, part string) {
			data, err := os.ReadFile(part)
			if err != nil {
				t.Fatal(err)
			}
			data[300] ^= 4
			writeFile(t, part, data)
		}, []FindingKind{ChangedBytes}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
				t.Fatal(err)
			}
			part := partOf(t, dir, 1)
			c.change(t, dir, part)
			v := verify(t, dir+"/out")
			for _, kind := range c.kinds {
				wantFinding(t, v, kind, part, -1)
			}
		})
	}
}

func TestVerifyFindsDamageInBatchResults(t *testing.T) {
	source := finished(t, "openai", nil)
	cases := []struct {
		name   string
		change func([]string) []string
		kind   FindingKind
	}{
		{"deleted line", func(l []string) []string { return slices.Delete(l, 1, 2) }, MissingRow},
		{"doubled line", func(l []string) []string { return slices.Insert(l, 1, l[1]) }, DoubledRow},
		{"exchanged lines", func(l []string) []string { l[1], l[2] = l[2], l[1]; return l }, RowOrder},
		{"strange line", func(l []string) []string {
			return append(l, strings.Replace(l[0], "batch_req_", "batch_req_0", 1))
		}, ForeignRow},
		{"broken line", func(l []string) []string { l[1] = l[1][:20]; return l }, UnreadablePart},
		{"changed byte", func(l []string) []string { l[1] = strings.Replace(l[1], "content\":\"", "content\":\"x", 1); return l }, ChangedBytes},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
				t.Fatal(err)
			}
			part := partOf(t, dir, 1)
			edit(t, part, c.change)
			v := verify(t, dir+"/out")
			wantFinding(t, v, c.kind, part, -1)
			wantFinding(t, v, ChangedBytes, part, -1)
		})
	}
}

func TestVerifyComparesDeadLetters(t *testing.T) {
	cases := []struct {
		name   string
		change func([]string) []string
	}{
		{"deleted", func(l []string) []string { return slices.Delete(l, 0, 1) }},
		{"doubled", func(l []string) []string { return slices.Insert(l, 1, l[0]) }},
		{"changed", func(l []string) []string { l[0] = strings.Replace(l[0], "missing_column", "null_prompt", 1); return l }},
		{"broken", func(l []string) []string { return append(l, "{\"id\": 7\n") }},
		{"emptied", func([]string) []string { return nil }},
	}
	for _, format := range []string{"jsonl", "openai"} {
		source := finished(t, format, nil)
		for _, c := range cases {
			if format == "openai" && c.name == "changed" {
				continue // the part has no code to compare with
			}
			t.Run(format+" "+c.name, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
					t.Fatal(err)
				}
				letters, err := filepath.Glob(dir + "/out/_errors/*")
				if err != nil || len(letters) == 0 {
					t.Fatalf("dead letters: %v (%v)", letters, err)
				}
				edit(t, letters[0], c.change)
				v := verify(t, dir+"/out")
				if len(v.Findings) == 0 || v.Err() == nil {
					t.Errorf("nothing was found: %+v", v)
				}
				onlyKinds(t, v, DeadLetters, MissingRow, DoubledRow, OtherCounts) // a batch result's errors are rows
			})
		}
	}
}

func TestVerifyFindsWhatIsNotThePlans(t *testing.T) {
	dir := finished(t, "jsonl", nil)
	writeFile(t, dir+"/out/_note.jsonl", nil) // readers leave it alone
	if v := verify(t, dir+"/out"); v.Err() != nil {
		t.Fatalf("%+v", v)
	}
	for _, name := range []string{"part-00000-of-00099.jsonl", "other.jsonl", "_errors/part-00000-of-00099.jsonl"} {
		writeFile(t, dir+"/out/"+name, []byte("{}\n"))
		wantFinding(t, verify(t, dir+"/out"), ForeignData, name, -1)
		if err := os.Remove(dir + "/out/" + name); err != nil {
			t.Fatal(err)
		}
	}
	edit(t, dir+"/out/_SUCCESS", func(l []string) []string {
		for i := range l {
			l[i] = strings.Replace(l[i], `"plan_digest": "`, `"plan_digest": "0`, 1)
		}
		return l
	})
	wantFinding(t, verify(t, dir+"/out"), ForeignPlan, "_SUCCESS", -1)
}

func TestVerifyOfUnfinishedOutputs(t *testing.T) {
	dir := finished(t, "jsonl", nil)
	if err := os.Remove(dir + "/out/_SUCCESS"); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, dir+"/out"); v.Status != "unfinished" || v.ExitCode != 75 || len(v.Findings) > 0 || KindOf(v.Err()) != Interrupted {
		t.Errorf("without _SUCCESS: %+v", v)
	}
	part := partOf(t, dir, 1)
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, dir+"/out"); v.Status != "unfinished" || v.Rows.NotStarted == 0 || v.Rows.Total != 40 {
		t.Errorf("with a part to come: %+v", v)
	}
	writeFile(t, part, []byte("{}\n"))
	wantFinding(t, verify(t, dir+"/out"), MarkerMismatch, part, -1)
	store := objstore.New(objstore.Options{})
	defer store.Close()
	if _, err := Verify(context.Background(), store, dir+"/nothing", nil); KindOf(err) != NoInput {
		t.Errorf("no output: %v", err)
	}
}

func TestVerifyOneObjectWithFewColumns(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", damagedRows(12)), dir+"/one.jsonl")
	s.Params.MaxTokens, s.OutputColumns, s.OutputPrefix = 2, []string{"completion"}, "x_"
	mustRun(t, s)
	v := verify(t, dir+"/one.jsonl")
	if v.Err() != nil || v.Rows.Total != 12 || len(v.NotProved) == 0 {
		t.Fatalf("%+v", v)
	}
	edit(t, dir+"/one.jsonl", func(l []string) []string { return slices.Delete(l, 3, 4) })
	wantFinding(t, verify(t, dir+"/one.jsonl"), OtherCounts, "one.jsonl", -1)
}

func TestVerifyComparesSealsWithTheMarker(t *testing.T) {
	dir := finished(t, "jsonl", nil)
	seals, err := filepath.Glob(dir + "/out/_run/seal/*")
	if err != nil || len(seals) < 3 {
		t.Fatalf("seals: %v (%v)", seals, err)
	}
	edit(t, seals[0], func(l []string) []string {
		for i := range l {
			l[i] = strings.Replace(l[i], `"result_digest": "`, `"result_digest": "0`, 1)
		}
		return l
	})
	v := verify(t, dir+"/out")
	wantFinding(t, v, MarkerMismatch, filepath.Base(seals[0]), -1)
	if len(v.Findings) != 1 || v.Parts.Proved != v.Parts.Planned {
		t.Errorf("findings %+v, parts %+v", v.Findings, v.Parts)
	}
	if err := os.Remove(seals[1]); err != nil {
		t.Fatal(err)
	}
	if v = verify(t, dir+"/out"); len(v.Findings) != 2 {
		t.Errorf("findings %+v, want two", v.Findings)
	}
}

// TestLedgerIsSmall: ten million rows of a part are some megabytes, whatever they hold.
func TestLedgerIsSmall(t *testing.T) {
	const rows = 10_000_000
	p := &Plan{Inputs: []Input{{URL: "mem://in/a.jsonl"}}, Shards: []Segments{{{Cut: readers.Cut{Rows: rows}}}}, Decides: Decides{Samples: 1}}
	l := newLedger(p, 0)
	if size := 8 * (len(l.units) + len(l.failed)); size > 4<<20 {
		t.Errorf("%d rows take %d bytes", rows, size)
	}
	x := newPlanIndex(p)
	for i := range int64(rows) {
		if i == 77 || i >= 5000 && i < 6000 {
			continue
		}
		shard, at, ok := x.find("mem://in/a.jsonl", i)
		if !ok || shard != 0 || l.mark(at, 0, false) != metFirst {
			t.Fatalf("row %d is not found, or was met before", i)
		}
	}
	gaps, total := l.gaps(10, false)
	if total != 1001 || len(gaps) != 2 || gaps[0].first != 77 || gaps[1].first != 5000 || gaps[1].rows != 1000 {
		t.Errorf("%d rows are missing: %+v", total, gaps)
	}
}
