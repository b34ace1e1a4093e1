package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/jobs"
)

// specFrom parses a command line up to the specification.
func specFrom(t *testing.T, args ...string) (jobs.Spec, error) {
	t.Helper()
	var spec jobs.Spec
	app := newApp(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	for _, c := range app.Commands {
		if c.Name == "run" {
			c.Action = func(c *cli.Context) (err error) {
				spec, err = specOf(c)
				return err
			}
		}
	}
	err := app.RunContext(context.Background(), append([]string{"batchmill", "run"}, args...))
	return spec, err
}

func jobFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestJobFile(t *testing.T) {
	file := jobFile(t, `
"model": hf:Qwen/Qwen3-0.6B
input:  {urls: ["s3://bucket/in/*.jsonl.zst", "a,b.jsonl"], columns: [id, text]}
output: {url: s3://bucket/out/, format: parquet}
prompt: {system: "You are terse.", user: "Translate: {{ text }}", chat_template_kwargs: {enable_thinking: false}}
sampling: {max_tokens: 010, temperature: 0.7, top_p: 0.9, seed: 7, stop: ["\n\n", "END"], n: 2}
limits: {kv_memory: 8GiB}
`)
	t.Setenv("BATCHMILL_TOP_P", "0.5")
	s, err := specFrom(t, "--config", file, "--seed", "9")
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case s.Model != "hf:Qwen/Qwen3-0.6B", len(s.Inputs) != 2, s.Inputs[1] != "a,b.jsonl", len(s.Columns) != 2, s.Format != "parquet",
		s.System != "You are terse.", s.Params.MaxTokens != 10, s.Params.Temperature != 0.7, len(s.Params.Stop) != 2, s.Samples != 2,
		s.KVMemory != 8<<30, s.ChatTemplateKwargs["enable_thinking"] != false:
		t.Errorf("the file was read as %+v", s)
	case s.Seed != 9:
		t.Errorf("seed %d: a flag wins over the file", s.Seed)
	case s.Params.TopP != 0.5:
		t.Errorf("top_p %g: the environment wins over the file", s.Params.TopP)
	}
}

func TestSharingIsSwitchedByFlagEnvironmentAndFile(t *testing.T) {
	check := func(s jobs.Spec, err error) {
		t.Helper()
		if err != nil || !s.NoDedup || !s.NoPrefixSharing || !s.NoSpeculation || s.TenantColumn != "who" {
			t.Errorf("%v: read as %v %v %v %q", err, s.NoDedup, s.NoPrefixSharing, s.NoSpeculation, s.TenantColumn)
		}
	}
	check(specFrom(t, "--no-dedup", "--no-prefix-sharing", "--no-speculation", "--tenant-column", "who"))
	check(specFrom(t, "--config", jobFile(t, "input: {tenant_column: who}\nengine: {no_dedup: true, no_prefix_sharing: true, no_speculation: true}")))
	t.Setenv("BATCHMILL_NO_DEDUP", "true")
	t.Setenv("BATCHMILL_NO_PREFIX_SHARING", "1")
	t.Setenv("BATCHMILL_NO_SPECULATION", "1")
	t.Setenv("BATCHMILL_TENANT_COLUMN", "who")
	check(specFrom(t))
	if s, err := specFrom(t, "--no-dedup=false"); err != nil || s.NoDedup {
		t.Errorf("a flag wins over the environment: %v, %v", s.NoDedup, err)
	}
}

