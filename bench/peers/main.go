// Command peers measures batchmill, llama.cpp and OpenVINO GenAI side by side on this machine, part by part, and writes the
// tables of docs/PERFORMANCE.md from the results.
//
//	go run ./bench/peers -batchmill bin/batchmill -model model.Q4_1.gguf -out out/perf
//	go run ./bench/peers -out out/perf -write docs/PERFORMANCE.md
//
// Every part leaves a file NAME.json in -out. A part whose file is whole is not measured again, so a run that was stopped
// goes on where it was; -force measures anew. Runs of the engines alternate in rounds, and each figure is the best of all
// rounds, so that a noisy neighbour hurts nobody more. Each engine is tried in the settings that its user could choose in
// the first round, and keeps its best one in the others. A part starts no round after -bound.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

type config struct {
	batchmill, model, out, write string
	llamaBuild, ovSetup, python  string
	only                         string
	force, list                  bool
	threads, rounds              int
	bound                        time.Duration
	types, long, jobTypes, work  string
	bench                        string
	activations, isa, mark       string
	jobRows, probeRows           int
	slots                        string
	prefixRows                   int
	size                         float64
	tiny                         bool
}

func main() {
	var c config
	flag.StringVar(&c.batchmill, "batchmill", "bin/batchmill", "the program to measure")
	flag.StringVar(&c.model, "model", "", "GGUF file of which the other types are made, named NAME.TYPE.gguf (required to measure)")
	flag.StringVar(&c.out, "out", "out/perf", "folder of the results")
	flag.StringVar(&c.write, "write", "", "measure nothing; write the tables into this Markdown file, between its markers, or to standard output with -")
	flag.StringVar(&c.llamaBuild, "build", "bench/peers/build.sh", "script that builds llama.cpp and the files")
	flag.StringVar(&c.ovSetup, "openvino", "bench/peers/openvino/setup.sh", "script that installs OpenVINO GenAI; empty: do without")
	flag.StringVar(&c.python, "python", "python3", "Python that writes the workloads")
	flag.StringVar(&c.only, "only", "", "only parts whose name matches this regular expression")
	flag.BoolVar(&c.force, "force", false, "measure parts again that are there")
	flag.BoolVar(&c.list, "list", false, "list the parts and what is there of them")
	flag.IntVar(&c.threads, "threads", 2, "threads of all engines")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds")
	flag.DurationVar(&c.bound, "bound", 8*time.Minute, "no round of a part begins after so long")
	flag.StringVar(&c.types, "types", "Q4_0,Q8_0,Q4_K_M,Q4_1,F16", "types of files for prefill and decode")
	flag.StringVar(&c.long, "long", "Q8_0", "types for the long prompt")
	flag.StringVar(&c.jobTypes, "jobs", "Q8_0", "types for the whole job")
	flag.StringVar(&c.bench, "bench", "Q8_0,Q4_0", "types for the whole of batchmill bench")
	flag.StringVar(&c.work, "work", "Q8_0", "type for the token workloads W1 to W3")
	flag.StringVar(&c.activations, "activations", "auto", "arithmetic of batchmill")
	flag.StringVar(&c.isa, "isa", "auto", "instructions that batchmill and llama.cpp may use: auto, avx512, avx2")
	flag.StringVar(&c.mark, "mark", "figures", "name of the markers in -write's page")
	flag.IntVar(&c.jobRows, "job-rows", 500, "rows of the whole job")
	flag.IntVar(&c.probeRows, "probe-rows", 48, "rows with which llama-server's number of slots is chosen")
	flag.StringVar(&c.slots, "slots", "8,16,32", "numbers of slots to try")
	flag.IntVar(&c.prefixRows, "prefix-rows", 500, "rows with a common beginning")
	flag.Float64Var(&c.size, "size", 1, "size of the whole jobs of batchmill bench")
	flag.BoolVar(&c.tiny, "tiny", false, "try everything in sizes that show nothing")
	flag.Parse()
	if flag.NArg() > 0 || c.write == "" && c.model == "" && !c.list {
		flag.Usage()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config) error {
	if c.write != "" {
		return writeReport(c.out, c.write, c.mark)
	}
	only, err := regexp.Compile(c.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var todo []part
	for _, p := range c.parts() {
		if only.MatchString(p.name) {
			todo = append(todo, p)
		}
	}
	if c.list {
		for _, p := range todo {
			fmt.Println(p.name, stateOf(filepath.Join(c.out, fileName(p.name))))
		}
		return nil
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	s := &session{config: c}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	var failed []error
	for _, p := range todo {
		if !c.force && stateOf(filepath.Join(c.out, fileName(p.name))) == whole {
			fmt.Fprintf(os.Stderr, "%s: there already\n", p.name)
			continue
		}
		if err := s.measure(ctx, p); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted; the same command goes on")
			}
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.name, err)
			failed = append(failed, fmt.Errorf("%s: %w", p.name, err)) // the other parts are worth having all the same
		}
	}
	return errors.Join(failed...)
}

// part is something to measure. once is one round: it adds entries to the result.
type part struct {
	name string
	once func(ctx context.Context, s *session, r *result) error
}

// parts are all parts, those first that matter most.
func (c config) parts() []part {
	var all []part
	add := func(name string, once func(context.Context, *session, *result) error) {
		all = append(all, part{name, once})
	}
	for _, t := range split(c.types) {
		add("prefill/"+t, prefill(t))
	}
	for _, t := range split(c.types) {
		add("decode/"+t, decode(t))
	}
	for _, t := range split(c.work) {
		for _, w := range []string{"W1", "W2", "W3", "W3s"} {
			add("work/"+w+"/"+t, workload(w, t))
		}
	}
	for _, t := range split(c.jobTypes) {
		add("job/"+t, wholeJob(t))
	}
	for _, t := range split(c.long) {
		add("long/"+t, long(t))
	}
	for _, t := range split(c.work) {
		add("prefix/"+t, prefixes(t))
	}
	for _, t := range split(c.bench) {
		add("bench/"+t, benchTable(t))
	}
	add("quality", quality)
	return all
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
