package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

const ours = "batchmill"

// noWarmup is the length from which a prompt is computed once: what a first run finds cold does not show any more.
const noWarmup = 4096

// llamaName names a build in tables.
func llamaName(build string) string { return "llama.cpp " + build }

// llamaBench measures prefill of one prompt with every build: settings are "-fa F -ub U".
func (s *session) llamaBench(ctx context.Context, r *result, measure, file string, prompt int, settings []string) {
	for _, build := range s.builds {
		engine := llamaName(build)
		for _, set := range r.settings(measure, engine, settings) {
			args := append([]string{"-m", file, "-p", strconv.Itoa(prompt), "-n", "0", "-t", strconv.Itoa(s.threads), "-r", "1", "-o", "jsonl"}, strings.Fields(set)...)
			if prompt > noWarmup {
				args = append(args, "--no-warmup")
			}
			out, err := output(ctx, filepath.Join(s.llama[build], "llama-bench"), args...)
			if err == nil {
				err = eachLine(out, func(line []byte) error {
					var row struct {
						Prompt int     `json:"n_prompt"`
						Speed  float64 `json:"avg_ts"`
					}
					if err := json.Unmarshal(line, &row); err != nil {
						return err
					}
					r.add(entry{Measure: measure, Engine: engine, Setting: set, Value: row.Speed, Unit: "tokens/s"})
					return nil
				})
			}
			if err != nil {
				r.fails(engine+" "+set, err)
			}
		}
	}
}

// batchedBench measures decode of so many sequences at once with every build. The prompt is shared by the sequences (-pps),
// so that little time goes into it; each sequence still decodes its own tokens.
func (s *session) batchedBench(ctx context.Context, r *result, t, file string, seqs []int, past, tokens int) {
	list := make([]string, len(seqs))
	for i, n := range seqs {
		list[i] = strconv.Itoa(n)
	}
	room := seqs[len(seqs)-1]*(past+tokens) + 64
	for _, build := range s.builds {
		engine := llamaName(build)
		// One run measures all batch sizes; the largest one decides which setting is kept.
		for _, set := range r.settings(decodeMeasure(seqs[len(seqs)-1], t), engine, []string{"-fa on", "-fa off"}) {
			args := append([]string{"-m", file, "-c", strconv.Itoa(room), "-b", "2048", "-ub", "512", "-pps", "-npp", strconv.Itoa(past), "-ntg", strconv.Itoa(tokens),
				"-npl", strings.Join(list, ","), "-t", strconv.Itoa(s.threads), "-tb", strconv.Itoa(s.threads), "--output-format", "jsonl"}, strings.Fields(set)...)
			out, err := output(ctx, filepath.Join(s.llama[build], "llama-batched-bench"), args...)
			if err == nil {
				err = eachLine(out, func(line []byte) error {
					var row struct {
						Seqs  int     `json:"pl"`
						Speed float64 `json:"speed_tg"`
					}
					if err := json.Unmarshal(line, &row); err != nil {
						return err
					}
					r.add(entry{Measure: decodeMeasure(row.Seqs, t), Engine: engine, Setting: set, Value: row.Speed, Unit: "tokens/s"})
					return nil
				})
			}
			if err != nil {
				r.fails(engine+" "+set, err)
			}
		}
	}
}

func decodeMeasure(seqs int, t string) string { return fmt.Sprintf("decode of %d, %s", seqs, t) }

func eachLine(out []byte, f func([]byte) error) error {
	lines, err := jsonLines(out)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if err := f(line); err != nil {
			return err
		}
	}
	return nil
}
