package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/hub"
	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func modelsCommand() *cli.Command {
	return &cli.Command{
		Name:  "models",
		Usage: "fetch, list and check models",
		Subcommands: []*cli.Command{
			{
				Name: "pull", Usage: "fetch a model into the cache and check its hash", ArgsUsage: "MODEL",
				Flags:  []cli.Flag{toggle("json", "as JSON")},
				Action: func(c *cli.Context) error { return modelAction(c, jobs.PullModel) },
			},
			{
				Name: "verify", Usage: "read a cached or local model again and check its hash and its tensors", ArgsUsage: "MODEL",
				Flags:  []cli.Flag{toggle("json", "as JSON")},
				Action: func(c *cli.Context) error { return modelAction(c, jobs.VerifyModel) },
			},
			{
				Name: "list", Usage: "list known aliases and what is in the cache",
				Flags:  []cli.Flag{toggle("json", "as JSON")},
				Action: modelsList,
			},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return jobs.Errorf(jobs.Usage, "use pull, verify or list", "there is no command models %q", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}

func modelAction(c *cli.Context, do func(context.Context, jobs.ModelCall) (*jobs.ModelInfo, error)) error {
	if err := noLateFlags(c); err != nil {
		return err
	}
	if c.NArg() != 1 {
		return jobs.Errorf(jobs.Usage, "for example `batchmill models pull smollm2-135m`", "name one model")
	}
	store := objstore.New(objstore.Options{})
	defer store.Close()
	info, err := do(c.Context, jobs.ModelCall{Ref: c.Args().First(), Store: store, Progress: pullProgress(c.App.ErrWriter)})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, info)
	}
	w := c.App.Writer
	fmt.Fprintf(w, "model    %s\ndigest   %s\n", info.Name, info.Digest)
	for _, f := range info.Files {
		fmt.Fprintf(w, "file     %s\n", f)
	}
	_, err = fmt.Fprintf(w, "%s, %d tensors, %s of weights, context %d\n", info.Architecture, info.Tensors, bytesText(info.Bytes), info.Context)
	return err
}

// pullProgress prints what is fetched, a line at most every tenth of the whole.
func pullProgress(w io.Writer) func(hub.Progress) {
	said := map[string]int64{}
	return func(p hub.Progress) {
		key, tenth := p.Stage+p.File, int64(0)
		if p.Total > 0 {
			tenth = 10 * p.Done / p.Total
		}
		last, seen := said[key]
		if seen && tenth == last {
			return
		}
		said[key] = tenth
		if p.Total > 0 {
			fmt.Fprintf(w, "%s %s: %d%% of %s\n", p.Stage, p.File, 10*tenth, bytesText(p.Total))
			return
		}
		fmt.Fprintf(w, "%s %s\n", p.Stage, p.File)
	}
}

func modelsList(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	list, err := jobs.ListModels(c.Context)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, list)
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ALIAS\tMODEL\tHASH\tCACHED")
	for _, m := range list {
		pinned, cached := "pinned", "no"
		if !m.Pinned {
			pinned = "not pinned"
		}
		if m.Cached {
			cached = bytesText(m.Bytes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Alias, m.Ref, pinned, cached)
	}
	return t.Flush()
}