func TestTheSummaryTellsWhatWasShared(t *testing.T) {
	share := 0.25
	var b bytes.Buffer
	printSummary(&b, &jobs.Summary{
		Worked: true, Sharing: jobs.SharingSummary{PromptShare: &share, Copies: 3, CopiedPrompt: 40, CopiedCompletion: 9},
		Speculated: jobs.SpeculationSummary{Drafted: 20, Accepted: 15}, Batch: jobs.BatchSummary{Preemptions: 2, Recomputed: 31},
	})
	for _, want := range []string{"25.0% of the prompt tokens of the rows that ran", "15 of 20 tokens drafted", "2 preemptions", "31 tokens computed again", "3 rows are copies", "40 prompt and 9 completion tokens"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in %q", want, b.String())
		}
	}
	share = 0
	b.Reset()
	if printSummary(&b, &jobs.Summary{Worked: true, Sharing: jobs.SharingSummary{PromptShare: &share}}); strings.Contains(b.String(), "shared") || strings.Contains(b.String(), "copies") || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("nothing was shared, drafted or computed again, but %q", b.String())
	}
	b.Reset()
	if printSummary(&b, &jobs.Summary{Rows: jobs.RowCounts{Total: 612, NotStarted: 612}}); b.Len() > 0 {
		t.Errorf("of a run that never started it says %q", b.String())
	}
}

func TestJobFileMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"modle: x":                        `:1:1: unknown key "modle"`,
		"input:\n  url: x":                "did you mean \"input.urls\"?",
		"sampling:\n  top_k: 1.5":         ":2:",
		"sampling: {top_k: many}":         "top_k",
		"model: [a, b]":                   "one value",
		"model: {a: b}":                   "not a group",
		"- a":                             "keys and values",
		"model: a\n---\nmodel: b":         "2 documents",
		"model: a\nmodel: b":              "model",
		"sampling: {temperature: 0.1":     "job.yaml",
		"limits: {kv_memory: lots}":       "not a size",
		"sampling: {stop: [\"\"]}":        "empty --stop",
		"prompt: {template_date: spring}": "job.yaml:1:25: --template-date",
		"sampling: {top_p: 2}":            "job.yaml:1:19: sampling: top_p",
		"sampling:\n  max_tokens: 0":      "job.yaml:2:15: --max-tokens",
		"prompt: {file: /nonexistent}":    "job.yaml:1:16: --prompt-file",
		`engine: {no_dedup: "yes"}`:       `"engine.no_dedup": "yes" is not true or false`,
		"limits: {row_timeout: soon}":     `"soon" is not a time`,
		"sampling: {temperature: warm}":   `"warm" is not a number`,
		"engine: {threads: -1}":           "job.yaml:1:19: --threads",
	} {
		_, err := specFrom(t, "--config", jobFile(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want a message with %q", text, err, want)
			continue
		}
		want := jobs.Config
		if strings.Contains(text, "nonexistent") {
			want = jobs.NoInput
		}
		if k := jobs.KindOf(err); k != want || !strings.Contains(err.Error(), "job.yaml") {
			t.Errorf("%q: kind %d, %v", text, k, err)
		}
	}
}

// TestHelpSaysWhatNothingMeans: a flag whose default is 0 says what 0 does, a size whose default is empty what that does.
func TestHelpSaysWhatNothingMeans(t *testing.T) {
	for _, f := range append(append(jobFlags(), benchCommand().Flags...), planCommand().Flags...) {
		name, usage, zero := f.Names()[0], "", false
		switch f := f.(type) {
		case *cli.Int64Flag:
			usage, zero = f.Usage, f.Value == 0
		case *cli.Float64Flag:
			usage, zero = f.Usage, f.Value == 0
		case *cli.DurationFlag:
			usage, zero = f.Usage, f.Value == 0
		case *cli.StringFlag:
			usage, zero = f.Usage, f.Value == "" && (name == "kv-memory" || strings.HasSuffix(name, "-bytes"))
		}
		if zero && name != "seed" && !slices.ContainsFunc([]string{"0 = ", "0 is ", "if 0", "if not given", "if empty"}, func(s string) bool { return strings.Contains(usage, s) }) {
			t.Errorf("--%s: %q does not say what it is if it is not given", name, usage)
		}
	}
	for flag, want := range map[string]string{"batch-tokens": "0 = 512", "window-rows": "0 = 2048", "open-shards": "0 = 4", "split-bytes": "256MiB", "max-line-bytes": "64MiB"} {
		for _, f := range jobFlags() {
			if f.Names()[0] == flag && !strings.Contains(f.(cli.DocGenerationFlag).GetUsage(), want) {
				t.Errorf("--%s does not say %q", flag, want)
			}
		}
	}
}

