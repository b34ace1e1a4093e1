package jobs

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
)

func status(t *testing.T, out string, now time.Time) *Status {
	t.Helper()
	store := objstore.New(objstore.Options{})
	defer store.Close()
	s, err := ReadStatus(context.Background(), store, out, now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStatusFollowsAJob(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", damagedRows(40)), dir+"/out/")
	s.Params.MaxTokens, s.SplitBytes, s.OpenShards, s.Heartbeat = 3, 400, 1, time.Hour
	var during *Status
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := runJob(t, ctx, s, Events{Part: func(string, *Facts) {
		if during == nil {
			during = status(t, dir+"/out", time.Now())
			cancel()
		}
	}})
	if KindOf(err) != Interrupted {
		t.Fatal(err)
	}
	if during.State != "running" || during.Shards.Done != 1 || len(during.Shards.Missing) != during.Shards.Total-1 || during.Rows.Total != 40 || during.Rows.OK == 0 || during.Rows.NotStarted == 0 {
		t.Errorf("during: %+v", during)
	}
	if len(during.Heartbeats) != 1 || !during.Heartbeats[0].Alive || during.Heartbeats[0].Shards != "all" || during.LastPart == nil {
		t.Errorf("heartbeats during: %+v", during.Heartbeats)
	}
	after := status(t, dir+"/out", time.Now())
	if after.State != "incomplete" || len(after.Heartbeats) != 0 || after.ETA != nil {
		t.Errorf("after the interruption: %+v", after)
	}
	mustRun(t, s)
	done := status(t, dir+"/out", time.Now())
	if done.State != "complete" || done.Rows.OK != 34 || done.Rows.Error != 6 || done.Rows.NotStarted != 0 || len(done.Shards.Missing) != 0 ||
		done.Errors["missing_column"] != 6 || done.Tokens.Completion == 0 || len(done.Problems) != 0 {
		t.Errorf("in the end: %+v", done)
	}
	if left, _ := filepath.Glob(dir + "/out/_run/heartbeat/*"); len(left) > 0 {
		t.Errorf("heartbeats are left: %v", left)
	}
}

// TestStatusOfADeadProcess has a heartbeat that nobody renews, as a killed process leaves it, and one of an older plan.
func TestStatusOfADeadProcess(t *testing.T) {
	dir := finished(t, "jsonl", nil)
	store := objstore.New(objstore.Options{})
	defer store.Close()
	o, err := openOutput(context.Background(), store, dir+"/out/")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/out/_SUCCESS"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(partOf(t, dir, 1)); err != nil {
		t.Fatal(err)
	}
	for i, digest := range []string{o.plan.Digest, "other"} {
		beat := Heartbeat{PlanDigest: digest, RunID: "r", Shards: "0/2", Every: 30, Time: time.Now()}
		if _, err := putJSON(context.Background(), store, o.layout.heartbeat(Shard{i, 2}), beat); err != nil {
			t.Fatal(err)
		}
	}
	if s := status(t, dir+"/out", time.Now().Add(10*time.Second)); s.State != "running" || len(s.Heartbeats) != 1 || s.ETA == nil || *s.ETA < 0 {
		t.Errorf("young heartbeat: %+v", s)
	}
	if s := status(t, dir+"/out", time.Now().Add(time.Hour)); s.State != "incomplete" || len(s.Heartbeats) != 1 || s.Heartbeats[0].Alive || s.Heartbeats[0].Age < 3500 || s.ETA != nil {
		t.Errorf("old heartbeat: %+v", s)
	}
}

func TestStatusRate(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	s := &Status{State: "running", Rows: RowCounts{NotStarted: 50}, Plan: StatusPlan{Created: at(0)}}
	s.rate([]arrival{{at(10), 100}, {at(20), 100}, {at(30), 100}})
	if s.RowsPerS == nil || *s.RowsPerS != 10 || s.ETA == nil || *s.ETA != 5 {
		t.Errorf("rate %v, ETA %v, want 10 rows/s and 5 s", s.RowsPerS, s.ETA)
	}
	one := &Status{State: "incomplete", Plan: StatusPlan{Created: at(0)}}
	one.rate([]arrival{{at(20), 100}})
	if one.RowsPerS == nil || *one.RowsPerS != 5 || one.ETA != nil {
		t.Errorf("one part: rate %v, ETA %v, want 5 rows/s and none", one.RowsPerS, one.ETA)
	}
	none := &Status{State: "running"}
	none.rate(nil)
	if none.RowsPerS != nil || none.ETA != nil {
		t.Errorf("no part: %v %v, want null", none.RowsPerS, none.ETA)
	}
}
