package jobs

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/row"
)

// badRows makes n rows, of which those that bad names have no text.
func badRows(n int, bad func(i int) bool) []byte {
	var b bytes.Buffer
	for i := range n {
		if bad(i) {
			fmt.Fprintf(&b, `{"id": %d}`+"\n", i)
		} else {
			fmt.Fprintf(&b, `{"id": %d, "text": "row %d"}`+"\n", i, i)
		}
	}
	return b.Bytes()
}

func TestMaxErrorRateStopsARunAndKeepsItsProgress(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", badRows(200, func(i int) bool { return i >= 60 })), dir+"/out/")
	rate := 0.5
	s.Params.MaxTokens, s.SplitBytes, s.OpenShards, s.WindowRows, s.MaxErrorRate, s.MinRows = 2, 500, 1, 8, &rate, 20
	sum, err := runJob(t, context.Background(), s, Events{})
	if KindOf(err) != TooManyErrors || sum.ExitCode != 4 || sum.Status != "error" || !strings.Contains(sum.Message, "--max-error-rate 0.5") {
		t.Fatalf("%v\n%+v", err, sum)
	}
	r := sum.Rows
	if r.OK == 0 || r.NotStarted == 0 || r.Total != 200 || r.Total != r.OK+r.Error+r.NotStarted {
		t.Errorf("rows of a stopped run: %+v", r)
	}
	if exists(dir + "/out/_SUCCESS") {
		t.Error("_SUCCESS stands beside a stopped job")
	}
	rate = 0.8 // the limit is no part of the plan
	if sum = mustRun(t, s); sum.Rows.OK != 60 || sum.Rows.Error != 140 || sum.Rows.NotStarted != 0 {
		t.Errorf("going on: %+v", sum.Rows)
	}
}

func TestMinRowsAndTheEnd(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", badRows(40, func(i int) bool { return i < 10 })) // bad rows come first
	quarter, tenth := 0.25, 0.1
	cases := []struct {
		name string
		rate *float64
		min  int64
		kind Kind
	}{
		{"within", &quarter, 40, -1},
		{"beyond it in the end", &tenth, 1000, TooManyErrors},
		{"beyond it on the way", &quarter, 5, TooManyErrors},
		{"none", nil, 0, -1},
	}
	for i, c := range cases {
		s := testSpec(in, fmt.Sprintf("%s/out%d/", dir, i))
		s.Params.MaxTokens, s.MaxErrorRate, s.MinRows = 2, c.rate, c.min
		_, err := runJob(t, context.Background(), s, Events{})
		if c.kind < 0 && err != nil || c.kind >= 0 && KindOf(err) != c.kind {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestPoliciesAreChecked(t *testing.T) {
	two := 2.0
	for _, change := range []func(*Spec){
		func(s *Spec) { s.MaxErrorRate = &two },
		func(s *Spec) { s.MinRows = -1 },
		func(s *Spec) { s.RowTimeout = -1 },
		func(s *Spec) { s.StallTimeout = -1 },
	} {
		s := testSpec("in.jsonl", "out/")
		change(&s)
		s = s.withDefaults()
		if err := s.validate(); KindOf(err) != Usage {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestRowTimeoutIsARetryableRowError(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", rowsJSONL(4)), dir+"/out/")
	s.Params.MaxTokens, s.Params.IgnoreEOS, s.RowTimeout = 100, true, time.Nanosecond
	sum, err := runJob(t, context.Background(), s, Events{})
	if KindOf(err) != TooManyErrors || sum.Errors[row.Timeout] != 4 {
		t.Fatalf("%v: %+v", err, sum)
	}
	if rows := results(t, dir+"/out"); rows[0]["error_code"] != "timeout" || rows[0]["completion"] == nil {
		t.Errorf("a row that timed out: %v", rows[0])
	}
}

// TestAStalledEngineIsGivenUp has a step that does not end until the run has been given up.
func TestAStalledEngineIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", rowsJSONL(20)), dir+"/out/")
	s.StallTimeout = 200 * time.Millisecond
	leave := make(chan struct{})
	var stacks []byte
	sum, err := runJob(t, context.Background(), s, Events{
		Step:    func(Progress) { <-leave },
		Stalled: func(b []byte) { stacks = b; close(leave) },
	})
	if KindOf(err) != Internal || sum.ExitCode != 70 || sum.Status != "error" || !strings.Contains(sum.Message, "no step for") {
		t.Fatalf("%v: %+v", err, sum)
	}
	if !bytes.Contains(stacks, []byte("TestAStalledEngineIsGivenUp")) {
		t.Errorf("the stacks do not show where it hangs:\n%.500s", stacks)
	}
	s.StallTimeout = time.Minute
	if sum = mustRun(t, s); sum.Rows.OK != 20 {
		t.Errorf("going on: %+v", sum.Rows)
	}
}

// TestAnEngineThatHangsForGoodIsLeftBehind has a step that never ends: Run returns all the same.
func TestAnEngineThatHangsForGoodIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", rowsJSONL(20)), dir+"/out/")
	s.StallTimeout = 200 * time.Millisecond
	leave := make(chan struct{})
	t.Cleanup(func() { close(leave) })
	sum, err := runJob(t, context.Background(), s, Events{Step: func(Progress) { <-leave }})
	if KindOf(err) != Internal || sum.ExitCode != 70 || sum.RunID == "" {
		t.Fatalf("%v: %+v", err, sum)
	}
}

// TestJournalledErrorsCount: what earlier attempts came to counts towards --max-error-rate as this one's rows do.
func TestJournalledErrorsCount(t *testing.T) {
	s, err := newSpool()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for slot, flags := range []uint32{0, failedFlag, failedFlag, failedFlag | againFlag, 0, failedFlag} {
		if err := s.keep(int64(slot), []byte("{}"), flags); err != nil {
			t.Fatal(err)
		}
	}
	rate := 0.5
	var halted error
	r := &runState{job: &Job{spec: Spec{MaxErrorRate: &rate}}, halt: func(err error) { halted = err }}
	r.tookOver(s)
	if r.before.OK != 2 || r.before.Error != 3 {
		t.Fatalf("taken over: %+v", r.before)
	}
	r.live.Errors = map[row.Code]int64{}
	r.countResult(&row.Result{Status: row.OK})
	if halted != nil { // 3 of 6
		t.Errorf("halted at the limit: %v", halted)
	}
	r.countResult(&row.Result{Status: row.Failed, Err: row.Errorf(row.Internal, "x")})
	if KindOf(halted) != TooManyErrors {
		t.Errorf("not halted beyond the limit: %v", halted)
	}
}
