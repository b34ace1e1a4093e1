package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/infer/cpu"
)

// version is set by the linker for releases.
var version = "dev"

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "say which build this is and what it runs on",
		Flags: []cli.Flag{toggle("json", "as JSON")},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			revision := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = s.Value
					}
				}
			}
			v := map[string]any{
				"version": version, "revision": revision, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				"kernels": kernels(), "cuda": false,
			}
			if c.Bool("json") {
				return printJSON(c, v)
			}
			_, err := fmt.Fprintf(c.App.Writer, "batchmill %s %s (%s, %s/%s, %s kernels, CPU only: no CUDA yet)\n",
				version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH, kernels())
			return err
		},
	}
}

// kernels names the instruction set that the engine uses on this machine.
func kernels() string { return cpu.ISAs()[0] }
