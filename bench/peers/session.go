package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// commandLimit ends a program that hangs.
const commandLimit = 30 * time.Minute

// session is what all parts share.
type session struct {
	config
	llama    map[string]string // name of a build -> folder of programs; in the order of builds
	builds   []string
	models   map[string]string // type -> file
	openvino map[string]string // of setup.sh; nil: do without
	peers    map[string]string // engine -> version
	workDir  string
}

// entry is one figure: what an engine made of a measure, in one setting, in one round.
type entry struct {
	Measure string  `json:"measure"` // the same name for all engines
	Engine  string  `json:"engine"`
	Setting string  `json:"setting,omitempty"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"` // tokens/s or s
	Note    string  `json:"note,omitempty"`
}

// better tells whether a is the better figure of the same measure.
func better(a, b entry) bool {
	if a.Unit == "s" {
		return a.Value < b.Value
	}
	return a.Value > b.Value
}

// result is what a part leaves.
type result struct {
	Part     string            `json:"part"`
	Whole    bool              `json:"whole"` // it ran to its end
	CPU      string            `json:"cpu"`
	ISA      string            `json:"isa"` // that the engines were held to, or auto
	Threads  int               `json:"threads"`
	Date     string            `json:"date"`
	Versions map[string]string `json:"versions"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"`
	Loads    []string          `json:"loads"` // load average before each round: above the engines' threads, others were at work
	Entries  []entry           `json:"entries"`
	Raw      []json.RawMessage `json:"raw,omitempty"` // what programs printed as JSON, where tables are made of it
	Failed   []string          `json:"failed,omitempty"`

	round int
}

func (r *result) add(e entry) { r.Entries = append(r.Entries, e) }

// best is the best entry of an engine for a measure.
func (r *result) best(measure, engine string) (entry, bool) {
	var best entry
	found := false
	for _, e := range r.Entries {
		if e.Measure == measure && e.Engine == engine && (!found || better(e, best)) {
			best, found = e, true
		}
	}
	return best, found
}

// settings are what to run in this round: all in the first, later only the best so far.
func (r *result) settings(measure, engine string, all []string) []string {
	if e, ok := r.best(measure, engine); ok && r.round > 0 {
		return []string{e.Setting}
	}
	return all
}

// fails notes that an engine did not run; the others still count.
func (r *result) fails(engine string, err error) {
	r.Failed = append(r.Failed, fmt.Sprintf("%s: %s", engine, firstLine(err)))
	fmt.Fprintf(os.Stderr, "  %s failed: %v\n", engine, err)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// prepare builds the peers and writes the workloads.
func (s *session) prepare(ctx context.Context) error {
	values, err := s.script(ctx, s.llamaBuild, s.isa)
	if err != nil {
		return fmt.Errorf("build llama.cpp: %w", err)
	}
	s.llama, s.models, s.peers = map[string]string{}, map[string]string{}, map[string]string{}
	for _, v := range values {
		if name, ok := strings.CutPrefix(v[0], "build:"); ok {
			s.llama[name], s.builds = v[1], append(s.builds, name)
		} else if name, ok := strings.CutPrefix(v[0], "model:"); ok {
			s.models[name] = v[1]
		} else if v[0] == "version" {
			s.peers["llama.cpp"] = v[1]
		}
	}
	if len(s.builds) == 0 || len(s.models) == 0 {
		return fmt.Errorf("build llama.cpp: %s printed no build: and model: lines", s.llamaBuild)
	}
	if s.ovSetup != "" {
		if values, err = s.script(ctx, s.ovSetup); err != nil {
			return fmt.Errorf("install OpenVINO GenAI (-openvino '' does without): %w", err)
		}
		s.openvino = map[string]string{}
		for _, v := range values {
			s.openvino[v[0]] = v[1]
		}
		s.peers["OpenVINO GenAI"] = s.openvino["version"]
	}
	out, err := output(ctx, s.batchmill, "version")
	if err != nil {
		return err
	}
	s.peers["batchmill"] = strings.Join(strings.Fields(string(out)), " ")
	s.workDir = filepath.Join(s.out, "workloads")
	_, err = output(ctx, s.python, filepath.Join(filepath.Dir(s.llamaBuild), "work.py"), s.workDir)
	return err
}

// script runs a set-up script and reads the name=value lines that it prints.
func (s *session) script(ctx context.Context, name string, args ...string) (values [][2]string, err error) {
	cmd := exec.CommandContext(ctx, name, append([]string{s.model}, args...)...)
	cmd.Stderr = os.Stderr // building takes minutes: show it
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, s.model, err)
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values = append(values, [2]string{name, value})
		}
	}
	return values, nil
}

// measure runs a part's rounds and stores the result after each.
func (s *session) measure(ctx context.Context, p part) error {
	r := &result{Part: p.name, CPU: cpuName(), ISA: s.isa, Threads: s.threads, Date: time.Now().UTC().Format(time.DateOnly), Versions: s.peers}
	began := time.Now()
	for round := 0; round < s.rounds && (round == 0 || time.Since(began) < s.bound); round++ {
		fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", p.name, round+1, s.rounds)
		r.round = round
		r.Loads = append(r.Loads, loadAverage())
		if err := p.once(ctx, s, r); err != nil {
			return err
		}
		r.Rounds, r.Seconds = round+1, time.Since(began).Seconds()
		if err := r.store(s.out); err != nil {
			return err
		}
	}
	r.Whole = true
	return r.store(s.out)
}

// store writes the result under its name, never half.
func (r *result) store(dir string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	name := filepath.Join(dir, fileName(r.Part))
	if err := os.WriteFile(name+".tmp", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}

func fileName(part string) string { return strings.ReplaceAll(part, "/", "-") + ".json" }

// States of a part.
const (
	missing = "missing"
	begun   = "begun"
	whole   = "whole"
)

func stateOf(file string) string {
	r, err := readResult(file)
	switch {
	case err != nil:
		return missing
	case !r.Whole:
		return begun
	}
	return whole
}

func readResult(file string) (*result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &result{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return r, nil
}

// output runs a program and returns what it printed. What it said besides is shown only if it fails.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tail(exit.Stderr))
	}
	return out, err
}

// tail is the end of a program's talk.
func tail(b []byte) []byte {
	const most = 2000
	return b[max(0, len(b)-most):]
}

// jsonLines are the lines of a program's output that are JSON objects; programs of this kind mix them with talk.
func jsonLines(out []byte) (lines []json.RawMessage, err error) {
	for line := range bytes.Lines(out) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] == '{' && json.Valid(line) {
			lines = append(lines, json.RawMessage(line))
		}
	}
	if len(lines) == 0 {
		return nil, errors.New("it printed no JSON line")
	}
	return lines, nil
}

// cpuName is the processor's name where the system tells it, with the vector extensions that kernels ask for: virtual
// machines often hide the model.
func cpuName() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	name, model, flags := "unknown", "", ""
	for line := range strings.Lines(string(info)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "model name":
			name = value
		case "model":
			model = value
		case "flags":
			flags = " " + value + " "
		}
	}
	var has []string
	for _, f := range []string{"avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16"} {
		if strings.Contains(flags, " "+f+" ") {
			has = append(has, f)
		}
	}
	return fmt.Sprintf("%s, model %s (%s)", name, model, strings.Join(has, ", "))
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}
