package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "run the model over every row of the input and write completions with their statistics",
		Description: "Rows become prompts by a column or a template, the engine completes them in batches, and the output holds\n" +
			"every input column plus ours. Running the same command again does only what is missing.",
		UsageText: `batchmill run --model smollm2-135m --input 'data/*.parquet' --output out/ --prompt 'Summarise: {{ text }}' --max-tokens 64`,
		Flags:     jobFlags(),
		Action:    runAction,
	}
}

func runAction(c *cli.Context) error {
	return runJob(c, func(ev jobs.Events) (*jobs.Job, *objstore.Store, error) {
		if err := noArguments(c); err != nil {
			return nil, nil, err
		}
		spec, err := specOf(c)
		if err != nil {
			return nil, nil, err
		}
		store := objstore.New(objstore.Options{TmpDir: jobs.TmpDir(spec.Output)})
		job, err := prepared(c.Context, func() (*jobs.Job, error) { return jobs.Prepare(c.Context, spec, store, ev) })
		return job, store, located(c, err)
	})
}

// runJob prepares a job and runs it. The store, if there is one, is closed in the end.
func runJob(c *cli.Context, prepare func(jobs.Events) (*jobs.Job, *objstore.Store, error)) (err error) {
	sum := &jobs.Summary{Status: "error"}
	defer func() { // the summary is the last line of stdout, on failure too
		if !c.Bool("json") && !slices.Contains(argsOf(c), "--json") {
			return
		}
		if err != nil && sum.ExitCode == 0 {
			sum = failedSummary(err)
		}
		if perr := printJSON(c, sum); perr != nil && err == nil {
			err = jobs.Errorf(jobs.StorageIO, "", "write the summary: %w", perr)
		}
	}()
	show, err := newProgress(c.App.ErrWriter, c.String("progress"))
	if err != nil {
		return err
	}
	job, store, err := prepare(show.events())
	if store != nil {
		defer store.Close()
	}
	if err != nil {
		return err
	}
	defer job.Close()
	defer exitInTime(c.Context, graceOf(c))()
	result, err := job.Run(c.Context)
	show.stop()
	sum = result
	if !c.Bool("json") {
		printSummary(c.App.ErrWriter, sum)
	}
	return err
}

// failedSummary is the summary of a run that never began.
func failedSummary(err error) *jobs.Summary {
	return &jobs.Summary{Status: "error", ExitCode: jobs.ExitCode(err), Message: err.Error()}
}

// prepared prepares a job; what Ctrl-C ends meanwhile is an interruption.
func prepared(ctx context.Context, prepare func() (*jobs.Job, error)) (*jobs.Job, error) {
	job, err := prepare()
	if err != nil && ctx.Err() != nil {
		return nil, jobs.Errorf(jobs.Interrupted, "nothing was started", "interrupted")
	}
	return job, err
}

// rate prints a throughput that may be undefined.
func rate(r *float64) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *r)
}
