package main

import (
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

// retryFlags are those of a run that a retry has: what decides a result is the parent's.
var retryFlags = []string{"model", "output", "overwrite", "shard", "tenant-column",
	"isa", "threads", "batch-tokens", "max-seqs", "kv-memory", "window-rows", "open-shards", "journal-units", "journal-every",
	"no-dedup", "no-prefix-sharing", "no-speculation",
	"json", "strict-exit", "max-error-rate", "min-rows", "row-timeout", "stall-timeout", "heartbeat", "grace", "progress"}

func retryCommand() *cli.Command {
	flags := []cli.Flag{toggle("all-errors", "repeat all rows that failed, also those that fail for good unless something else changed")}
	for _, f := range jobFlags() {
		if slices.Contains(retryFlags, f.Names()[0]) {
			flags = append(flags, f)
		}
	}
	return &cli.Command{
		Name:      "retry",
		Usage:     "repeat the rows of a complete job that failed for now, into a new and complete output",
		ArgsUsage: "OUTPUT",
		Description: "Rows whose error may pass (kv_budget_exceeded, timeout, internal) are run again from the job's inputs, which must not have changed; all\n" +
			"others are copied from its parts, with their measurements. What decides a result is that of the job; give more memory or time for\n" +
			"another outcome. The new output names its parent; the old one is not touched. The same command goes on after an interruption.",
		UsageText: "batchmill retry --output s3://bucket/out2/ --kv-memory 16GiB s3://bucket/out/",
		Flags:     flags,
		Action: func(c *cli.Context) error {
			return runJob(c, func(ev jobs.Events) (*jobs.Job, *objstore.Store, error) {
				parent, err := outputArgument(c)
				if err != nil {
					return nil, nil, err
				}
				var spec jobs.Spec
				if err := machineOf(c, &spec); err != nil {
					return nil, nil, err
				}
				store := objstore.New(objstore.Options{TmpDir: jobs.TmpDir(spec.Output)})
				job, err := prepared(c.Context, func() (*jobs.Job, error) {
					return jobs.PrepareRetry(c.Context, parent, c.Bool("all-errors"), spec, store, ev)
				})
				return job, store, err
			})
		},
	}
}
