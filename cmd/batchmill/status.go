package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/jobs"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "say where a job stands, from its output alone: parts, rows, errors, rows a second, when it may be done",
		ArgsUsage: "OUTPUT",
		Description: "It may be asked on any machine that reaches the output. Figures are those of committed parts; processes that are at work show by\n" +
			"their heartbeats. The exit code says whether the question could be answered, not how the job fares.",
		UsageText: "batchmill status --watch s3://bucket/out/",
		Flags: []cli.Flag{
			toggle("json", "one JSON line on stdout, with --watch one each time"),
			toggle("watch", "ask again and again until the job is complete"),
			span("interval", "time between two questions of --watch", 5*time.Second),
		},
		Action: statusAction,
	}
}

func statusAction(c *cli.Context) error {
	url, err := outputArgument(c)
	if err != nil {
		return err
	}
	every := c.Duration("interval")
	if every <= 0 {
		return jobs.Errorf(jobs.Usage, "", "--interval must be above 0")
	}
	store := objstore.New(objstore.Options{})
	defer store.Close()
	drawn := 0
	for {
		s, err := jobs.ReadStatus(c.Context, store, url, time.Now())
		if err != nil {
			return watched(c.Context, err)
		}
		if c.Bool("json") {
			err = printJSON(c, s)
		} else {
			text := statusText(s)
			if drawn > 0 && isTerminal(c.App.Writer) { // one block that changes, where it can
				fmt.Fprintf(c.App.Writer, "\x1b[%dA\x1b[J", drawn)
			}
			drawn = strings.Count(text, "\n")
			_, err = io.WriteString(c.App.Writer, text)
		}
		if err != nil {
			return jobs.Errorf(jobs.StorageIO, "", "write the status: %w", err)
		}
		if !c.Bool("watch") || s.State == "complete" {
			return nil
		}
		select {
		case <-time.After(every):
		case <-c.Context.Done():
			return watched(c.Context, c.Context.Err())
		}
	}
}

// watched turns what a Ctrl-C interrupts into an interruption.
func watched(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return jobs.Errorf(jobs.Interrupted, "", "interrupted")
	}
	return err
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// listedShards is how many missing shards are named.
const listedShards = 20

func statusText(s *jobs.Status) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s"+format+"\n", append([]any{name}, args...)...)
	}
	line("output", "%s", s.Output)
	line("state", "%s", s.State)
	line("plan", "%.12s, made %s by run %s", s.Plan.Digest, s.Plan.Created.Format(time.RFC3339), s.Plan.RunID)
	line("job", "%s, %s, %s, to %s", oneLine(s.Plan.Model), plural(int64(s.Plan.Inputs), "input"), plural(s.Plan.Rows, "row"), s.Plan.Format)
	missing := ""
	if n := len(s.Shards.Missing); n > 0 && s.Shards.Done > 0 {
		var list []string
		for _, m := range s.Shards.Missing[:min(n, listedShards)] {
			list = append(list, fmt.Sprint(m))
		}
		missing = ", missing " + strings.Join(list, " ")
		if n > listedShards {
			missing += fmt.Sprintf(" and %d more", n-listedShards)
		}
	}
	line("parts", "%d of %d%s", s.Shards.Done, s.Shards.Total, missing)
	share := ""
	if s.Rows.Total > 0 {
		share = fmt.Sprintf(" (%.0f%%)", 100*float64(s.Rows.Total-s.Rows.NotStarted)/float64(s.Rows.Total))
	}
	line("rows", "%d of %d%s: %d ok, %d error, %d skipped", s.Rows.Total-s.Rows.NotStarted, s.Rows.Total, share, s.Rows.OK, s.Rows.Error, s.Rows.Skipped)
	if len(s.Errors) > 0 {
		line("errors", "%s", codesText(s.Errors))
	}
	line("tokens", "%d prompt (%d from shared prefixes), %d completion", s.Tokens.Prompt, s.Tokens.Cached, s.Tokens.Completion)
	if s.LastPart != nil {
		line("came", "first part %s, last part %s", s.FirstPart.UTC().Format(time.RFC3339), s.LastPart.UTC().Format(time.RFC3339))
	}
	if s.RowsPerS != nil {
		eta := ""
		if s.ETA != nil {
			eta = ", done in about " + (time.Duration(*s.ETA) * time.Second).String()
		}
		line("rate", "%.2f rows/s%s", *s.RowsPerS, eta)
	}
	for _, h := range s.Heartbeats {
		alive := "at work"
		if !h.Alive {
			alive = "silent: likely gone"
		}
		line("heartbeat", "shards %s, run %s: %s, last %s ago, %d of %d parts, %d rows more, %d errors", h.Shards, h.RunID, alive,
			(time.Duration(h.Age) * time.Second).String(), h.Parts, h.Total, h.Rows, h.Errors)
	}
	for _, p := range s.Problems {
		line("problem", "%s", oneLine(p))
	}
	return b.String()
}
