package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func benchCommand() *cli.Command {
	var flags []cli.Flag
	flags = append(flags, category("What",
		text("model", "model reference", ""),
		text("activations", "as for run", "auto"),
		text("isa", "as for run", "auto"),
		whole("threads", "threads of the engine; 0 = all cores", 0),
		whole("batch-tokens", batchTokensUsage, 0),
		text("parts", "parts to measure, with commas: "+strings.Join(jobs.BenchParts, ", "), "all"),
		whole("repeat", "runs of each figure, of which the best counts", 3),
		whole("budget", "seconds after which a figure's runs are not repeated any more", 120),
		toggle("json", "as JSON"),
	)...)
	flags = append(flags, category("Sizes",
		whole("prompt-tokens", "length of the prompts of the prefill measurement", 512),
		whole("prompts", "number of these prompts", 4),
		text("seqs", "numbers of sequences that decode at once, with commas", "1,4,16,64"),
		whole("decode-tokens", "steps in which all of them decode", 64),
		whole("decode-past", "prompt tokens of each of them", 32),
		whole("prefix-rows", "rows with a common beginning", 64),
		whole("prefix-tokens", "length of that beginning", 400),
		whole("own-tokens", "prompt tokens that each of these rows has besides", 100),
		whole("long-tokens", "length of the long prompt; 0 = 8191, or what the model allows", 0),
		text("profiles", "whole jobs, with commas: chat, longdoc, code", "all"),
		number("size", "factor on the rows of whole jobs", 1),
	)...)
	return &cli.Command{
		Name:  "bench",
		Usage: "measure what the engine makes of this machine on a model: prefill, decode, shared prefixes, speculation, long prompts, whole jobs",
		Description: "Rows are synthetic. Each figure is the best of several runs. Beside the engine's figures stand what bounds them, memory\n" +
			"bandwidth and operations a second, and the share reached.",
		UsageText: "batchmill bench --model smollm2-135m --parts ceilings,prefill,decode",
		Flags:     flags,
		Action:    benchAction,
	}
}

func benchAction(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	o, err := benchOptions(c)
	if err != nil {
		return err
	}
	store := objstore.New(objstore.Options{})
	defer store.Close()
	r, err := jobs.Bench(c.Context, store, o, func(part string) { fmt.Fprintf(c.App.ErrWriter, "measuring %s\n", part) })
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, r)
	}
	return printBench(c.App.Writer, r)
}

func benchOptions(c *cli.Context) (jobs.BenchOptions, error) {
	o := jobs.BenchOptions{
		Model: c.String("model"), Activations: c.String("activations"), ISA: c.String("isa"), Threads: integer(c, "threads"), BatchTokens: integer(c, "batch-tokens"),
		Repeat: integer(c, "repeat"), Budget: time.Duration(c.Int64("budget")) * time.Second,
		PromptTokens: integer(c, "prompt-tokens"), Prompts: integer(c, "prompts"), DecodeTokens: integer(c, "decode-tokens"), DecodePast: integer(c, "decode-past"),
		PrefixRows: integer(c, "prefix-rows"), PrefixTokens: integer(c, "prefix-tokens"), OwnTokens: integer(c, "own-tokens"),
		LongTokens: integer(c, "long-tokens"), Size: c.Float64("size"),
	}
	if o.Model == "" {
		return o, jobs.Errorf(jobs.Usage, "for example --model smollm2-135m", "no model given")
	}
	for _, f := range []string{"prompt-tokens", "prompts", "decode-tokens", "decode-past", "prefix-rows", "prefix-tokens", "own-tokens", "repeat", "budget"} {
		if c.Int64(f) < 1 {
			return o, jobs.Errorf(jobs.Usage, "", "--%s must be at least 1", f)
		}
	}
	if c.Int64("long-tokens") < 0 || c.Int64("threads") < 0 || c.Int64("batch-tokens") < 0 || o.Size <= 0 {
		return o, jobs.Errorf(jobs.Usage, "", "--long-tokens, --threads and --batch-tokens must not be negative, --size must be above 0")
	}
	if v := c.String("parts"); v != "all" {
		o.Parts = strings.Split(v, ",")
	}
	if v := c.String("profiles"); v != "all" {
		o.Profiles = strings.Split(v, ",")
	}
	for v := range strings.SplitSeq(c.String("seqs"), ",") {
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil || n < 1 {
			return o, jobs.Errorf(jobs.Usage, "write numbers with commas between them, such as 1,16,64", "--seqs: %q is no number of sequences", v)
		}
		o.Seqs = append(o.Seqs, n)
	}
	return o, nil
}
