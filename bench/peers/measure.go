package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

func measure(ctx context.Context, c config) (*report, error) {
	peer, err := buildPeer(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &report{Threads: c.threads, Rounds: c.rounds, Prompt: c.prompt, Seqs: c.seqs, Past: c.past, Decode: c.decode, Peer: peer["version"], CPU: cpuName()}
	for round := range c.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, c.rounds)
		if err := llamaBench(ctx, c, peer, &r.Theirs); err != nil {
			return nil, err
		}
		if err := ourBench(ctx, c, &r.Ours); err != nil {
			return nil, err
		}
		if err := llamaBatchedBench(ctx, c, peer, &r.Theirs); err != nil {
			return nil, err
		}
	}
	if r.Theirs.Prefill <= 0 || r.Theirs.Decode <= 0 || r.Ours.Prefill <= 0 || r.Ours.Decode <= 0 {
		return nil, fmt.Errorf("a figure is missing: %+v %+v", r.Ours, r.Theirs)
	}
	r.Ratios = ratios{Prefill: r.Ours.Prefill / r.Theirs.Prefill, Decode: r.Ours.Decode / r.Theirs.Decode}
	r.Satisfied = r.Ratios.Prefill >= c.minPrefill && r.Ratios.Decode >= c.minDecode
	return r, nil
}

// buildPeer runs the build script and reads the name=value lines it prints.
func buildPeer(ctx context.Context, c config) (map[string]string, error) {
	out, err := output(ctx, c.build, c.model)
	if err != nil {
		return nil, fmt.Errorf("build llama.cpp: %w", err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[name] = value
		}
	}
	if values["bin"] == "" || values["f16"] == "" {
		return nil, fmt.Errorf("build llama.cpp: %s printed no bin= and f16=", c.build)
	}
	return values, nil
}

// llamaBench measures prefill: one prompt at a time, over the settings that llama.cpp's user could choose.
func llamaBench(ctx context.Context, c config, peer map[string]string, best *figures) error {
	out, err := output(ctx, peer["bin"]+"/llama-bench", "-m", peer["f16"], "-p", strconv.Itoa(c.prompt), "-n", "0",
		"-t", strconv.Itoa(c.threads), "-fa", "0,1", "-ub", c.microBatches, "-r", "1", "-o", "jsonl")
	if err != nil {
		return fmt.Errorf("run llama-bench: %w", err)
	}
	return eachLine(out, func(line []byte) error {
		var row struct {
			Micro int     `json:"n_ubatch"`
			Flash any     `json:"flash_attn"` // a number or a boolean, by version
			Speed float64 `json:"avg_ts"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			return fmt.Errorf("read llama-bench: %w", err)
		}
		better(&best.Prefill, &best.PrefillSetting, row.Speed, fmt.Sprintf("-fa %v -ub %d", row.Flash, row.Micro))
		return nil
	})
}

// llamaBatchedBench measures the decode of many sequences at once.
func llamaBatchedBench(ctx context.Context, c config, peer map[string]string, best *figures) error {
	room := strconv.Itoa(c.seqs * (c.past + c.decode))
	for _, flash := range []string{"off", "on"} {
		out, err := output(ctx, peer["bin"]+"/llama-batched-bench", "-m", peer["f16"], "-c", room, "-b", "2048", "-ub", "512",
			"-npp", strconv.Itoa(c.past), "-ntg", strconv.Itoa(c.decode), "-npl", strconv.Itoa(c.seqs),
			"-t", strconv.Itoa(c.threads), "-tb", strconv.Itoa(c.threads), "-fa", flash, "--output-format", "jsonl")
		if err != nil {
			return fmt.Errorf("run llama-batched-bench: %w", err)
		}
		err = eachLine(out, func(line []byte) error {
			var row struct {
				Speed float64 `json:"speed_tg"`
			}
			if err := json.Unmarshal(line, &row); err != nil {
				return fmt.Errorf("read llama-batched-bench: %w", err)
			}
			better(&best.Decode, &best.DecodeSetting, row.Speed, "-fa "+flash)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ourBench runs `batchmill bench`, which measures both figures in one run over the original file.
func ourBench(ctx context.Context, c config, best *figures) error {
	args := []string{"bench", "--model", c.model, "--threads", strconv.Itoa(c.threads), "--prompt-tokens", strconv.Itoa(c.prompt),
		"--seqs", strconv.Itoa(c.seqs), "--decode-past", strconv.Itoa(c.past), "--decode-tokens", strconv.Itoa(c.decode),
		"--repeat", "1", "--json"}
	out, err := output(ctx, c.batchmill, args...)
	if err != nil {
		return fmt.Errorf("run batchmill bench: %w", err)
	}
	return eachLine(out, func(line []byte) error {
		var row figures
		if err := json.Unmarshal(line, &row); err != nil {
			return fmt.Errorf("read batchmill bench: %w", err)
		}
		better(&best.Prefill, &best.PrefillSetting, row.Prefill, "")
		better(&best.Decode, &best.DecodeSetting, row.Decode, "")
		return nil
	})
}

// output runs a program and returns what it printed. What it said besides is shown only if it fails.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

// eachLine calls f for every line that is a JSON object; programs of this kind mix them with talk.
func eachLine(out []byte, f func([]byte) error) error {
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 4<<20)
	seen := false
	for lines.Scan() {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 && line[0] == '{' {
			seen = true
			if err := f(line); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !seen {
		return errors.New("it printed no JSON line")
	}
	return nil
}

// cpuName is the processor's name where the system tells it.
func cpuName() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s, %d threads, best of %d; %s, F16\n", r.CPU, r.Threads, r.Rounds, r.Peer)
	fmt.Fprintf(w, "%-34s %12s %12s %8s\n", "tokens/s", "batchmill", "llama.cpp", "ratio")
	fmt.Fprintf(w, "%-34s %12.1f %12.1f %7.2fx   (%s)\n", fmt.Sprintf("prefill, %d tokens", r.Prompt), r.Ours.Prefill, r.Theirs.Prefill, r.Ratios.Prefill, r.Theirs.PrefillSetting)
	fmt.Fprintf(w, "%-34s %12.1f %12.1f %7.2fx   (%s)\n", fmt.Sprintf("decode, %d at once after %d", r.Seqs, r.Past), r.Ours.Decode, r.Theirs.Decode, r.Ratios.Decode, r.Theirs.DecodeSetting)
}
