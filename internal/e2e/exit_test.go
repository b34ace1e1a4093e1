package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tinyModel has three small layers; what it writes is nonsense, in milliseconds.
func tinyModel() string { return filepath.Join(root, "infer", "model", "testdata", "llama") }

// TestExitCodes holds the program to the exit codes of the README, by which schedulers decide what to do. Those of
// signals and of storage that fails have tests of their own.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	good := write(t, dir+"/good.jsonl", []byte(strings.Repeat(`{"text": "a row"}`+"\n", 8)))
	mixed := write(t, dir+"/mixed.jsonl", []byte(strings.Repeat(`{"text": "a row"}`+"\n"+`{"no": 1}`+"\n", 20)))
	bad := write(t, dir+"/bad.jsonl", []byte(strings.Repeat(`{"text": null}`+"\n", 8)))
	broken := write(t, dir+"/model.gguf", []byte("GGUF and then nothing that makes sense"))
	config := write(t, dir+"/job.yaml", []byte("modle: x\n"))
	file := write(t, dir+"/file", nil)
	run := func(input string, more ...string) []string {
		return append([]string{"run", "--model", tinyModel(), "--input", input, "--prompt", "{{ text }}", "--max-tokens", "2", "--json"}, more...)
	}
	done := dir + "/done"
	cases := []struct {
		name string
		code int
		args []string
		says string // in what is printed
	}{
		{"done", 0, run(good, "--output", done), `"status":"ok"`},
		{"done before", 0, run(good, "--output", done), `"status":"ok"`},
		{"error rows within the limit", 0, run(mixed, "--output", dir+"/o1", "--max-error-rate", "0.5"), `"missing_column":20`},
		{"error rows under strict exit", 3, run(mixed, "--output", dir+"/o2", "--strict-exit"), `"exit_code":3`},
		{"too many error rows", 4, run(mixed, "--output", dir+"/o3", "--max-error-rate", "0.1", "--min-rows", "10"), "--max-error-rate 0.1"},
		{"no row ok", 4, run(bad, "--output", dir+"/o4"), "no row was ok"},
		{"unknown flag", 64, run(good, "--output", dir+"/o5", "--wat"), "not defined"},
		{"bad value", 64, run(good, "--output", dir+"/o5", "--max-error-rate", "7"), "between 0 and 1"},
		{"unknown command", 64, []string{"wat"}, "no command"},
		{"another plan", 65, run(good, "--output", done, "--seed", "9"), "seed"},
		{"damaged model", 65, append(run(good, "--output", dir+"/o6"), "--model", broken), "model"},
		{"no input", 66, run(dir+"/nothing.jsonl", "--output", dir+"/o7"), "nothing.jsonl"},
		{"no model", 66, append(run(good, "--output", dir+"/o7"), "--model", dir+"/nothing.gguf"), "nothing.gguf"},
		{"no such device", 69, run(good, "--output", dir+"/o8", "--device", "cuda"), "CUDA"},
		{"a step that takes too long", 70, run(good, "--output", dir+"/o9", "--stall-timeout", "1ns", "--max-tokens", "200", "--ignore-eos"), "no step for"},
		{"storage that cannot be written", 74, run(good, "--output", file+"/below/"), file},
		{"unknown key in a job file", 78, []string{"run", "--config", config}, "modle"},

		{"retry", 0, []string{"retry", "--output", dir + "/o10", "--json", dir + "/o1"}, `"missing_column":20`},
		{"retry of a stopped job", 75, []string{"retry", "--output", dir + "/o11", dir + "/o9"}, "not complete"},
		{"retry into itself", 64, []string{"retry", "--output", done, done}, "choose an --output"},
		{"verify a retry", 0, []string{"verify", dir + "/o10"}, "40 rows"},
		{"verify", 0, []string{"verify", "--json", done}, `"status":"ok"`},
		{"verify nothing", 66, []string{"verify", dir + "/nothing"}, "no job's output"},
		{"verify two", 64, []string{"verify", done, done}, "name one output"},
		{"verify a stopped job", 75, []string{"verify", dir + "/o9"}, "not complete"},
		{"status", 0, []string{"status", done}, "complete"},
		{"status of a stopped job", 0, []string{"status", "--json", dir + "/o9"}, `"done":0`},
		{"finalize", 0, []string{"finalize", done}, "complete"},
		{"finalize a stopped job", 75, []string{"finalize", dir + "/o9"}, "missing"},
	}
	for _, c := range cases {
		got := batchmill(t, nil, c.args...)
		if got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.says) {
			t.Errorf("%s: exit %d, want %d with %q\nstdout: %s\nstderr: %.2000s", c.name, got.code, c.code, c.says, got.stdout, got.stderr)
		}
		if c.args[0] == "run" && len(c.args) > 3 { // the summary comes whatever happens, and says the same
			var s summary
			if err := json.Unmarshal([]byte(got.stdout), &s); err != nil || s.ExitCode != c.code {
				t.Errorf("%s: summary %q: exit code %d, %v", c.name, got.stdout, s.ExitCode, err)
			}
		}
	}
	part := parts(t, done, "part-*.jsonl")[0]
	text := read(t, part)
	if err := os.Truncate(part, int64(len(text)-10)); err != nil {
		t.Fatal(err)
	}
	got := batchmill(t, nil, "verify", done)
	if got.code != 65 || !strings.Contains(got.stdout, part+":8: unreadable_row") || !strings.Contains(got.stdout, "good.jsonl row 7") {
		t.Errorf("verify a truncated part: exit %d\nstdout: %s\nstderr: %s", got.code, got.stdout, got.stderr)
	}
}
