package jobs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestASecondLocalRunLearnsWhoIsAtWork: one lock for each set of shards, named by the process that holds it.
func TestASecondLocalRunLearnsWhoIsAtWork(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(10))
	s := testSpec(in, dir+"/out/")
	s.Lock, s.SplitBytes = true, 600
	half := s
	half.Shard = Shard{0, 2}
	tried := false
	if _, err := runJob(t, context.Background(), half, Events{Part: func(string, *Facts) {
		if tried {
			return
		}
		tried = true
		_, err := runJob(t, context.Background(), half, Events{})
		if KindOf(err) != Interrupted || ExitCode(err) != 75 || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
			t.Errorf("the same shards: %v", err)
		}
		skip := half
		skip.SkipExit = 99
		if sum, err := runJob(t, context.Background(), skip, Events{}); ExitCode(err) != 99 || sum.ExitCode != 99 {
			t.Errorf("the same shards with --skip-exit 99: %v", err)
		}
		free := half
		free.Lock = false
		mustRun(t, free)
		other := half
		other.Shard = Shard{1, 2}
		mustRun(t, other)
	}}); err != nil || !tried {
		t.Fatal(tried, err)
	}
	mustRun(t, s) // all locks are free again
	s.SkipExit = 7
	sum, err := runJob(t, context.Background(), s, Events{})
	if ExitCode(err) != 7 || sum.ExitCode != 7 || sum.Status != "ok" || sum.Rows.OK != 10 {
		t.Errorf("nothing to do with --skip-exit 7: %v, %+v", err, sum)
	}
	mustRun(t, testSpec(in, dir+"/out2/"))
	if exists(dir + "/out2/_run/lock") {
		t.Error("a run without a lock has made one")
	}
}
