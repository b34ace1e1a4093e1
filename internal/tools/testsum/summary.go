package main

import (
	"fmt"
	"io"
	"sort"
	"strings"
)

// key names a test (or, with an empty test, a package).
type key struct{ pkg, test string }

// result is a finished test.
type result struct {
	key
	action  string // pass, fail or skip
	seconds float64
}

type summary struct {
	out      io.Writer
	output   map[key][]string    // what a running test or package printed
	parents  map[key]bool        // tests that have subtests
	build    map[string][]string // compiler output by import path
	results  []result
	packages int
	badPkgs  []key // packages that failed, with or without a failed test
	broken   bool  // the stream could not be read to its end
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, output: map[key][]string{}, parents: map[key]bool{}, build: map[string][]string{}}
}

func (s *summary) add(ev event) {
	k := key{ev.Package, ev.Test}
	switch ev.Action {
	case "output":
		s.output[k] = append(s.output[k], ev.Output)
	case "build-output":
		s.build[ev.ImportPath] = append(s.build[ev.ImportPath], ev.Output)
	case "run":
		if at := strings.LastIndexByte(ev.Test, '/'); at > 0 {
			s.parents[key{ev.Package, ev.Test[:at]}] = true
		}
	case "pass", "fail", "skip":
		if ev.Test == "" {
			s.finishPackage(ev)
			return
		}
		s.results = append(s.results, result{k, ev.Action, ev.Elapsed})
		if ev.Action == "pass" {
			delete(s.output, k) // memory: only what may still be printed is kept
		}
	}
}

// finishPackage prints one line for a package, and everything that failed in it at once: a person should not have to wait
// for the other packages to read it.
func (s *summary) finishPackage(ev event) {
	s.packages++
	pass, fail, skip := s.countIn(ev.Package)
	if ev.Action != "fail" {
		if pass+skip > 0 {
			fmt.Fprintf(s.out, "ok    %-60s %5d tests %8.1fs\n", ev.Package, pass+skip, ev.Elapsed)
		}
		return
	}
	s.badPkgs = append(s.badPkgs, key{pkg: ev.Package})
	fmt.Fprintf(s.out, "FAIL  %-60s %5d of %d tests %8.1fs\n", ev.Package, fail, pass+fail+skip, ev.Elapsed)
	for _, line := range s.build[ev.FailedBuild] {
		fmt.Fprint(s.out, "    ", line)
	}
	for _, r := range s.results {
		if r.pkg == ev.Package && r.action == "fail" {
			s.printOutput(r.key)
		}
	}
	// A test that never finished (a panic, a time-out) has no result, only output.
	done := map[string]bool{}
	for _, r := range s.results {
		if r.pkg == ev.Package {
			done[r.test] = true
		}
	}
	var unfinished []key
	for k := range s.output {
		if k.pkg == ev.Package && k.test != "" && !done[k.test] {
			unfinished = append(unfinished, k)
		}
	}
	sort.Slice(unfinished, func(i, j int) bool { return unfinished[i].test < unfinished[j].test })
	for _, k := range unfinished {
		s.printOutput(k)
	}
	s.printOutput(key{pkg: ev.Package})
}

func (s *summary) printOutput(k key) {
	for _, line := range s.output[k] {
		fmt.Fprint(s.out, "    ", line)
	}
}

func (s *summary) leaf(r result) bool { return !s.parents[r.key] }

// counts reports whether a result is one to count: every leaf, and a failed parent none of whose subtests failed.
func (s *summary) counts(r result) bool {
	if s.leaf(r) {
		return true
	}
	if r.action != "fail" {
		return false
	}
	for _, o := range s.results {
		if o.pkg == r.pkg && o.action == "fail" && strings.HasPrefix(o.test, r.test+"/") {
			return false
		}
	}
	return true
}

func (s *summary) countIn(pkg string) (pass, fail, skip int) {
	for _, r := range s.results {
		if (pkg != "" && r.pkg != pkg) || !s.counts(r) {
			continue
		}
		switch r.action {
		case "pass":
			pass++
		case "fail":
			fail++
		case "skip":
			skip++
		}
	}
	return pass, fail, skip
}

// print writes the closing part and reports whether all is well.
func (s *summary) print(slow int, strict bool) bool {
	pass, fail, skip := s.countIn("")
	// A package that failed without a failed test (build error, panic outside a test, exit in TestMain) counts as one.
	for _, p := range s.badPkgs {
		if _, failed, _ := s.countIn(p.pkg); failed == 0 {
			fail++
		}
	}
	if s.broken {
		fail++
	}
	s.printSlow(slow)
	if skip > 0 {
		fmt.Fprintln(s.out, "\nSkipped:")
		for _, r := range s.results {
			if r.action == "skip" && s.counts(r) {
				fmt.Fprintf(s.out, "  %s %s: %s\n", r.pkg, r.test, s.reason(r.key))
			}
		}
	}
	if fail > 0 {
		fmt.Fprintln(s.out, "\nFailed:")
		for _, r := range s.results {
			if r.action == "fail" && s.counts(r) {
				fmt.Fprintf(s.out, "  %s %s\n", r.pkg, r.test)
			}
		}
		for _, p := range s.badPkgs {
			if _, failed, _ := s.countIn(p.pkg); failed == 0 {
				fmt.Fprintf(s.out, "  %s (the package)\n", p.pkg)
			}
		}
	}
	if pass+fail+skip == 0 {
		fmt.Fprintln(s.out, "\nno test was run")
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", pass, fail, skip)
	return fail == 0 && pass > 0 && (!strict || skip == 0)
}

// reason is what a skipped test said: its output without go's own framing lines.
func (s *summary) reason(k key) string {
	var said []string
	for _, line := range s.output[k] {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") {
			continue
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

func (s *summary) printSlow(n int) {
	var leaves []result
	for _, r := range s.results {
		if s.leaf(r) && r.seconds >= 1 {
			leaves = append(leaves, r)
		}
	}
	if len(leaves) == 0 || n <= 0 {
		return
	}
	sort.SliceStable(leaves, func(i, j int) bool { return leaves[i].seconds > leaves[j].seconds })
	fmt.Fprintln(s.out, "\nSlowest:")
	for _, r := range leaves[:min(n, len(leaves))] {
		fmt.Fprintf(s.out, "  %7.1fs  %s %s\n", r.seconds, r.pkg, r.test)
	}
}
