package jobs

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestWhatTheEngineHasBegunIsDoneWithinTheGrace: after a signal no row is begun any more, those in work are done, and the
// next run repeats none.
func TestWhatTheEngineHasBegunIsDoneWithinTheGrace(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(60))
	mustRun(t, testSpec(in, dir+"/whole/"))
	s := testSpec(in, dir+"/out/")
	s.Grace, s.MaxSeqs, s.SplitBytes, s.OpenShards = time.Minute, 4, 3000, 2
	resumed := int64(0)
	for range 3 {
		sum := interrupted(t, s, 5)
		if sum.Rows.NotStarted == 0 || sum.Rows.Total != 60 {
			t.Fatalf("%+v: all rows were done", sum.Rows)
		}
		for upper, b := range sum.Batch.Buckets {
			if b.Rows > 60 {
				t.Errorf("%d rows in bucket %d", b.Rows, upper)
			}
		}
		if sum.Journal.Units > 40 {
			t.Errorf("%d units were done after a signal at 5, with 4 in work at once", sum.Journal.Units)
		}
		resumed += sum.Journal.Units
	}
	if last := mustRun(t, s); last.Journal.Units != 60-resumed {
		t.Errorf("%d units were journalled, and %d run of 60", resumed, last.Journal.Units)
	}
	equalRows(t, results(t, dir+"/out"), results(t, dir+"/whole"))
}

// TestASignalAtAnyMoment stops runs after some time, also while they plan, seal and commit.
func TestASignalAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(30))
	mustRun(t, testSpec(in, dir+"/whole/"))
	want := results(t, dir+"/whole")
	for _, step := range Steps() {
		if strings.HasPrefix(string(step), "wipe") {
			continue
		}
		for _, grace := range []time.Duration{0, time.Minute} {
			s := testSpec(in, dir+"/"+string(step)+grace.String()+"/")
			s.Grace, s.JournalUnits, s.SplitBytes, s.MaxSeqs = grace, 3, 2000, 2
			ctx, cancel := context.WithCancel(context.Background())
			sum, err := runJob(t, ctx, s, Events{Reached: func(at Step) {
				if at == step {
					cancel()
				}
			}})
			if err == nil && sum.Rows.OK != 30 || err != nil && KindOf(err) != Interrupted {
				t.Errorf("signalled at %s with a grace of %v: %v, %+v", step, grace, err, sum)
			}
			if r := sum.Rows; r.Total != r.OK+r.Error+r.Skipped+r.NotStarted || r.Total != 30 {
				t.Errorf("signalled at %s: rows do not add up: %+v", step, r)
			}
			mustRun(t, s)
			equalRows(t, results(t, strings.TrimSuffix(s.Output, "/")), want)
		}
	}
}

// TestAStoreThatFailsInTheMiddle: the journal cannot be written any more, so the run says so, and the next one has what was
// stored before.
func TestAStoreThatFailsInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(60))
	s := testSpec(in, dir+"/out/")
	s.JournalUnits, s.MaxSeqs = 2, 1
	folder := dir + "/out/_run/journal"
	sum, err := runJob(t, context.Background(), s, Events{Reached: func(at Step) {
		if at == ChunkAfter && exists(folder+"/00000") {
			if err := os.Rename(folder, dir+"/aside"); err != nil {
				t.Error(err)
			}
			writeFile(t, folder, []byte("a file where a folder should be"))
		}
	}})
	if KindOf(err) != StorageIO || sum.ExitCode != 74 || !strings.Contains(err.Error(), "journal") {
		t.Fatalf("got %v, %+v", err, sum)
	}
	if r := sum.Rows; r.Total != r.OK+r.Error+r.Skipped+r.NotStarted || r.NotStarted != 60 {
		t.Errorf("rows do not add up: %+v", r)
	}
	os.Remove(folder)
	if err := os.Rename(dir+"/aside", folder); err != nil {
		t.Fatal(err)
	}
	again := mustRun(t, s)
	if again.Journal.Resumed != sum.Journal.Units || again.Rows.OK != 60 {
		t.Errorf("%d units were journalled, %d taken over", sum.Journal.Units, again.Journal.Resumed)
	}
}
