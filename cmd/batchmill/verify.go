package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "read an output again and prove that it is whole: bytes, digests, counts, every row once and in order",
		ArgsUsage: "OUTPUT",
		Description: "Nothing but the output is needed: neither the inputs nor the model. Each finding names its file, and its line and row where there is\n" +
			"one. The exit code is 0 if nothing is wrong, 65 if something is, and 75 if the job is not complete yet.",
		UsageText: "batchmill verify s3://bucket/out/",
		Flags: []cli.Flag{
			toggle("json", "one JSON line on stdout"),
			toggle("quiet", "do not name each part that was read"),
		},
		Action: verifyAction,
	}
}

// outputArgument is the one argument of the commands that look at an output.
func outputArgument(c *cli.Context) (string, error) {
	if err := noLateFlags(c); err != nil {
		return "", err
	}
	if c.Args().Len() != 1 || c.Args().First() == "" {
		return "", jobs.Errorf(jobs.Usage, fmt.Sprintf("for example `batchmill %s out/`", c.Command.Name), "name one output")
	}
	return c.Args().First(), nil
}

func verifyAction(c *cli.Context) error {
	url, err := outputArgument(c)
	if err != nil {
		return err
	}
	store := objstore.New(objstore.Options{})
	defer store.Close()
	v, err := jobs.Verify(c.Context, store, url, func(part string, found int) {
		if !c.Bool("quiet") && !c.Bool("json") {
			fmt.Fprintf(c.App.ErrWriter, "read %s: %s\n", part, plural(int64(found), "finding"))
		}
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c, v)
	} else {
		err = printVerification(c.App.Writer, v)
	}
	if err != nil {
		return jobs.Errorf(jobs.StorageIO, "", "write the findings: %w", err)
	}
	return v.Err()
}

func printVerification(w io.Writer, v *jobs.Verification) error {
	var b strings.Builder
	for _, f := range v.Findings {
		fmt.Fprintf(&b, "%s", f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		fmt.Fprintf(&b, ": %s: %s", f.Kind, oneLine(f.Message))
		if r := f.Row; r != nil && r.SourceFile != "" {
			fmt.Fprintf(&b, " (%s row %d", oneLine(r.SourceFile), r.RowIndex)
			if r.SampleIndex > 0 {
				fmt.Fprintf(&b, " sample %d", r.SampleIndex)
			}
			b.WriteByte(')')
		}
		if f.More > 0 {
			fmt.Fprintf(&b, ", and %d more of this kind", f.More)
		}
		b.WriteByte('\n')
	}
	for _, open := range v.NotProved {
		fmt.Fprintf(&b, "not proved: %s\n", open)
	}
	fmt.Fprintf(&b, "%s: %s\n", v.Status, v.Message)
	fmt.Fprintf(&b, "%s, %s, %s: %d ok, %d error, %d skipped, %d not started\n", plural(int64(v.Parts.There), "part"), bytesText(v.Parts.Bytes),
		plural(v.Rows.Total, "row"), v.Rows.OK, v.Rows.Error, v.Rows.Skipped, v.Rows.NotStarted)
	_, err := io.WriteString(w, b.String())
	return err
}

// plural prints a count with its noun.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
