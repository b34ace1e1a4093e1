package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func benchCommand() *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure prefill and batched decode of this machine on a model; the best of several runs",
		Flags: []cli.Flag{
			text("model", "model reference", ""),
			whole("threads", "threads of the engine; 0 = all cores", 0),
			whole("prompt-tokens", "length of the prompts of the prefill measurement", 512),
			whole("prompts", "number of these prompts", 4),
			whole("seqs", "sequences that decode at once", 16),
			whole("decode-tokens", "tokens that each of them decodes", 64),
			whole("decode-past", "prompt tokens of each of them", 32),
			whole("repeat", "runs, of which the best counts", 3),
			whole("batch-tokens", "tokens of one engine step", 0),
			toggle("json", "as JSON"),
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if c.String("model") == "" {
				return jobs.Errorf(jobs.Usage, "for example --model smollm2-135m", "no model given")
			}
			for _, f := range []string{"prompt-tokens", "prompts", "seqs", "decode-tokens", "decode-past", "repeat"} {
				if c.Int64(f) < 1 {
					return jobs.Errorf(jobs.Usage, "", "--%s must be at least 1", f)
				}
			}
			if c.Int64("decode-tokens") < 2 {
				return jobs.Errorf(jobs.Usage, "the first token of a row comes from its prefill", "--decode-tokens must be at least 2")
			}
			store := objstore.New(objstore.Options{})
			defer store.Close()
			r, err := jobs.Bench(c.Context, store, jobs.BenchOptions{
				Model: c.String("model"), Threads: integer(c, "threads"), PromptTokens: integer(c, "prompt-tokens"), Prompts: integer(c, "prompts"),
				Seqs: integer(c, "seqs"), DecodeTokens: integer(c, "decode-tokens"), DecodePast: integer(c, "decode-past"),
				Repeat: integer(c, "repeat"), BatchTokens: integer(c, "batch-tokens"),
			})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c, r)
			}
			w := c.App.Writer
			fmt.Fprintf(w, "%s on %s, loaded in %.1f s, best of %d\n", r.Model, r.Device, r.Load, r.Repeat)
			fmt.Fprintf(w, "prefill  %4d prompts of %4d tokens  %9.1f tokens/s\n", r.Prompts, r.PromptTokens, r.Prefill)
			fmt.Fprintf(w, "decode   %4d sequences              %9.1f tokens/s\n", r.Seqs, r.Decode)
			_, err = fmt.Fprintf(w, "decode      1 sequence               %9.1f tokens/s\n", r.Single)
			return err
		},
	}
}
