package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show what files hold: schema, rows, sizes, a preview; or an output's completions",
		ArgsUsage: "INPUT...",
		Flags: []cli.Flag{
			whole("rows", "rows of the preview", 5),
			whole("width", "widest cell, in characters", 48),
			list("columns", "show only this column"),
			text("input-format", "jsonl or parquet; by content if empty", ""),
			toggle("json", "as JSON"),
		},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return jobs.Errorf(jobs.Usage, "for example `batchmill inspect 'data/*.parquet'`", "name a file, a glob or a folder")
			}
			if err := noLateFlags(c); err != nil {
				return err
			}
			store := objstore.New(objstore.Options{})
			defer store.Close()
			in, err := jobs.Inspect(c.Context, store, jobs.InspectOptions{
				Inputs: c.Args().Slice(), Rows: int(c.Int64("rows")), Columns: some(c.StringSlice("columns")), Format: c.String("input-format"),
			})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c, in)
			}
			return printInspection(c.App.Writer, in, int(c.Int64("width")))
		},
	}
}

func printInspection(w io.Writer, in *jobs.Inspection, width int) error {
	files := table{header: []string{"FILE", "FORMAT", "SIZE", "ROWS"}}
	for _, f := range in.Files {
		files.add(f.URL, f.Format, bytesText(f.Size), fmt.Sprint(f.Rows))
	}
	if err := files.print(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	schema := table{header: []string{"COLUMN", "TYPE"}, widest: 100}
	for _, c := range in.Columns {
		schema.add(c.Name, c.Type)
	}
	if err := schema.print(w); err != nil {
		return err
	}
	if len(in.Preview) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	preview := table{header: in.PreviewColumns, widest: width}
	for _, r := range in.Preview {
		preview.add(r...)
	}
	return preview.print(w)
}
