package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/jobs"
)

// unreadable matches what the flag packages say of a value that they cannot read, from the environment and from the
// command line.
var unreadable = regexp.MustCompile(`^could not parse ("(?:[^"\\]|\\.)*") as \S+ value from (.*) for flag ([a-z0-9-]+):|^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-([a-z0-9-]+):`)

// readable says of a value that cannot be read what it should be, in place of how Go failed to read it.
func readable(flags []cli.Flag, err error) error {
	m := unreadable.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	value, name, from := m[1]+m[4], m[3]+m[5], ""
	if m[2] != "" {
		from = " (" + m[2] + ")"
	}
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return fmt.Errorf("--%s: %s is not %s%s", name, value, wanted(f), from)
		}
	}
	return err
}

// wanted is what a flag's values are.
func wanted(f cli.Flag) string {
	switch f.(type) {
	case *cli.BoolFlag:
		return "true or false"
	case *cli.Int64Flag:
		return "a whole number"
	case *cli.Float64Flag:
		return "a number"
	case *cli.DurationFlag:
		return "a time, such as 90s, 10m or 1h30m"
	}
	return "readable"
}

// placesKey is where an app's metadata keeps the places of the values that came from a job file, by flag.
const placesKey = "places"

// mention matches flags and parameters in a message.
var mention = regexp.MustCompile(`(?:--)?[a-z]+(?:[-_][a-z]+)*`)

// located puts the place in the job file before an error about a value that stands there: the file is then what is wrong,
// not the command line.
func located(c *cli.Context, err error) error {
	places, _ := c.App.Metadata[placesKey].(map[string]string)
	var known *jobs.Error
	if !errors.As(err, &known) || known.Kind != jobs.Usage && known.Kind != jobs.Config && known.Kind != jobs.NoInput {
		return err
	}
	text := known.Err.Error()
	for _, word := range mention.FindAllString(text, -1) {
		flag, is := strings.CutPrefix(word, "--")
		if !is && !strings.HasPrefix(text, "sampling:") { // which names parameters as requests do
			continue
		}
		place, ok := places[strings.ReplaceAll(flag, "_", "-")]
		if !ok {
			continue
		}
		kind := known.Kind
		if kind == jobs.Usage {
			kind = jobs.Config
		}
		return jobs.Errorf(kind, known.Hint, "%s: %w", place, known.Err)
	}
	return err
}
