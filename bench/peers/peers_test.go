package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// script writes an executable that notes its arguments in calls and prints text.
func script(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	body := "#!/bin/sh\necho \"" + name + " $*\" >> '" + dir + "/calls'\ncat <<'END'\n" + text + "\nEND\n"
	if err := os.WriteFile(path, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// standIns are programs that print what the real ones print.
func standIns(t *testing.T) config {
	dir := t.TempDir()
	script(t, dir, "llama-bench", `{"n_prompt": 512, "avg_ts": 700.5}`)
	script(t, dir, "llama-batched-bench", "some talk\n"+`{"pp": 128, "pl": 1, "speed_tg": 60.0}`+"\n"+`{"pp": 128, "pl": 64, "speed_tg": 200.0}`)
	return config{
		batchmill:  script(t, dir, "batchmill", `{"activations": "int8", "prefill": {"tokens_per_s": 2101.5}, "decode": [{"seqs": 1, "tokens_per_s": 90}, {"seqs": 64, "tokens_per_s": 1200}]}`),
		llamaBuild: script(t, dir, "build.sh", "build:one="+dir+"\nbuild:two="+dir+"\nmodel:Q8_0=/m.gguf\nversion=peer 1"),
		python:     script(t, dir, "python", ""), model: "m.gguf", out: filepath.Join(dir, "out"), threads: 2, rounds: 2, bound: time.Minute,
		types: "Q8_0", only: "^(prefill|decode)/", activations: "auto", isa: "auto",
	}
}

func calls(t *testing.T, c config) string {
	t.Helper()
	name := filepath.Join(filepath.Dir(c.out), "calls")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRun(t *testing.T) {
	c := standIns(t)
	if err := run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	r, err := readResult(filepath.Join(c.out, "prefill-Q8_0.json"))
	if err != nil {
		t.Fatal(err)
	}
	if mine, ok := r.best("prefill, Q8_0", ours); !r.Whole || r.Rounds != 2 || !ok || mine.Value != 2101.5 || r.Versions["llama.cpp"] != "peer 1" {
		t.Errorf("result %+v", r)
	}
	// Two builds with four settings in the first round, the best of each in the second.
	if n := strings.Count(calls(t, c), "llama-bench -m"); n != 2*4+2 {
		t.Errorf("llama-bench ran %d times, want 10", n)
	}
	// What is there is not measured again.
	if err := run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if said := calls(t, c); strings.Contains(said, "batchmill bench") {
		t.Errorf("a finished part was measured again:\n%s", said)
	}
	beginMark, endMark := marks("figures")
	table := filepath.Join(c.out, "page.md")
	if err := os.WriteFile(table, []byte("before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeReport(c.out, table, "figures"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "after\n", "| prefill, Q8_0 | 2102 | 700 | 700 | 3.00 |", "| decode of 64, Q8_0 | 1200 | 200 | 200 | 6.00 |", "* llama.cpp: peer 1"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "old") {
		t.Error("the old tables are still there")
	}
	if err := os.WriteFile(table, []byte("no marks"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeReport(c.out, table, "figures"); err == nil {
		t.Error("a page without marks was written")
	}
}

// TestPeerFails: an engine that does not run is noted, and the others count; a part that cannot be measured fails the run.
func TestPeerFails(t *testing.T) {
	c := standIns(t)
	dir := filepath.Dir(c.out)
	script(t, dir, "llama-bench", "nothing to see")
	if err := run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	r, err := readResult(filepath.Join(c.out, "prefill-Q8_0.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Failed) == 0 || !strings.Contains(r.Failed[0], "no JSON line") {
		t.Errorf("failures %q", r.Failed)
	}
	script(t, dir, "batchmill", "nothing to see")
	c.force = true
	if err := run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "no JSON line") {
		t.Errorf("a silent batchmill: %v", err)
	}
}

func TestBetter(t *testing.T) {
	if !better(entry{Value: 2, Unit: "tokens/s"}, entry{Value: 1, Unit: "tokens/s"}) || !better(entry{Value: 1, Unit: "s"}, entry{Value: 2, Unit: "s"}) {
		t.Error("rates should be high and times low")
	}
}

// TestDrive sends rows to a server that answers as llama-server does, and knows how many it got at once.
func TestDrive(t *testing.T) {
	var now, most atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		var body struct {
			Prompt    json.RawMessage `json:"prompt"`
			Predict   int             `json:"n_predict"`
			IgnoreEOS bool            `json:"ignore_eos"`
		}
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil || !body.IgnoreEOS {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		time.Sleep(10 * time.Millisecond)
		if string(body.Prompt) == `"short"` {
			body.Predict--
		}
		fmt.Fprintf(w, `{"tokens_evaluated": 3, "tokens_predicted": %d}`, body.Predict)
	}))
	defer srv.Close()
	p := &prompts{Tokens: 5, Rows: []promptRow{{Prompt: "a"}, {IDs: []int{1, 2, 3}}, {Prompt: "b"}, {Prompt: "c"}, {Prompt: "d"}, {Prompt: "e"}}}
	got, err := drive(context.Background(), srv.Client(), srv.URL, 2, p, 1)
	if err != nil || got.prompt != 18 || got.completion != 30 || got.wall <= 0 {
		t.Errorf("served %+v, %v", got, err)
	}
	if n := most.Load(); n < 2 || n > 4 {
		t.Errorf("%d rows at once, want 2 slots and at most 2 that wait", n)
	}
	p.Rows = append(p.Rows, promptRow{Prompt: "short"})
	if _, err := drive(context.Background(), srv.Client(), srv.URL, 2, p, 0); err == nil {
		t.Error("a row that came back short was taken")
	}
}
