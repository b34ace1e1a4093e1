package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

var update = flag.Bool("update", false, "write docs/CLI.md from the flags")

const cliDoc = "../../docs/CLI.md"

// TestCLIReference holds docs/CLI.md to the flags as they are: `go test ./cmd/batchmill -run CLIReference -update` writes it.
func TestCLIReference(t *testing.T) {
	want := reference(newApp(strings.NewReader(""), io.Discard, io.Discard))
	if *update {
		if err := os.WriteFile(cliDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(cliDoc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/CLI.md is not what the flags say: run go test ./cmd/batchmill -run CLIReference -update")
	}
}

// reference is the text of docs/CLI.md.
func reference(app *cli.App) string {
	var b strings.Builder
	b.WriteString(`# The command line

This page is made from the flags themselves; a test holds it to them.

Data goes to stdout, talk to stderr. Flags stand before arguments. Each flag has an environment name, given beside it; the order of
precedence is flag, environment, job file (` + "`--config`" + `), default. Commas inside a value never split it: repeat the flag instead. Exit codes are
in the [README](../README.md#exit-codes).
`)
	for _, c := range app.Commands {
		if c.Hidden {
			continue
		}
		describe(&b, "", c)
	}
	b.WriteString("\n## The job file\n\n`--config job.yaml` holds what flags hold. An unknown key is an error with its line and column.\n\n| key | flag |\n|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(yamlKeys)) {
		fmt.Fprintf(&b, "| `%s` | `--%s` |\n", key, yamlKeys[key])
	}
	return b.String()
}

func describe(b *strings.Builder, parent string, c *cli.Command) {
	name := strings.TrimSpace(parent + " " + c.Name)
	if len(c.Subcommands) > 0 {
		for _, s := range c.Subcommands {
			describe(b, name, s)
		}
		return
	}
	fmt.Fprintf(b, "\n## batchmill %s\n\n%s%s.\n", name, strings.ToUpper(c.Usage[:1]), strings.TrimSuffix(c.Usage[1:], "."))
	if c.ArgsUsage != "" {
		fmt.Fprintf(b, "\n```\nbatchmill %s [flags] %s\n```\n", name, c.ArgsUsage)
	}
	if c.Description != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(c.Description))
	}
	if name == "plan" && sameFlags(c, "run", b) {
		return
	}
	group := ""
	for i, f := range c.Flags {
		var category string
		if cf, ok := f.(cli.CategorizableFlag); ok {
			category = cf.GetCategory()
		}
		if i == 0 || category != group {
			group = category
			if group != "" {
				fmt.Fprintf(b, "\n### %s\n", group)
			}
			b.WriteString("\n| flag | environment | default | meaning |\n|---|---|---|---|\n")
		}
		row(b, f)
	}
}

// sameFlags spares the reader a second copy of a long table.
func sameFlags(c *cli.Command, other string, b *strings.Builder) bool {
	for _, o := range newApp(strings.NewReader(""), io.Discard, io.Discard).Commands {
		if o.Name != other || len(o.Flags) < len(c.Flags) {
			continue
		}
		for _, f := range c.Flags {
			if !slices.ContainsFunc(o.Flags, func(g cli.Flag) bool { return g.Names()[0] == f.Names()[0] }) {
				return false
			}
		}
		if len(o.Flags) == len(c.Flags) {
			fmt.Fprintf(b, "\nThe flags are those of `batchmill %s`.\n", other)
			return true
		}
	}
	return false
}

func row(b *strings.Builder, f cli.Flag) {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return
	}
	var names []string
	for _, n := range f.Names() {
		names = append(names, "`--"+n+"`")
	}
	var envs []string
	for _, e := range doc.GetEnvVars() {
		envs = append(envs, "`"+e+"`")
	}
	value := doc.GetDefaultText()
	if value == "" {
		value = doc.GetValue()
	}
	if !doc.TakesValue() || value == "[]" || value == `""` {
		value = ""
	}
	if value != "" {
		value = "`" + value + "`"
	}
	clean := strings.NewReplacer("|", `\|`, "{{", "`{{", "}}", "}}`", "<", `\<`)
	fmt.Fprintf(b, "| %s | %s | %s | %s |\n", strings.Join(names, ", "), strings.Join(envs, ", "), value, clean.Replace(doc.GetUsage()))
}