// TestWhatAJobFileAsksForIsRefusedThere: also what only the job itself refuses is told with its line, as a fault of the file;
// what a flag says over the file is a fault of the flag.
func TestWhatAJobFileAsksForIsRefusedThere(t *testing.T) {
	for text, want := range map[string]string{
		"engine:\n  activations: int4":               `job.yaml:2:16: unknown --activations "int4"`,
		"engine:\n  isa: AVX2":                       `job.yaml:2:8: unknown --isa "AVX2"`,
		"engine:\n  threads: 5000":                   `job.yaml:2:12: --threads must be`,
		"engine: {device: tpu}":                      `job.yaml:1:18: unknown --device "tpu"`,
		"output: {format: csv}":                      `job.yaml:1:18: unknown --format "csv"`,
		"limits: {max_error_rate: 7}":                `job.yaml:1:26: --max-error-rate`,
		"sampling: {n: 3}":                           `job.yaml:1:15: --samples 3`,
		"prompt: {raw: true, system: you are terse}": "job.yaml:1:15: --raw",
	} {
		for _, command := range []string{"run", "plan"} {
			var out, errs bytes.Buffer
			args := []string{"batchmill", command, "--config", jobFile(t, text), "--model", "x", "--input", "y", "--output", "o/"}
			if code := execute(context.Background(), args, strings.NewReader(""), &out, &errs); code != 78 || !strings.Contains(errs.String(), want) {
				t.Errorf("%s, %q: exit %d, %q, want %q", command, text, code, errs.String(), want)
			}
		}
	}
	var out, errs bytes.Buffer
	args := []string{"batchmill", "run", "--config", jobFile(t, "engine: {isa: avx2}"), "--isa", "AVX9", "--model", "x", "--input", "y", "--output", "o/"}
	if code := execute(context.Background(), args, strings.NewReader(""), &out, &errs); code != 64 || strings.Contains(errs.String(), "job.yaml") {
		t.Errorf("a flag over the file: exit %d, %q", code, errs.String())
	}
}

// TestUnreadableValues: the message names the flag, the value, where it comes from and what is wanted, nothing of how Go reads.
func TestUnreadableValues(t *testing.T) {
	for name, c := range map[string]struct {
		args       []string
		env, value string
		want       string
	}{
		"bool":             {[]string{"--no-dedup=banana"}, "", "", `--no-dedup: "banana" is not true or false`},
		"whole":            {[]string{"--top-k", "1.5"}, "", "", `--top-k: "1.5" is not a whole number`},
		"quote":            {[]string{"--top-k", `1"5`}, "", "", `--top-k: "1\"5" is not a whole number`},
		"number":           {[]string{"--temperature", "warm"}, "", "", `--temperature: "warm" is not a number`},
		"time":             {[]string{"--row-timeout", "5"}, "", "", `--row-timeout: "5" is not a time`},
		"alias":            {[]string{"--max-num-seqs", "x"}, "", "", `--max-num-seqs: "x" is not a whole number`},
		"bool from env":    {nil, "BATCHMILL_NO_DEDUP", "banana", `--no-dedup: "banana" is not true or false (environment variable "BATCHMILL_NO_DEDUP")`},
		"whole from env":   {nil, "BATCHMILL_TOP_K", "many", `--top-k: "many" is not a whole number (environment variable "BATCHMILL_TOP_K")`},
		"number from env":  {nil, "BATCHMILL_TOP_P", "x", `--top-p: "x" is not a number (environment variable "BATCHMILL_TOP_P")`},
		"time from an env": {nil, "BATCHMILL_ROW_TIMEOUT", "soon", `--row-timeout: "soon" is not a time`},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv(c.env, c.value)
			}
			var out, errs bytes.Buffer
			code := execute(context.Background(), append([]string{"batchmill", "run"}, c.args...), strings.NewReader(""), &out, &errs)
			if code != 64 || !strings.Contains(errs.String(), c.want) || strings.Contains(errs.String(), "strconv") || strings.Contains(errs.String(), "parse error") {
				t.Errorf("exit %d, %q, want %q", code, errs.String(), c.want)
			}
		})
	}
}

