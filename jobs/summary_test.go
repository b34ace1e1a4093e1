package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestRefusalsHaveNotWorked: a run that is refused, or that cannot start, has no summary for a person, whatever its output
// holds.
func TestRefusalsHaveNotWorked(t *testing.T) {
	dir := t.TempDir()
	s := testSpec(writeFile(t, dir+"/in.jsonl", rowsJSONL(20)), dir+"/out/")
	if sum := mustRun(t, s); !sum.Worked {
		t.Error("a run that did everything says that it has not worked")
	}
	if sum := mustRun(t, s); !sum.Worked {
		t.Error("a run that found everything done has not worked")
	}
	for name, change := range map[string]func(*Spec){
		"other activations":  func(s *Spec) { s.Activations = "int8" },
		"no page":            func(s *Spec) { s.KVMemory, s.Output = 1, dir+"/o1/" },
		"too many threads":   func(s *Spec) { s.Threads, s.Output = 5000, dir+"/o2/" },
		"too much KV memory": func(s *Spec) { s.KVMemory, s.Output = 1<<50, dir+"/o3/" },
	} {
		other := s
		change(&other)
		sum, err := runJob(t, context.Background(), other, Events{})
		if err == nil || sum != nil && (sum.Worked || sum.ExitCode == 0) {
			t.Errorf("%s: %v, %+v", name, err, sum)
		}
		if name == "other activations" && !strings.Contains(err.Error(), `"activations" is "f32" in its plan, and "int8" is asked for`) {
			t.Errorf("%v", err)
		}
	}
}

// TestTheSummaryCountsWhatTheEngineDid: what was drafted, preempted and computed again is in the JSON line.
func TestTheSummaryCountsWhatTheEngineDid(t *testing.T) {
	dir := t.TempDir()
	var rows bytes.Buffer
	for i := range 4 {
		fmt.Fprintf(&rows, `{"text": "one two three %d one two three %d one two three"}`+"\n", i, i)
	}
	s := testSpec(writeFile(t, dir+"/in.jsonl", rows.Bytes()), dir+"/out/")
	s.Params.MaxTokens, s.Params.IgnoreEOS = 300, true
	sum := mustRun(t, s)
	if d := sum.Speculated; d.Drafted == 0 || d.Accepted == 0 || d.Accepted > d.Drafted {
		t.Errorf("speculation: %+v", d)
	}
	data, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf(`"speculation":{"drafted":%d,"accepted":%d}`, sum.Speculated.Drafted, sum.Speculated.Accepted), `"preemptions":0`, `"recomputed_tokens":0`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in %s", want, data)
		}
	}
	s.Output, s.NoSpeculation = dir+"/plain/", true
	if sum := mustRun(t, s); sum.Speculated != (SpeculationSummary{}) {
		t.Errorf("without speculation: %+v", sum.Speculated)
	}
}
