package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name:  "plan",
		Usage: "say what a run would do: rows, tokens, memory, shards; no model is run and nothing is written",
		Flags: append(jobFlags(), whole("sample", "rows to tokenise for the estimate; 0 = all", jobs.DefaultEstimateRows),
			toggle("show-config", "print every value with where it comes from, and plan nothing")),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			spec, err := specOf(c)
			if err != nil {
				return err
			}
			if c.Bool("show-config") {
				return showConfig(c)
			}
			store := objstore.New(objstore.Options{})
			defer store.Close()
			job, err := prepared(c.Context, func() (*jobs.Job, error) { return jobs.Prepare(c.Context, spec, store, jobs.Events{}) })
			if err != nil {
				return located(c, err)
			}
			defer job.Close()
			e, err := job.Estimate(c.Context, c.Int64("sample"))
			if err != nil {
				return located(c, err)
			}
			if c.Bool("json") {
				return printJSON(c, e)
			}
			printEstimate(c.App.Writer, e)
			return nil
		},
	}
}

func printEstimate(w io.Writer, e *jobs.Estimate) {
	about, among := "", ""
	if !e.Exact {
		about, among = "about ", fmt.Sprintf("among the %d sampled rows: ", e.Sampled)
	}
	fmt.Fprintf(w, "model          %s (%.12s)\n", e.Model, e.ModelDigest)
	fmt.Fprintf(w, "inputs         %d files, %s, %d shards\n", e.Inputs, bytesText(e.InputBytes), e.Shards)
	if e.LeftOut > 0 {
		fmt.Fprintf(w, "               %d more files match, but came after the stored plan and are left out\n", e.LeftOut)
	}
	for _, why := range e.Broken {
		fmt.Fprintf(w, "               LEFT OUT: %s\n", why)
	}
	fmt.Fprintf(w, "rows           %d\n", e.Rows)
	if e.Failing > 0 {
		fmt.Fprintf(w, "               %s%d would be error rows (%s)\n", among, e.Failing, codesText(e.Errors))
	}
	for _, why := range e.Warnings {
		fmt.Fprintf(w, "               WARNING: %s\n", why)
	}
	fmt.Fprintf(w, "prompt tokens  %s%d (min %d, median %d, max %d a row)\n", about, e.PromptTokens, e.Shortest, e.Median, e.Longest)
	if e.SharedTokens > 0 {
		fmt.Fprintf(w, "               %s%d of %d are computed for several rows at once: their prompts begin alike\n", among, e.SharedTokens, e.SampledTokens)
	}
	if e.Copies > 0 {
		fmt.Fprintf(w, "               %s%d requests with %d prompt tokens are equal to others and are not run\n", among, e.Copies, e.CopiedTokens)
	}
	fmt.Fprintf(w, "output tokens  at most %s%d\n", about, e.MaxOutputTokens)
	fmt.Fprintf(w, "weights        %s\n", bytesText(e.WeightBytes))
	fmt.Fprintf(w, "KV pages       %s for the longest row, %s pool\n", bytesText(e.KVLongest), bytesText(e.KVMemory))
	if e.Available > 0 {
		fmt.Fprintf(w, "memory         about %s of %s available", bytesText(e.MemoryCeiling), bytesText(e.Available))
		if e.MemoryCeiling > e.Available {
			fmt.Fprint(w, ": NOT ENOUGH; lower --kv-memory, or use a smaller model")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "output         %s (%s)", e.Output, e.Format)
	switch {
	case e.OtherJob != "":
		fmt.Fprintf(w, "\n               CANNOT BE USED: %s", e.OtherJob)
	case e.Done > 0:
		fmt.Fprintf(w, ", %d of %d parts are done", e.Done, e.Shards)
	}
	fmt.Fprintln(w)
}

// codesText lists error codes with their counts, in order.
func codesText[C ~string](errors map[C]int64) string {
	var list []string
	for _, code := range slices.Sorted(maps.Keys(errors)) {
		list = append(list, fmt.Sprintf("%s %d", code, errors[code]))
	}
	return strings.Join(list, ", ")
}

// bytesText prints a size for a person.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// showConfig prints every value of a job with its origin: flag, environment, file or default.
func showConfig(c *cli.Context) error {
	placed := map[string]string{}
	for key, flag := range yamlKeys {
		if old, ok := placed[flag]; !ok || key < old {
			placed[flag] = key
		}
	}
	t := table{header: []string{"FLAG", "VALUE", "FROM", "IN A JOB FILE"}, widest: 60}
	for _, f := range jobFlags() {
		name := f.Names()[0]
		from := "default"
		switch {
		case onCommandLine(c, f):
			from = "flag"
		case os.Getenv(env(name)[0]) != "":
			from = env(name)[0]
		case c.IsSet(name):
			from = c.String("config")
		}
		value := fmt.Sprint(c.Value(name))
		if _, many := f.(*cli.StringSliceFlag); many {
			value = strings.Join(c.StringSlice(name), " ")
		}
		t.add("--"+name, value, from, placed[name])
	}
	return t.print(c.App.Writer)
}

// onCommandLine tells whether a flag was written out.
func onCommandLine(c *cli.Context, f cli.Flag) bool {
	for _, arg := range argsOf(c) {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && slices.Contains(f.Names(), name) {
			return true
		}
	}
	return false
}