// TestEveryFlagHasAPlaceInTheFile: what a flag can say, a job file can say.
func TestEveryFlagHasAPlaceInTheFile(t *testing.T) {
	placed := map[string]bool{"config": true, "overwrite": true, "shard": true} // of one run, not of a job
	for _, flag := range yamlKeys {
		placed[flag] = true
	}
	known := map[string]bool{}
	for _, f := range jobFlags() {
		known[f.Names()[0]] = true
		if !placed[f.Names()[0]] {
			t.Errorf("--%s has no place in a job file", f.Names()[0])
		}
	}
	for key, flag := range yamlKeys {
		if !known[flag] {
			t.Errorf("%s stands for --%s, which does not exist", key, flag)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "--frobnicate"}, 64, "frobnicate"},
		{[]string{"run", "-n", "3"}, 64, "--samples"},
		{[]string{"run", "input.jsonl"}, 64, "quote globs"},
		{[]string{"run", "input.jsonl", "--json"}, 64, "before arguments"},
		{[]string{"inspect", "x.jsonl", "--rows", "3"}, 64, "before arguments"},
		{[]string{"run"}, 64, "--model"},
		{[]string{"run", "--max-tokens", "0"}, 64, "--max-tokens"},
		{[]string{"run", "--samples", "0"}, 64, "--samples"},
		{[]string{"run", "--frobnicate", "--json"}, 64, "frobnicate"},
		{[]string{"run", "--model", "x", "--input", "y", "--output", "o.parquet", "--format", "jsonl"}, 64, "--format jsonl"},
		{[]string{"run", "--model", "x", "--input", "y", "--output", "o.csv"}, 64, ".csv"},
		{[]string{"run", "--model", "x", "--input", "y", "--output", "o/", "--raw", "--system", "z"}, 64, "--raw"},
		{[]string{"run", "--shard", "4/4"}, 64, "out of range"},
		{[]string{"run", "--top-p", "2"}, 64, "top_p"},
		{[]string{"run", "--kv-memory", "12 apples"}, 64, "not a size"},
		{[]string{"run", "--prompt-file", "/nonexistent/file"}, 66, "prompt-file"},
		{[]string{"run", "--chat-template-kwargs", "[1]"}, 64, "not a JSON object"},
		{[]string{"nonsense"}, 64, "nonsense"},
		{[]string{"models", "pull"}, 64, "name one model"},
		{[]string{"tokenize"}, 64, "no model"},
		{[]string{"version"}, 0, ""},
	} {
		var out, errs bytes.Buffer
		code := execute(context.Background(), append([]string{"batchmill"}, c.args...), strings.NewReader(""), &out, &errs)
		if want := slices.Contains(c.args, "--json") && c.args[0] == "run"; want != (strings.Count(out.String(), "\"exit_code\":") == 1) && c.code != 0 {
			t.Errorf("%v: stdout %q", c.args, out.String())
		}
		if code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit %d, want %d; stderr %q, want %q in it", c.args, code, c.code, errs.String(), c.want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "2KiB": 2048, "1.5 MiB": 3 << 19, "3gb": 3e9, "7B": 7} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "x", "1XB", "NaN", "1e30GiB", "0"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestTablesDoNotDriveTheTerminal(t *testing.T) {
	tab := table{header: []string{"A", "B"}, widest: 10}
	tab.add("x\x1b[2J\ny", "a very long cell indeed")
	var b bytes.Buffer
	if err := tab.print(&b); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); strings.ContainsAny(s, "\x1b\r") || !strings.Contains(s, "a very lo…") || strings.Count(s, "\n") != 2 {
		t.Errorf("printed %q", s)
	}
}
