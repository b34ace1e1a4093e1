// Command batchmill runs a language model over a dataset, offline. Each command has a file of its own here: it turns
// flags into a configuration and calls package jobs; there is no logic beyond that.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/jobs"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a closed stdout must not kill a run that is writing results elsewhere
	ctx, stop := interruptible(context.Background())
	code := execute(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const (
	exitForced      = 130 // a second interrupt: at once, nothing is waited for
	exitInterrupted = 75  // as jobs.Interrupted
)

// interruptible returns a context that the first SIGINT, SIGTERM or SIGHUP ends; a second SIGINT ends the process. Under
// nohup a SIGHUP means nothing.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		first := true
		for s := range signals {
			if !first && s == os.Interrupt {
				os.Exit(exitForced)
			}
			first = false
			cancel()
		}
	}()
	return ctx, cancel
}

// lateExit is how much longer than the grace a run may take to end by itself.
const lateExit = 900 * time.Millisecond

// exitInTime ends the process when a run does not end by itself after a signal: whoever sent it kills next, and an exit code
// says more than that. The returned function calls it off.
func exitInTime(ctx context.Context, grace time.Duration) (stop func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-over:
			return
		}
		select {
		case <-time.After(grace + lateExit):
			os.Exit(exitInterrupted)
		case <-over:
		}
	}()
	return func() { close(over) }
}

// execute runs one command line and returns the exit code. It is the one place where an error becomes an exit code.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := newApp(stdin, stdout, stderr)
	app.Metadata["args"] = args
	err := app.RunContext(ctx, args)
	if err == nil {
		return 0
	}
	var shown *shownError
	if !errors.As(err, &shown) {
		fmt.Fprintf(stderr, "batchmill: %s\n", err)
	}
	return jobs.ExitCode(err)
}

// shownError marks an error that has been printed already.
type shownError struct{ error }

func (e *shownError) Unwrap() error { return e.error }

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:                      "batchmill",
		Usage:                     "run a language model over a dataset, offline",
		Reader:                    stdin,
		Writer:                    stdout,
		ErrWriter:                 stderr,
		Version:                   version,
		Metadata:                  map[string]any{},
		DisableSliceFlagSeparator: true, // commas inside a value never split it
		ExitErrHandler:            func(*cli.Context, error) {},
		Suggest:                   true,
		Commands: []*cli.Command{
			runCommand(), planCommand(), statusCommand(), retryCommand(), verifyCommand(), finalizeCommand(), inspectCommand(), tokenizeCommand(), modelsCommand(), benchCommand(), versionCommand(),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return jobs.Errorf(jobs.Usage, "`batchmill help` lists the commands", "there is no command %q", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	app.OnUsageError = usageError
	for _, c := range app.Commands {
		c.OnUsageError = usageError
		for _, s := range c.Subcommands {
			s.OnUsageError = usageError
		}
	}
	return app
}

func usageError(c *cli.Context, err error, _ bool) (out error) {
	defer func() { // under --json the summary comes on failure too, even where flags could not be read
		if (c.Command.Name == "run" || c.Command.Name == "retry") && slices.Contains(argsOf(c), "--json") {
			_ = printJSON(c, failedSummary(out))
		}
	}()
	hint := fmt.Sprintf("`%s --help` lists the flags", c.Command.HelpName)
	if strings.Contains(err.Error(), "not defined: -n") {
		hint = "for several completions of a row use --samples"
	}
	return jobs.Errorf(jobs.Usage, hint, "%w", readable(c.Command.Flags, err))
}

// argsOf is the command line as it was given.
func argsOf(c *cli.Context) []string {
	args, _ := c.App.Metadata["args"].([]string)
	return args
}

// noArguments refuses positional arguments, which are mostly a glob that the shell expanded.
func noArguments(c *cli.Context) error {
	if !c.Args().Present() {
		return nil
	}
	if err := noLateFlags(c); err != nil {
		return err
	}
	return jobs.Errorf(jobs.Usage, "quote globs so that the shell does not expand them: --input '*.jsonl'", "unexpected argument %q", c.Args().First())
}

// noLateFlags refuses a flag behind an argument, which would be taken for an argument.
func noLateFlags(c *cli.Context) error {
	for _, a := range c.Args().Slice() {
		if strings.HasPrefix(a, "-") && a != "-" {
			return jobs.Errorf(jobs.Usage, "put flags before arguments", "flag %s stands after the argument %q", a, c.Args().First())
		}
	}
	return nil
}
