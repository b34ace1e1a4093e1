package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func finalizeCommand() *cli.Command {
	return &cli.Command{
		Name:      "finalize",
		Usage:     "mark a job complete whose parts are all there, or name those that are missing",
		ArgsUsage: "OUTPUT",
		Description: "The run that commits the last part does the same; this is for jobs whose processes ended just before. The exit code is 75 if parts\n" +
			"are missing.",
		UsageText: "batchmill finalize s3://bucket/out/",
		Flags:     []cli.Flag{toggle("json", "one JSON line on stdout")},
		Action: func(c *cli.Context) error {
			url, err := outputArgument(c)
			if err != nil {
				return err
			}
			store := objstore.New(objstore.Options{TmpDir: jobs.TmpDir(url)})
			defer store.Close()
			f, err := jobs.Finalize(c.Context, store, url)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = printJSON(c, f)
			} else if f.Err() == nil {
				_, err = fmt.Fprintf(c.App.Writer, "%s: %s, %s, %s\n", f.Output, f.Message, plural(int64(f.Parts), "part"), plural(f.Rows.Total, "row"))
			}
			if err != nil {
				return jobs.Errorf(jobs.StorageIO, "", "write what was found: %w", err)
			}
			return f.Err()
		},
	}
}
